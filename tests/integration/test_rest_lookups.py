"""Look-ups that callers share: nobody who asks is left waiting."""

from __future__ import annotations

import asyncio

import pytest

from jobledger.store import jobs
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

        done, _ = await asyncio.wait(late, timeout=5)

        assert [each.result() for each in done] == [None]
