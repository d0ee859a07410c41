"""Who Postgres runs as, and how a child becomes that.

Postgres refuses to run as root. Root therefore hands it to an ordinary account, which may reach neither the
data directory nor the binaries when they lie under /root (0700). Directories are opened before privileges
are dropped and named ``/proc/self/fd/N`` to the child: such a path leads straight to the directory, whatever
lies above it.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobledger import errors

ACCOUNTS = ("jobledger", "postgres", "nobody")
"""Accounts that root hands Postgres to, the first that exists: one made for it, else one made for Postgres.
initdb wants a name in the password file, so that a made-up uid will not do."""

# Runs between fork and Postgres, in an interpreter of its own: Popen's preexec_fn may deadlock when the
# process has threads. The death signal is cleared by setuid, so it comes after; a parent that died before
# it was asked for is noticed by its pid. A shell script's background jobs ignore SIGINT, and a child
# inherits that.
_SHIM = """
import ctypes, os, signal, sys
parent, death_signal, uid, gid = map(int, sys.argv[1:5])
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
if os.geteuid() != uid:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
os.umask(0o077)
if libc.prctl(1, death_signal, 0, 0, 0) != 0:
    sys.exit("prctl(PR_SET_PDEATHSIG) failed: " + os.strerror(ctypes.get_errno()))
if os.getppid() != parent:
    sys.exit("the parent is gone")
os.execv(sys.argv[5], sys.argv[5:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An ordinary user of this machine."""

    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """Whether it is not the one that this process runs as."""
        return self.uid != os.geteuid()


def choose(cluster: Path) -> Account:
    """The account for the cluster in that directory, which may not exist yet: its owner, once it has one.

    Raises:
        errors.EmbeddedPostgresError: the cluster is somebody else's, or root finds no account to hand it to.
    """
    mine = os.geteuid()
    owner = cluster.stat() if cluster.exists() else None
    if mine != 0:
        if owner is not None and owner.st_uid != mine:
            raise errors.EmbeddedPostgresError(
                f"{cluster} belongs to uid {owner.st_uid}, this process runs as uid {mine}; start it as that "
                "user or as root, or use another --data-dir"
            )
        return Account(uid=mine, gid=os.getegid())
    if owner is not None and owner.st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise errors.EmbeddedPostgresError(
        f"Postgres does not run as root, and none of the accounts {', '.join(ACCOUNTS)} exists; "
        "make one with useradd --system jobledger, or run as an ordinary user"
    )


def spawn(
    command: Sequence[str | os.PathLike[str]],
    *,
    account: Account,
    output: IO[bytes] | int,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    keep_fds: Sequence[int] = (),
    environment: dict[str, str] | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a command as the account; the kernel sends it ``death_signal`` when this *thread* ends.

    Call it from the main thread. The child has a session of its own, so that Ctrl-C in a terminal reaches
    this process alone, which then stops it in order; and no environment that could lead it astray (PGDATA,
    PGOPTIONS, LANG).
    """
    shim = [sys.executable, "-I", "-S", "-c", _SHIM]
    arguments = [str(number) for number in (os.getpid(), int(death_signal), account.uid, account.gid)]
    return subprocess.Popen(  # noqa: S603 — the binaries that were chosen, no shell
        [*shim, *arguments, *(os.fspath(part) for part in command)],
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **(environment or {})},
        pass_fds=keep_fds,
        start_new_session=True,
    )
