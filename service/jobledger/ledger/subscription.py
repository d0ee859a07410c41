"""A subscription: a cursor and one loop. No states, no seam.

::

    snapshot pages, if asked for ─▶ ┌──────────────────────────────────────────────┐
                                    │ the window has what follows?  take it        │
                                    │ it is older?                  take its page  │
                                    │ at the head?                  wait, bounded  │ ─▶ again
                                    └──────────────────────────────────────────────┘

The cursor is the subscriber's only state: whatever it does, it costs no more memory than that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from jobledger import errors
from jobledger.ledger import page, pagecache, snapshot, tail, turns, window
from jobledger.model import event


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a stream starts: a cursor, and what comes before it."""

    after: event.Position
    """Everything after it is delivered; the head of the moment for a snapshot."""

    uuid: UUID | None
    """The event at that position; None at the beginning."""

    snapshot: snapshot.Shared | None
    """The signals that make the state at ``after``, delivered first."""

    head: event.Position
    """The log's end when the start was found."""

    epoch: UUID


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a page from an index on, to be narrowed by the filter."""

    page: page.Page
    start: int


@dataclass(frozen=True, slots=True)
class SnapshotEvents:
    """A whole page of the snapshot; the filter was applied already."""

    page: page.Page
    snapshot: snapshot.Shared


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All up to here was delivered."""

    position: event.Position


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing passed the filter for a while; all up to here was looked at."""

    position: event.Position
    uuid: UUID | None
    head: event.Position


Step: TypeAlias = Events | SnapshotEvents | CaughtUp | Quiet


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What all subscriptions of a process share."""

    tail: tail.Tail
    window: window.Window
    pages: pagecache.PageCache
    sending: turns.Turns = field(default_factory=turns.Turns)
    """Of those who have something to send, whatever they send it by."""

    async def page_after(self, position: int) -> page.Page:
        """The page that holds the event after a position below the head, whatever Postgres is up to.

        Raises:
            errors.DataLoss: An event is missing.
        """
        while True:
            found = self.window.find(position)
            if found is not None:
                return found
            try:
                return await self.pages.after(position, head=self.tail.head)
            except errors.DatabaseUnavailable:
                await asyncio.sleep(snapshot.OUTAGE_PAUSE_SECONDS)


async def follow(reader: Reader, start: Start, *, quiet_seconds: float) -> AsyncGenerator[Step]:
    """Everything after the start, in order, for ever; close it with ``aclosing``.

    Raises:
        errors.DataLoss: A position is missing from the log; the tail was told, so that readiness shows it.
    """
    try:
        async with contextlib.aclosing(_follow(reader, start, quiet_seconds=quiet_seconds)) as steps:
            async for step in steps:
                yield step
    except errors.DataLoss as loss:
        reader.tail.report(loss)
        raise


async def _follow(reader: Reader, start: Start, *, quiet_seconds: float) -> AsyncGenerator[Step]:
    if start.snapshot is not None:
        async with contextlib.aclosing(start.snapshot.pages()) as pages:
            async for each in pages:
                yield SnapshotEvents(each, start.snapshot)
    position, uuid = start.after, start.uuid
    caught_up = False
    while True:
        reader.tail.require_one_history()
        if position < reader.tail.head:
            found = await reader.page_after(position)
            yield Events(found, found.index_after(position))
            position, uuid = found.last, found.entries[-1].uuid
            # A stream whose filter lets nothing through sends nothing and would not let others in.
            await asyncio.sleep(0)
            continue
        if not caught_up:
            caught_up = True
            yield CaughtUp(position)
        if not await reader.tail.moved(position, timeout_seconds=quiet_seconds):
            yield Quiet(position, uuid, reader.tail.head)
