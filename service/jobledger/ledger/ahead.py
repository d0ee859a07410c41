"""Working ahead: the next batch is worked out while the present one is written.

::

    Postgres, with the lock    end? ── write ............. commit │ end? ── write ............. commit
    beside it                            ask for the next          │          ask for the next
    this thread                answers ── requests ── work out     │ answers ── requests ── work out

What is asked beside the lock counts for nothing by itself: who has the lock for the next batch looks at the
log's end first, and if anybody else has been there, works the batch out again. So it is tried only while
nobody else appends (docs/decisions/0012).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from jobledger import errors
from jobledger.ledger import batch, fairqueue
from jobledger.store import appends, engine

BATCH_EVENTS: Final = 512
"""Events a transaction: so few that the next ones are decoded and checked while Postgres writes these. With
all that a thousand callers send at once, each of the two waits for the other."""

BATCH_BYTES: Final = 2 * 1024 * 1024
"""Bytes a transaction, of large rank tables for the same reason; a larger request still goes as one."""

PATIENCE_SECONDS: Final = 0.25
"""How long a batch waits, once the one before it is committed, for what is being asked for it."""

ALONE_BATCHES: Final = 8
"""So many batches that followed each other say that nobody else appends: of two processes, which take turns
in no strict order, a few do, and what was worked out for the next one would be thrown away."""

WORTH_EVENTS: Final = 50
"""So many must wait: to ask for a few beside the batch that is written takes longer than it saves."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Following:
    """What the next transaction is to record."""

    requests: Sequence[fairqueue.Waiting]
    """Whose turn it is; none if nothing waits."""

    batch: batch.Batch | None
    """In which the first of their events are worked out; None if none are."""


class Ahead:
    """Hands an appender its batches, and works on the next one meanwhile."""

    def __init__(self, queue: fairqueue.FairQueue, pool: engine.ReadPool, rules: batch.Rules) -> None:
        self._queue = queue
        self._pool = pool
        self._rules = rules
        self._last: appends.End | None = None
        self._alone = 0
        self._work: _Work | None = None

    @property
    def taken(self) -> Sequence[fairqueue.Waiting]:
        """Requests that are in the queue no longer, and in no batch that was handed out."""
        return self._work.requests if self._work is not None else ()

    def follow(self, current: batch.Batch) -> None:
        """Work on what comes after a batch that is about to be written, if nobody else appends."""
        self._alone = self._alone + 1 if current.start == self._last else 0
        self._last = current.end
        if self._alone >= ALONE_BATCHES and self._work is None:
            following = batch.Batch(self._rules, after=current)
            at_least = max(WORTH_EVENTS, len(current.outcomes) // 2)
            self._work = _Work(following, self._queue, self._pool, at_least=at_least)

    async def take(self) -> Following:
        """What is next; to be asked for when the batch before is written, or is not going to be.

        Safe to cancel: what was taken from the queue is then :attr:`taken` still.
        """
        if self._work is None:
            return Following(_next(self._queue), None)
        if not await self._work.end():
            self._alone = 0  # who does not answer is not asked again at once
        work, self._work = self._work, None
        return Following([*work.requests, *_next(self._queue, besides=work.requests)], work.ready)

    def emptied(self) -> Sequence[fairqueue.Waiting]:
        """What was taken, which then is not here any more; nothing is worked on."""
        taken = self.taken
        if self._work is not None:
            self._work.cancel()
            self._work = None
        return taken


class _Work:
    """The work on one batch, while the one before it is written; it begins when so many events wait."""

    def __init__(
        self, following: batch.Batch, queue: fairqueue.FairQueue, pool: engine.ReadPool, *, at_least: int
    ) -> None:
        self._following = following
        self._queue = queue
        self._pool = pool
        self._asking = False
        self._ending = False
        self.requests: list[fairqueue.Waiting] = []
        self.ready: batch.Batch | None = None
        """Once events of the first requests are worked out."""

        self._task = asyncio.create_task(self._run(at_least))
        self._task.add_done_callback(_tell_of_bugs)

    async def end(self) -> bool:
        """Work no more; False if what was asked for did not come in time."""
        self._ending = True
        if self._asking:
            await asyncio.wait([self._task], timeout=PATIENCE_SECONDS)
        self.cancel()
        return not self._asking

    def cancel(self) -> None:
        """Work no more, at once."""
        self._task.cancel()

    async def _run(self, at_least: int) -> None:
        while not self._ending:
            # As many again as there are, so that a batch is asked for in few steps.
            await self._queue.holds(max(at_least, len(self._following.outcomes)))
            if not self._pool.has_more:
                return  # those who read come first
            taken = _next(self._queue, besides=self.requests)
            if not taken:
                return
            self.requests += taken
            self._asking = True
            worked_out = await self._extend(taken)
            self._asking = False
            if not worked_out:
                return
            self.ready = self._following

    async def _extend(self, taken: Sequence[fairqueue.Waiting]) -> bool:
        drafts = [draft for waiting in taken for draft in waiting.drafts]
        try:
            async with self._pool.connection(patience_seconds=PATIENCE_SECONDS) as connection:
                return await self._following.extend(connection, drafts, ahead=True)
        except (errors.Unavailable, engine.DataRefused, msgspec.MsgspecError):
            return False  # with the lock it is asked for again, and what is wrong is told


def _next(
    queue: fairqueue.FairQueue, *, besides: Sequence[fairqueue.Waiting] = ()
) -> list[fairqueue.Waiting]:
    return queue.take(most_events=BATCH_EVENTS, most_bytes=BATCH_BYTES, besides=besides)


def _tell_of_bugs(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a batch could not be worked out ahead; it is worked out with the lock", exc_info=error)
