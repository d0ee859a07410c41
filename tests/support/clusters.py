"""Postgres servers of a test's own, each on its port: to be restarted, filled up, copied and promoted."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobledger.embedded import accounts, programs

START_SECONDS = 30.0
"""How long a server may take to accept connections, recovery included."""


@dataclass(slots=True, kw_only=True)
class Cluster:
    """One data directory, and the server on it while it runs."""

    data: Path
    programs: Path
    account: accounts.Account
    port: int
    settings: dict[str, str] = field(default_factory=dict[str, str])
    _process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """How to connect; the same after a restart."""
        return f"postgresql://jobledger@127.0.0.1:{self.port}/jobledger"

    @property
    def log(self) -> Path:
        """Where it says what it does."""
        return self.data.with_name(f"{self.data.name}.log")

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        given = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            **self.settings,
        }
        options = [part for name, value in given.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = self._popen("postgres", "-D", str(self.data), *options, output=log.fileno())
        deadline = time.monotonic() + START_SECONDS
        while not self._ready:
            assert self.running, self.log.read_text()[-2000:]
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.02)

    @property
    def _ready(self) -> bool:
        """What the pid file says, as to pg_ctl; the file of a crashed server names another pid."""
        assert self._process is not None
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self._process.pid)] and lines[7:] == ["ready   "]

    @property
    def running(self) -> bool:
        """Whether its main process is alive."""
        return self._process is not None and self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT in order, SIGQUIT as if it crashed."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None

    def standby(self) -> Cluster:
        """A copy that follows this one; not started yet."""
        copy = Cluster(
            data=self.data.with_name(f"{self.data.name}-standby"),
            programs=self.programs,
            account=self.account,
            port=free_port(),
            settings=self.settings,
        )
        of_this = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "jobledger")
        self.run("pg_basebackup", *of_this, "-D", str(copy.data), "-R", "-X", "stream", "-c", "fast")
        return copy

    def run(self, program: str, *arguments: str) -> None:
        """Run one of Postgres' programs to its end."""
        assert self._popen(program, *arguments, output=subprocess.DEVNULL).wait() == 0, program

    def _popen(self, program: str, *arguments: str, output: int) -> subprocess.Popen[bytes]:
        # Not Popen's `user`: it forks, and a child forked beside gRPC's threads may crash before it execs.
        return accounts.spawn(
            [self.programs / program, *arguments],
            account=self.account,
            output=output,
            death_signal=signal.SIGQUIT,
        )


@contextlib.contextmanager
def made(
    *,
    binaries: str | None = None,
    settings: Mapping[str, str] | None = None,
    within: Path | None = None,
) -> Generator[Cluster]:
    """A server with an empty database; stopped and gone afterwards, and its standbys' data with it."""
    account = accounts.choose(Path("/nonexistent"))
    choice = os.environ.get("JOBLEDGER_TEST_POSTGRES", "") if binaries is None else binaries
    found = programs.find(choice, account=account, major=None)
    place = Path(tempfile.mkdtemp(prefix="jobledger-cluster-", dir=within))
    os.chown(place, account.uid, account.gid)
    cluster = Cluster(
        data=place / "data",
        programs=found.directory,
        account=account,
        port=free_port(),
        settings=dict(settings or {}),
    )
    try:
        subprocess.run(["cp", "-a", _empty(found.directory, account), cluster.data], check=True)
        cluster.start()
        yield cluster
    finally:
        cluster.stop(signal.SIGQUIT)
        shutil.rmtree(place, ignore_errors=True)


@functools.cache
def _empty(directory: Path, account: accounts.Account) -> Path:
    """A data directory with an empty database, to be copied: initdb takes as long as ten copies."""
    place = Path(tempfile.mkdtemp(prefix="jobledger-cluster-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    os.chown(place, account.uid, account.gid)
    cluster = Cluster(data=place / "data", programs=directory, account=account, port=free_port())
    trusting = ("-U", "jobledger", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    cluster.run("initdb", "-D", str(cluster.data), *trusting)
    try:
        cluster.start()
        where = ("-h", "127.0.0.1", "-p", str(cluster.port), "-U", "jobledger")
        cluster.run("createdb", *where, "jobledger")
    finally:
        cluster.stop()
    return cluster.data


@contextlib.contextmanager
def small_disk(size_mib: int) -> Generator[Path]:
    """A file system of that size, in memory; mounting it takes root."""
    place = Path(tempfile.mkdtemp(prefix="jobledger-disk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0755", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def fill(disk: Path) -> Path:
    """Write a file that takes all that is left; the disk is not full any more when it is removed."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
    return filler


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]
