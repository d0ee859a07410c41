"""Snapshots: the signals that make the state of every live job, as they were recorded.

Only their positions are read at one moment; the events themselves never change, so they are paged from
the log afterwards, without a transaction that stays open. Subscribers that arrive together share both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from jobledger import errors
from jobledger.ledger import page, pagecache
from jobledger.model import event, selection
from jobledger.store import engine, eventlog, jobs
from jobledger.wire import delivery

BATCH_NPUS: Final = 40_000
"""The most devices in one list (ClusterD's own bound)."""

OUTAGE_PAUSE_SECONDS: Final = 0.5
"""How long a stream that needs Postgres waits before it asks again while Postgres is away."""

_DEVICE: Final = b'"device_id"'


class Shared:
    """One snapshot, as all its readers share it."""

    def __init__(self, found: jobs.Snapshot, pool: engine.ReadPool, cache: pagecache.PageCache) -> None:
        self._found = found
        self._pool = pool
        self._cache = cache
        self._key = object()
        self.taken_at_ms = time.time_ns() // 1_000_000
        """When it was taken, for ReportTime: equal on all its batches."""

    @property
    def head(self) -> event.Position:
        """The log's end when it was taken: live events follow after it."""
        return self._found.head

    @property
    def jobs(self) -> int:
        """How many jobs it holds."""
        return self._found.jobs

    async def pages(self) -> AsyncGenerator[page.Page]:
        """Its events in ascending position order, page by page.

        Raises:
            errors.DataLoss: One of them is missing from the log.
        """
        start = 0
        while start < len(self._found.positions):
            found = await self._page(start)
            yield found
            start += len(found)

    async def _page(self, start: int) -> page.Page:
        while True:
            try:
                found = await self._cache.get((self._key, start), partial(self._read, start))
            except errors.DatabaseUnavailable:
                await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            else:
                assert found is not None  # noqa: S101 - _read gives a page or raises
                return found

    async def _read(self, start: int) -> page.Page:
        positions = self._found.positions[start : start + pagecache.PAGE_EVENTS]
        async with self._pool.connection() as connection:
            rows = await eventlog.at(connection, list(positions), size_bytes=pagecache.PAGE_BYTES)
        for expected, row in zip(positions, rows, strict=False):
            if row.position != expected:
                raise errors.DataLoss(expected)
        if not rows:
            raise errors.DataLoss(positions[0])
        return page.Page.of(rows)


class Snapshots:
    """Takes snapshots, and gives out again what somebody reads while the log has not grown since."""

    def __init__(self, pool: engine.ReadPool, cache: pagecache.PageCache) -> None:
        self._pool = pool
        self._cache = cache
        self._in_use: WeakValueDictionary[selection.Filter, Shared] = WeakValueDictionary()

    async def take(self, wanted: selection.Filter) -> Shared:
        """A snapshot of the jobs that pass a filter, as of now.

        Raises:
            errors.DatabaseUnavailable: Postgres is away.
        """
        async with self._pool.connection() as connection:
            known = self._in_use.get(wanted)
            if known is not None and known.head == await eventlog.last(connection):
                return known
            found = await jobs.snapshot(connection, wanted)
        if wanted.operators and event.Operator.ADD not in wanted.operators:
            found = jobs.Snapshot(head=found.head, jobs=0, positions=())
        taken = self._in_use[wanted] = Shared(found, self._pool, self._cache)
        return taken


def lists(shown: page.Page, taken: Shared, *, limit_bytes: int) -> Sequence[page.Chunk]:
    """A page of a snapshot as JobSummarySignalLists under a size, a chunk each; made once for all."""
    if shown.lists is None:
        shown.lists = tuple(_lists(shown, taken, limit_bytes=limit_bytes))
    return shown.lists


def _lists(shown: page.Page, taken: Shared, *, limit_bytes: int) -> Iterator[page.Chunk]:
    report_time_ms, total = taken.taken_at_ms, taken.jobs
    room = limit_bytes - len(delivery.list_of([], report_time_ms=report_time_ms, jobs=total))
    messages: list[bytes] = []
    size = npus = 0
    last = shown.entries[0].uuid
    for index, each in enumerate(shown.entries):
        message = shown.frame(index)[delivery.PREFIX_BYTES :]
        if not message:
            continue
        wrapped = 1 + len(delivery.varint(len(message))) + len(message)
        devices = message.count(_DEVICE)
        if messages and (size + wrapped > room or npus + devices > BATCH_NPUS):
            yield page.Chunk(_list_frame(messages, report_time_ms, total), last)
            messages, size, npus = [], 0, 0
        messages.append(message)
        size += wrapped
        npus += devices
        last = each.uuid
    if messages:
        yield page.Chunk(_list_frame(messages, report_time_ms, total), last)


def _list_frame(messages: list[bytes], report_time_ms: int, total: int) -> bytes:
    return delivery.frame(delivery.list_of(messages, report_time_ms=report_time_ms, jobs=total))
