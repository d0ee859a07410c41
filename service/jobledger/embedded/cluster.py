"""Making a cluster: initdb, who may connect, the database; all of it or nothing.

::

    postgres.new ──initdb, pg_hba.conf, CREATE DATABASE──▶ renamed to postgres

A start that was cut off leaves a postgres.new, which the next one throws away.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobledger import errors
from jobledger.embedded import accounts, directory, programs

NAME = "jobledger"
"""The database, and the superuser that owns it."""

# No TCP line, so that nobody gets in by network even where somebody sets listen_addresses. What guards the
# socket is its directory: peer authentication would add nothing, and fails for a uid without a name.
_HBA = f"""\
local all all trust
local replication {NAME} trust
"""

LOG_TAIL_BYTES = 2000
"""How much of what a failed program said is shown."""


def major(data: directory.DataDirectory) -> int | None:
    """The major version that made the cluster; None if there is none yet."""
    try:
        return int((data.cluster / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


@contextmanager
def opened(path: Path, account: accounts.Account) -> Generator[tuple[str, tuple[int, ...]]]:
    """How a child names a directory, and the descriptors that it must inherit for that."""
    if not account.is_other:
        yield str(path), ()
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}", (descriptor,)
    finally:
        os.close(descriptor)


def make(
    data: directory.DataDirectory, *, account: accounts.Account, found: programs.Programs
) -> Iterator[float]:
    """Make the cluster; yields seconds to wait while that goes on, about one in all.

    Raises:
        errors.EmbeddedPostgresError: a program failed; shows what it said.
    """
    new = data.path / "postgres.new"
    if new.exists():
        shutil.rmtree(new)
    directory.private(new, account)
    with opened(new, account) as (name, descriptors):
        keep = (data.lock, *descriptors)
        initdb = [found.directory / "initdb", "-D", name, "-U", NAME, "-A", "trust", "--no-instructions"]
        # LANG=C would make SQL_ASCII, which takes any bytes for text.
        yield from _run([*initdb, "-E", "UTF8", "--locale=C"], data=data, account=account, keep_fds=keep)
        # Written in place: initdb made it the account's.
        hba = os.open(new / "pg_hba.conf", os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with os.fdopen(hba, "w") as file:
            file.write(_HBA)
            file.flush()
            os.fsync(file.fileno())
        single = [found.directory / "postgres", "--single", "-D", name, "-c", "exit_on_error=on", "template1"]
        create = f"CREATE DATABASE {NAME}\n"
        yield from _run(single, data=data, account=account, keep_fds=keep, stdin=create.encode())
    new.rename(data.cluster)
    parent = os.open(data.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def said_since(log: Path, offset: int) -> str:
    """The end of what was logged after an offset."""
    with log.open("rb") as file:
        file.seek(max(offset, log.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def _run(
    command: Sequence[str | os.PathLike[str]],
    *,
    data: directory.DataDirectory,
    account: accounts.Account,
    keep_fds: tuple[int, ...],
    stdin: bytes = b"",
) -> Iterator[float]:
    with tempfile.TemporaryFile() as given, directory.appending(data.log) as log:
        given.write(stdin)
        given.seek(0)
        offset = log.tell()
        process = accounts.spawn(command, account=account, output=log, stdin=given, keep_fds=keep_fds)
        try:
            while process.poll() is None:
                yield directory.POLL_SECONDS
        finally:
            _end(process)
    if process.returncode != 0:
        raise errors.EmbeddedPostgresError(
            f"{Path(command[0]).name} failed with {process.returncode}: {said_since(data.log, offset)}"
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # The whole session: initdb has a Postgres of its own at work.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
