"""Look-ups that callers share: nobody who asks is left waiting."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

import pytest

from jobledger import errors
from jobledger.store import engine, jobs
from jobledger.web import lookups
from tests.support import ledgers


async def test_caller_that_asks_as_the_last_lane_ends_is_answered(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "LANES", 1)
    async with ledgers.running(database) as ledger:
        shared = lookups.Lookups(ledger.pool, jobs.heads)
        first = asyncio.create_task(shared.find("a"))
        await asyncio.sleep(0)
        late: list[asyncio.Future[object]] = []

        def ask_at_once(_: object) -> None:
            # Runs after the lane has looked for the last time, and before anybody hears that it ended.
            shared.find("b").send(None)
            late.append(shared._waiting[-1][1])  # pyright: ignore[reportArgumentType]

        shared._waiting[0][1].add_done_callback(ask_at_once)
        await first

        done, _ = await asyncio.wait(late, timeout=60)

        assert [each.result() for each in done] == [None]


async def test_lane_keeps_its_connection_for_the_next_who_asks(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "LINGER_SECONDS", 60)
    async with ledgers.running(database) as ledger:
        used = lent(ledger.pool, monkeypatch)
        shared = lookups.Lookups(ledger.pool, jobs.heads)

        assert [await shared.find(job_id) for job_id in ("a", "b")] == [None, None]
        assert len(used) == 1
        used[0].terminate()
        assert await shared.find("c") is None
        assert len(used) == 2


async def test_lane_gives_its_connection_back_when_nobody_asks(database: str) -> None:
    pool = engine.ReadPool(database, size=2)
    await pool.open()
    shared = lookups.Lookups(pool, jobs.heads)
    for job_id in ("a", "b"):
        assert await shared.find(job_id) is None
        async with pool.connection(), pool.connection() as last:
            assert await last.fetchval("select 1") == 1
    await pool.close()


async def test_lane_keeps_no_connection_that_others_wait_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "LINGER_SECONDS", 60)
    pool = engine.ReadPool(database, size=2)
    await pool.open()
    shared = lookups.Lookups(pool, jobs.heads)
    async with pool.connection():
        assert await shared.find("a") is None
        async with pool.connection(patience_seconds=30) as other:
            assert await other.fetchval("select 1") == 1
    await pool.close()


def lent(pool: engine.ReadPool, monkeypatch: pytest.MonkeyPatch) -> list[engine.Connection]:
    """The connections that a pool lends from now on."""
    borrow = pool.connection
    seen: list[engine.Connection] = []

    @contextlib.asynccontextmanager
    async def watched(*, patience_seconds: float) -> AsyncGenerator[engine.Connection]:
        async with borrow(patience_seconds=patience_seconds) as connection:
            seen.append(connection)
            yield connection

    monkeypatch.setattr(pool, "connection", watched)
    return seen


async def test_everybody_hears_at_once_that_no_connection_is_to_be_had(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CALLER_PATIENCE_SECONDS", 0.2)
    tries: list[float] = []
    pool = engine.ReadPool(database, size=1)
    borrow = pool.connection

    def counted(*, patience_seconds: float) -> AbstractAsyncContextManager[engine.Connection]:
        tries.append(patience_seconds)
        return borrow(patience_seconds=patience_seconds)

    await pool.open()
    async with pool.connection():
        monkeypatch.setattr(pool, "connection", counted)
        shared = lookups.Lookups(pool, jobs.heads)
        told = await asyncio.gather(*(shared.find(f"job-{n}") for n in range(1_000)), return_exceptions=True)
    await pool.close()

    assert {type(each) for each in told} == {errors.Overloaded}
    assert len(tries) <= lookups.LANES
