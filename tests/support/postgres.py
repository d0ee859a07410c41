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
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from jobledger import embedded
from jobledger.store import schema

TEMPLATE = "ledger_template"
"""Migrated once; each test's database is a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postgres:
    """A running server."""

    server: embedded.Server

    def dsn(self, name: str) -> str:
        """How to connect to one of its databases."""
        return self.server.dsn.replace("@/jobledger?", f"@/{name}?")

    @asynccontextmanager
    async def database(self, *, template: str = TEMPLATE, options: str = "") -> AsyncGenerator[str]:
        """A database of one's own, as a DSN; dropped afterwards, whoever is still connected."""
        name = f"test_{secrets.token_hex(6)}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}")
        try:
            yield self.dsn(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

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
            postgres = Postgres(server=server)
            in_own_loop(_make_template(postgres))
            yield postgres
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
