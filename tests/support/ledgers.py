"""The ledger without its edges: an appender, and what readers share, on a test's database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from jobledger.ledger import (
    admission,
    appender,
    batch,
    pagecache,
    snapshot,
    start,
    subscription,
    tail,
    window,
)
from jobledger.model import event, selection
from jobledger.store import engine
from tests.support import events

EVENT_LIMIT_BYTES = 4_194_304


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One process's ledger."""

    appender: appender.Appender
    tail: tail.Tail
    window: window.Window
    pages: pagecache.PageCache
    pool: engine.ReadPool
    starts: start.Starts

    async def append(self, *submissions: event.Submission) -> list[batch.Outcome]:
        """Record events as one request."""
        return await self.appender.append(submissions, events.PUBLISHER)

    async def receipts(self, *submissions: event.Submission) -> list[event.Receipt]:
        """Record events that must not be refused."""
        outcomes = await self.append(*submissions)
        receipts = [each for each in outcomes if isinstance(each, event.Receipt)]
        assert len(receipts) == len(outcomes), outcomes
        return receipts

    async def read(self, count: int, **request: object) -> Sequence[int]:
        """The positions of the next events of a new subscription, snapshot included."""
        found = await self.starts.find(selection.StreamRequest(**request))  # pyright: ignore[reportArgumentType]
        return await self.follow(count, found)

    async def follow(self, count: int, found: subscription.Start) -> Sequence[int]:
        """The positions of the next events from a start that was found."""
        reader = subscription.Reader(tail=self.tail, window=self.window, pages=self.pages)
        positions: list[int] = []
        async with contextlib.aclosing(subscription.follow(reader, found, quiet_seconds=5)) as steps:
            while len(positions) < count:
                match await anext(steps):
                    case subscription.Events(page, first):
                        positions += [each.position for each in page.entries[first:]]
                    case subscription.SnapshotEvents(page):
                        positions += [each.position for each in page.entries]
                    case _:
                        continue
        return positions


@contextlib.asynccontextmanager
async def running(
    dsn: str,
    *,
    poll_seconds: float = 1.0,
    window_bytes: int = 64 << 20,
    page_cache_bytes: int = 64 << 20,
    queue_events: int = 20_000,
) -> AsyncGenerator[Ledger]:
    """A ledger for as long as the block lasts."""
    pool = engine.ReadPool(dsn, size=8)
    await pool.open()
    newest = window.Window(limit_bytes=window_bytes)
    following = tail.Tail(pool, newest, poll_seconds=poll_seconds)
    await following.start()
    pages = pagecache.PageCache(pool, limit_bytes=page_cache_bytes)
    appending = appender.Appender(
        dsn=dsn,
        pool=pool,
        admission=admission.Admission(zone=ZoneInfo("Asia/Shanghai"), detail_limit_bytes=4 << 20),
        rules=batch.Rules(default_region="default", event_limit_bytes=EVENT_LIMIT_BYTES),
        queue_events=queue_events,
        queue_bytes=64 << 20,
        on_commit=following.committed,
    )
    tasks = [asyncio.create_task(appending.run()), asyncio.create_task(following.run())]
    try:
        yield Ledger(
            appender=appending,
            tail=following,
            window=newest,
            pages=pages,
            pool=pool,
            starts=start.Starts(pool, snapshot.Snapshots(pool, pages)),
        )
    finally:
        appending.close()
        await asyncio.wait([tasks[0]], timeout=5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await pool.close()
