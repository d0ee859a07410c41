"""The tail: follows the log's head for the whole process and wakes whoever waits for it.

It takes what this process committed if that follows what it has, else it reads: when another process
notified, and at the latest after the poll interval, on which alone correctness rests. Every row must follow
the last one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from uuid import UUID

from jobledger import errors
from jobledger.ledger import batch, crowd, page, pagecache, window
from jobledger.model import event
from jobledger.store import engine, eventlog

_log = logging.getLogger(__name__)


class Tail:
    """The head of the log as this process has read it, and the newest events."""

    def __init__(self, pool: engine.ReadPool, newest: window.Window, *, poll_seconds: float) -> None:
        self._pool = pool
        self._window = newest
        self._poll_seconds = poll_seconds
        self._woken = asyncio.Event()
        self._reading = False
        self._waiting = crowd.Crowd()
        self._followed_until = time.monotonic()
        self.head = event.Position(0)
        """The last position that was read; everything up to it can be delivered."""

        self._head_uuid: UUID | None = None

        self.loss: errors.DataLoss | None = None
        """Set while a position is known to be missing from the log; nothing behind it is delivered."""

        self.available = False
        """Whether the last look at the log succeeded."""

    async def start(self) -> None:
        """Find the head; what is below it is read when somebody asks for it.

        Raises:
            errors.DatabaseUnavailable: Postgres is away.
        """
        async with self._pool.connection() as connection:
            self.head = await eventlog.last(connection)
            self._head_uuid = await eventlog.uuid_at(connection, self.head)
        self.available = True
        self._followed_until = time.monotonic()

    async def run(self) -> None:
        """Follow for ever, over every outage of Postgres; ends only by cancellation."""
        while True:
            self._woken.clear()
            self._reading = True
            try:
                await self._advance()
            except errors.Unavailable as error:
                if self.available:
                    _log.warning("the log cannot be followed for now: %s", error)
                self.available = False
            except errors.DataLoss as error:
                self.report(error)
                self._waiting.wake()
            else:
                if not self.available:
                    _log.info("following the log again, at position %d", self.head)
                self.available = True
                self._followed_until = time.monotonic()
            finally:
                self._reading = False
            try:
                async with asyncio.timeout(self._poll_seconds):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def report(self, loss: errors.DataLoss) -> None:
        """A position is missing: say so, loudly, until it is there again."""
        if self.loss is None or self.loss.position != loss.position:
            _log.critical("%s", loss)
        self.loss = loss

    def require_one_history(self) -> None:
        """What is delivered must be of the log that is there.

        Raises:
            errors.LogReplaced: Another one was put in its place; only a restart starts anew.
        """
        if isinstance(self.loss, errors.LogReplaced):
            raise self.loss

    async def _advance(self) -> None:
        """Read what came after the head."""
        self.require_one_history()
        if self.loss is not None:
            await self._look_for(self.loss.position)
        while True:
            async with self._pool.connection() as connection:
                await self._check_head(connection)
                rows = await eventlog.following(
                    connection, self.head, rows=pagecache.PAGE_EVENTS, size_bytes=pagecache.PAGE_BYTES
                )
            if not rows:
                return
            pagecache.check_contiguous(rows, after=self.head, last=rows[-1].position)
            self._extend(rows)

    def _extend(self, rows: Sequence[eventlog.Stored]) -> None:
        self._window.extend(page.Page.of(rows))
        self.head = event.Position(rows[-1].position)
        self._head_uuid = rows[-1].uuid
        self._waiting.wake()

    async def _check_head(self, connection: engine.Connection) -> None:
        """A database that was restored under us holds less, or something else, where we have been."""
        if self._head_uuid is None or await eventlog.uuid_at(connection, self.head) == self._head_uuid:
            return
        last = await eventlog.last(connection)
        # A row that is missing with others behind it was removed by hand: the log's readers tell.
        if last < self.head or await eventlog.uuid_at(connection, self.head) is not None:
            raise errors.LogReplaced(self.head, last)

    async def _look_for(self, position: int) -> None:
        async with self._pool.connection() as connection:
            if await eventlog.uuid_at(connection, position) is not None:
                _log.warning("position %d, which was missing, is there again", position)
                self.loss = None

    def committed(self, written: batch.Written) -> None:
        """Take what an append of this process added, without reading it again; look if it does not follow."""
        follows = (written.after, written.after_uuid) == (self.head, self._head_uuid)
        if self._reading or not self.available or self.loss is not None or not follows:
            self.wake(written.head)
        elif written.rows:
            self._extend([eventlog.stored(row) for row in written.rows])
            self._followed_until = time.monotonic()

    def wake(self, head: int) -> None:
        """Look now: somebody committed up to this position; 0 if it is not known."""
        if head > self.head or not head:
            self._woken.set()

    @property
    def behind_seconds(self) -> float:
        """How long ago the log was last followed to its end."""
        return time.monotonic() - self._followed_until

    async def moved(self, after: int, *, timeout_seconds: float) -> bool:
        """Wait until the head is beyond a position; False if it still is not when the time is over.

        Raises:
            errors.DataLoss: The position after it is missing, or another log is there.
        """
        self.require_one_history()
        if self.head <= after:
            await self._waiting.wait(timeout_seconds=timeout_seconds)
            self.require_one_history()
        if self.head > after:
            return True
        if self.loss is not None and self.loss.position == after + 1:
            raise self.loss
        return False
