"""Pages of older events: read once, whoever asks, and kept while there is room.

A page is an aligned block of a power of two, so that readers at different places share it. It enters the
cache only when the log has grown past its end: before that it would change.

::

    position  1 ────────────── 1024 │ 1025 ──── 1536 │ 1537 … 1600 │ 1601
    head 1601         1,024         │      512       │     64      │  1
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import Final, TypeAlias

from jobledger import errors
from jobledger.ledger import page
from jobledger.store import engine, eventlog

PAGE_EVENTS: Final = 1_024
"""The largest page: keyset pages of a thousand rows read fastest (measured; cursors and COPY do not)."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""The most that a page may weigh, unless it is a single event."""

REMEMBERED_SPLITS: Final = 10_000
"""Blocks known to be too large, so that their size is not asked for again."""

Key: TypeAlias = Hashable


class PageCache:
    """Least recently used pages, bounded in bytes; concurrent readers of one page share one read."""

    def __init__(self, pool: engine.ReadPool, *, limit_bytes: int) -> None:
        self._pool = pool
        self._limit_bytes = limit_bytes
        self._pages: OrderedDict[Key, page.Page] = OrderedDict()
        self._reading: dict[Key, asyncio.Task[page.Page | None]] = {}
        self._too_large: set[Key] = set()
        self.size_bytes = 0

    async def after(self, position: int, *, head: int) -> page.Page:
        """The page that holds the event after a position, which must be below the head.

        Raises:
            errors.DatabaseUnavailable: Postgres is away.
            errors.DataLoss: An event of the page is missing.
        """
        events = PAGE_EVENTS
        while True:
            first = position // events * events + 1
            if first + events - 1 <= head and (first, events) not in self._too_large:
                found = await self.get((first, events), partial(self._block, position + 1, first, events))
                if found is not None and found.first <= position + 1:
                    return found
                if found is not None:
                    raise errors.DataLoss(position + 1)
            events //= 2

    async def get(
        self, key: Key, read: Callable[[], Coroutine[None, None, page.Page | None]]
    ) -> page.Page | None:
        """The page that is kept under a key, else what ``read`` gives; None is not kept.

        Safe to cancel: the read goes on for the others that wait for it.
        """
        kept = self._pages.get(key)
        if kept is not None:
            self._pages.move_to_end(key)
            return kept
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(key, read))
            reading.add_done_callback(retrieved)
        return await asyncio.shield(reading)

    async def _read(
        self, key: Key, read: Callable[[], Coroutine[None, None, page.Page | None]]
    ) -> page.Page | None:
        try:
            found = await read()
        finally:
            del self._reading[key]
        if found is not None:
            self._pages[key] = found
            self.size_bytes += found.size_bytes
            while self.size_bytes > self._limit_bytes and len(self._pages) > 1:
                self.size_bytes -= self._pages.popitem(last=False)[1].size_bytes
        return found

    async def _block(self, wanted: int, first: int, events: int) -> page.Page | None:
        """A whole block; None if it weighs too much for one page."""
        last = first + events - 1
        async with self._pool.connection() as connection:
            if events > 1 and await eventlog.size(connection, first, last) > PAGE_BYTES:
                if len(self._too_large) >= REMEMBERED_SPLITS:
                    self._too_large.clear()
                self._too_large.add((first, events))
                return None
            rows = await eventlog.between(connection, first - 1, last)
        # What was pruned is missing in front; that is no loss as long as nobody wants it.
        check_contiguous(rows, after=min(rows[0].position if rows else first, wanted) - 1, last=last)
        return page.Page.of(rows)


def retrieved(task: asyncio.Task[object]) -> None:
    """Mark an error as seen: whoever waited got it, and if all of them were cancelled nobody needs it."""
    if not task.cancelled():
        task.exception()


def check_contiguous(rows: Sequence[eventlog.Stored], *, after: int, last: int) -> None:
    """Make sure that rows are exactly the events behind one position up to another.

    Raises:
        errors.DataLoss: One is missing.
    """
    expected = after + 1
    for row in rows:
        if row.position != expected:
            raise errors.DataLoss(expected)
        expected += 1
    if expected != last + 1:
        raise errors.DataLoss(expected)
