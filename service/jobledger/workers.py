"""Several processes that serve as one, for machines with more than one core: ``jobledger serve --workers N``.

::

    parent ─┬─ Postgres, where it is the private one
            ├─ both ports, reserved
            ├─ worker 1 ─┐
            └─ worker N ─┴─ each a whole service of its own, listening on the same ports

    started ──▶ ready ──dies──▶ a pause, longer each time that it was not ready for long ──▶ started
                                └─ too often in a row ──▶ the parent says so and ends all

Workers know nothing of each other: they meet in Postgres, as replicas on different machines do, so that each
is as correct as one alone. The kernel ends a child with the *thread* that started it: the parent runs on the
main thread's loop and starts everything there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from asyncio import subprocess
from collections.abc import Callable, Mapping
from typing import Final

from jobledger import app, database, errors, logs, ports, settings
from jobledger.store import engine

TRIES: Final = 5
"""How often in a row a worker may end soon after its start, before the parent gives up."""

STEADY_SECONDS: Final = 10.0
"""A worker that was ready for so long had started well: what ends it then is another matter."""

PAUSE_SECONDS: Final = 0.1
"""Before a worker is started again; doubled each time in a row."""

_READY: Final = b"ready\n"
"""What a worker writes to its stdout once it listens."""

_PR_SET_PDEATHSIG: Final = 1
"""<linux/prctl.h>"""

_log = logging.getLogger(__name__)


async def serve(given: settings.Settings, *, migrate: bool, on_ready: Callable[[app.Ready], None]) -> None:
    """Run as many workers as the settings say until SIGTERM or SIGINT, then end them within the grace time.

    ``on_ready`` is called once, when all of them listen.

    Raises:
        errors.SetupError: The service cannot start as it is set up, or a worker does not stay up.
        errors.DatabaseUnavailable: The given Postgres does not answer, for as long as is waited for it.
    """
    stop = app.begin(given)
    async with database.provided(given) as used:
        if not await database.prepared(used, given, migrate=migrate, stop=stop):
            return
        async with contextlib.AsyncExitStack() as held:
            with app.told_of_port(given.host, given.grpc_port, "JOBLEDGER_GRPC_PORT"):
                grpc = await held.enter_async_context(ports.reserved(given.host, given.grpc_port))
            with app.told_of_port(given.host, given.http_port, "JOBLEDGER_HTTP_PORT"):
                http = await held.enter_async_context(ports.reserved(given.host, given.http_port))
            environment = _environment(given, used, grpc=grpc, http=http)
            ready = app.Ready(
                grpc=f"{given.host}:{grpc}",
                http=f"{given.host}:{http}",
                postgres=engine.without_password(used.people),
            )
            await _kept(given, environment, stop, on_ready=lambda: on_ready(ready))


async def _kept(
    given: settings.Settings,
    environment: Mapping[str, str],
    stop: asyncio.Event,
    *,
    on_ready: Callable[[], None],
) -> None:
    """Keep all workers until told to stop."""
    workers = [
        _Worker(number, environment, grace_seconds=given.grace_seconds)
        for number in range(1, given.workers + 1)
    ]

    async def announce() -> None:
        for worker in workers:
            await worker.ready.wait()
        on_ready()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (*(worker.keep() for worker in workers), announce())]
            await stop.wait()
            _log.info("shutting down")
            for task in tasks:
                task.cancel()
    except ExceptionGroup as failed:
        # One of them says it all: the others were ended for it.
        raise failed.exceptions[0] from None


def _environment(
    given: settings.Settings, used: database.Database, *, grpc: int, http: int
) -> Mapping[str, str]:
    """What a worker finds its settings in: the parent's own environment, and what only the parent knows."""
    environment = {
        **os.environ,
        "JOBLEDGER_HOST": given.host,
        "JOBLEDGER_GRPC_PORT": str(grpc),
        "JOBLEDGER_HTTP_PORT": str(http),
        # A worker that is started during an outage waits it out, as those that run do.
        "JOBLEDGER_DATABASE_WAIT_SECONDS": "inf",
    }
    if used.private:
        environment |= {"JOBLEDGER_DATABASE_URL": used.dsn, "JOBLEDGER_DATABASE_PASSWORD_FILE": ""}
    return environment


class _Worker:
    """One place among the workers, and the process that holds it."""

    def __init__(self, number: int, environment: Mapping[str, str], *, grace_seconds: float) -> None:
        self._number = number
        self._environment = environment
        self._grace_seconds = grace_seconds
        self.ready = asyncio.Event()
        """Set once it listened for the first time."""

    async def keep(self) -> None:
        """Run a process, and another whenever it ends; cancelled, end it within the grace time.

        Raises:
            errors.WorkerFailed: It ended soon after its start too often in a row.
        """
        failures = 0
        while True:
            lasted, status = await self._run()
            failures = 1 if lasted >= STEADY_SECONDS else failures + 1
            if failures >= TRIES:
                raise errors.WorkerFailed(self._number, tries=failures, status=status)
            pause = PAUSE_SECONDS * 2 ** (failures - 1)
            _log.error("worker %d ended with %d; another is started in %g s", self._number, status, pause)
            await asyncio.sleep(pause)

    async def _run(self) -> tuple[float, int]:
        """Run a process to its end; for how many seconds it was ready, and its exit status."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, str(self._number), str(os.getpid())),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # So that Ctrl-C in a terminal reaches the parent alone, which then ends the workers in order.
            start_new_session=True,
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            came_up = await process.stdout.readline() == _READY
            since = time.monotonic()
            if came_up:
                _log.info("worker %d is ready, process %d", self._number, process.pid)
                self.ready.set()
            status = await process.wait()
            return (time.monotonic() - since if came_up else 0.0), status
        finally:
            await self._end(process)

    async def _end(self, process: subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(self._grace_seconds):
                await process.wait()
        except TimeoutError:
            _log.warning("worker %d did not end in time and is killed", self._number)
            process.kill()
            await process.wait()


def main(number: int, parent: int) -> None:
    """Be a worker: a service on ports that it shares, which ends when its parent does."""
    logs.process(worker=number)
    _end_with(parent)
    try:
        given = settings.load()
        asyncio.run(app.serve(given, migrate=False, on_ready=_tell, share_ports=True))
    except errors.LedgerError as error:
        _log.error("%s", error)
        sys.exit(1)


def _tell(_ready: app.Ready) -> None:
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()


def _end_with(parent: int) -> None:
    """Have the kernel send SIGTERM when the parent dies, even by kill -9: streams are still told."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
