"""The data directory: who holds it, and where in it things lie.

The lock is on an open file, which Postgres inherits with all its processes. So it is free only when the
service *and* its Postgres are gone, whatever killed either: nothing is ever started on a cluster that an
orphan still writes to, and no pid needs to be believed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobledger import errors
from jobledger.embedded import accounts

SOCKET_NAME = ".s.PGSQL.5432"
"""What Postgres calls its socket for its default port; the directory is private, so no other is there."""

SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux, without the final NUL."""

SHORT_DIRECTORY = Path("/tmp")  # noqa: S108 — the directory in it is made 0700, or checked to be ours
"""Where the socket goes when the data directory's path is too long for it."""

ORPHAN_SECONDS = 60.0
"""Longest wait for a Postgres whose service was killed: it ends in 30 ms when idle, later when it must
write much first."""

POLL_SECONDS = 0.02
"""Between two looks at something that takes tens of milliseconds."""


class DataDirectory:
    """A data directory, held by this process from ``hold`` to ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.cluster = self.path / "postgres"
        self.log = self.path / "postgres.log"
        self._lock: int | None = None

    def hold(self) -> Iterator[float]:
        """Take it; yields seconds to wait while the Postgres of a killed service ends.

        Raises:
            errors.EmbeddedPostgresError: another process holds it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise errors.EmbeddedPostgresError(
                f"the data directory {self.path} cannot be used: {error.strerror}; start as its owner, or "
                "use another --data-dir"
            ) from error
        try:
            yield from self._wait_for(lock)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    @property
    def lock(self) -> int:
        """The descriptor of the lock, for children to inherit."""
        if self._lock is None:
            raise RuntimeError("the data directory is not held")
        return self._lock

    def release(self) -> None:
        """Let go of it; it stays held while a child that inherited the lock runs."""
        if self._lock is not None:
            # Or the next to come, while a child still has the lock, would be told that this process uses it.
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def forget_socket(self, socket: Path) -> None:
        """Remove the directory of the socket where it lies outside, once nothing is in it."""
        if socket.parent != self.path:
            with contextlib.suppress(OSError):
                socket.rmdir()

    def socket_directory(self, account: accounts.Account) -> Path:
        """The directory of the socket, made if it is not there: the account's, 0700.

        Nobody but the account and root gets in, which is why whoever connects is trusted.
        """
        usual = self._usual_socket_directory()
        try:
            return private(usual, account)
        except PermissionError:
            if usual.parent == self.path:
                raise
            return private(Path(tempfile.mkdtemp(prefix="jobledger-", dir=SHORT_DIRECTORY)), account)

    def live_socket_directory(self) -> Path | None:
        """The directory of the socket of a Postgres that somebody else runs here; None if none is found.

        Where another account could have made the directory, it counts only if it is the cluster's owner's.
        """
        usual = self._usual_socket_directory()
        if not (usual / SOCKET_NAME).exists() or usual.stat().st_uid != self.cluster.stat().st_uid:
            return None
        return usual

    def _usual_socket_directory(self) -> Path:
        inside = self.path / "socket"
        if len(os.fsencode(inside / SOCKET_NAME)) <= SOCKET_PATH_BYTES:
            return inside
        # The same name each time, so that killed services leave one directory behind and not many.
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return SHORT_DIRECTORY / f"jobledger-{digest}"

    def _wait_for(self, lock: int) -> Iterator[float]:
        deadline = time.monotonic() + ORPHAN_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            if _runs(holder):
                raise errors.EmbeddedPostgresError(
                    f"the data directory {self.path} is in use by process {holder}; stop that, or use "
                    "another --data-dir"
                )
            if time.monotonic() > deadline:
                raise errors.EmbeddedPostgresError(
                    f"the data directory {self.path} is in use by the Postgres of a gone service, after "
                    f"{ORPHAN_SECONDS:.0f} s; its pid is the first line of {self.cluster / 'postmaster.pid'}"
                )
            yield POLL_SECONDS


def private(directory: Path, account: accounts.Account) -> Path:
    """A directory that only the account (and root) may enter, made if it is not there.

    Raises:
        PermissionError: it is there, and not so.
    """
    mine = accounts.Account(uid=os.geteuid(), gid=os.getegid())
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid not in {mine.uid, account.uid}
        or found.st_mode & 0o077
    ):
        raise PermissionError(f"{directory} is not private to uid {account.uid}")
    if found.st_uid != account.uid:
        os.chown(directory, account.uid, account.gid, follow_symlinks=False)
    return directory


def appending(log: Path) -> IO[bytes]:
    """A log opened at its end, for this user's eyes alone: Postgres quotes data in its messages."""
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


def _runs(pid: str) -> bool:
    """Whether such a process lives; a zombie, which its parent has not looked after yet, does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text() if pid.isdecimal() else ""
    except OSError:
        return False
    # "pid (name) state ...": the name may hold anything, so the last bracket counts.
    return status.rpartition(")")[2].split()[:1] not in [[], ["Z"], ["X"]]
