"""What every test can ask for."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.support import postgres as support

# A shell makes what it starts in the background deaf to Ctrl-C, and whatever that starts in turn: a suite
# that runs there would wait for ever for the programs that it interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave out of each test's garbage collection what stays anyway: modules, and the tests themselves."""
    spare_the_collector()


def spare_the_collector() -> None:
    """What is there by now is not looked at again: fifty thousand objects take as long as a small test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[support.Postgres]:
    """The server of this test run."""
    with support.started() as server:
        # Migrating has imported as much as all the tests.
        spare_the_collector()
        yield server


@pytest.fixture
async def database(postgres: support.Postgres) -> AsyncIterator[str]:
    """The DSN of a fresh, migrated database."""
    async with postgres.database() as dsn:
        yield dsn


@pytest.fixture
async def connection(database: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection to the test's database."""
    connected = await asyncpg.connect(database)
    yield connected
    await connected.close()


@pytest.fixture(autouse=True)
async def unhandled() -> AsyncIterator[list[dict[str, object]]]:
    """What tasks and callbacks raised and nobody handled; fails the test unless the test empties it."""
    seen: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
    yield seen
    # A failed task says so when it is collected.
    gc.collect()
    assert not seen, f"unhandled in the event loop: {seen}"
