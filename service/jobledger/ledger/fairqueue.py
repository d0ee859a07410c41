"""Requests that wait for the append transaction: bounded in events and bytes, fair between publishers.

::

    put ──▶ publisher a: ▢▢▢▢▢▢▢ ─┐
            publisher b: ▢       ─┼─ in turn, a request each ──▶ take: the next batch
            publisher c: ▢▢      ─┘

A publisher's own requests keep their order. One that has thousands waiting does not delay another's single
event by more than a batch, and cannot fill the queue: it may hold :data:`SHARE` times what is still free
("dynamic thresholds", Choudhury and Hahne 1998), so that alone it gets four fifths, and whoever comes then
finds room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from jobledger import errors
from jobledger.ledger import batch
from jobledger.model import completion

SHARE: Final = 4
"""How many times the free room one publisher may hold."""


@dataclass(slots=True, eq=False)
class Waiting:
    """One caller's events on their way through the queue; they stay together and in order."""

    publisher: str
    drafts: Sequence[completion.Draft]
    size_bytes: int
    done: asyncio.Future[list[batch.Outcome]]

    def succeed(self, outcomes: list[batch.Outcome]) -> None:
        """Answer the caller, if it still waits."""
        if not self.done.done():
            self.done.set_result(outcomes)

    def fail(self, error: errors.LedgerError) -> None:
        """Tell the caller, if it still waits."""
        if not self.done.done():
            self.done.set_exception(error)


class _Line:
    """What waits of one publisher."""

    __slots__ = ("events", "requests", "size_bytes")

    def __init__(self) -> None:
        self.requests: deque[Waiting] = deque()
        self.events = 0
        self.size_bytes = 0


class FairQueue:
    """Lines of requests, one a publisher."""

    def __init__(self, *, limit_events: int, limit_bytes: int) -> None:
        self._limit_events = limit_events
        self._limit_bytes = limit_bytes
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self.events = 0
        """Events that wait."""

        self.size_bytes = 0
        """About what they take."""

        self._awaited: tuple[int, asyncio.Future[None]] | None = None

    def put(self, waiting: Waiting) -> None:
        """Let a request wait.

        Raises:
            errors.Overloaded: There is no room, or none for more of this publisher.
        """
        line = self._lines.get(waiting.publisher) or _Line()
        # An empty queue takes a request of any size: what the request limit let in must be possible.
        if self._lines and not (
            _fits(line.events, len(waiting.drafts), self._limit_events - self.events)
            and _fits(line.size_bytes, waiting.size_bytes, self._limit_bytes - self.size_bytes)
        ):
            message = (
                f"{self.events} events ({self.size_bytes} bytes) are waiting to be recorded, {line.events} "
                f"of them from {waiting.publisher}, and no more may; nothing was recorded, retry after 1 s "
                "with the same uuids"
            )
            raise errors.Overloaded(message)
        self._lines[waiting.publisher] = line
        line.requests.append(waiting)
        self._count(line, waiting, 1)
        if self._awaited is not None and self.events >= self._awaited[0]:
            self.wake()

    async def holds(self, events: int) -> None:
        """Wait until so many events wait, or for :meth:`wake`; who asks last takes the place of another."""
        if self.events < events:
            awaited = self._awaited = events, asyncio.get_running_loop().create_future()
            try:
                await awaited[1]
            finally:
                if self._awaited is awaited:
                    self._awaited = None

    def wake(self) -> None:
        """Let who waits for events look."""
        if self._awaited is not None and not self._awaited[1].done():
            self._awaited[1].set_result(None)

    def take(self, *, most_events: int, most_bytes: int, besides: Sequence[Waiting] = ()) -> list[Waiting]:
        """The requests whose turn it is, within both bounds, but one if there is one.

        ``besides`` were taken before, for the same batch.
        """
        taken: list[Waiting] = []
        events = sum(len(each.drafts) for each in besides)
        size = sum(each.size_bytes for each in besides)
        while self._lines:
            publisher, line = next(iter(self._lines.items()))
            waiting = line.requests[0]
            events += len(waiting.drafts)
            size += waiting.size_bytes
            if (taken or besides) and (events > most_events or size > most_bytes):
                break
            taken.append(line.requests.popleft())
            self._count(line, waiting, -1)
            if line.requests:
                self._lines.move_to_end(publisher)
            else:
                del self._lines[publisher]
        return taken

    def emptied(self) -> Iterator[Waiting]:
        """Everything that waits, which then no longer does."""
        lines, self._lines = self._lines, OrderedDict()
        self.events = self.size_bytes = 0
        for line in lines.values():
            yield from line.requests

    def _count(self, line: _Line, waiting: Waiting, sign: int) -> None:
        events, size = sign * len(waiting.drafts), sign * waiting.size_bytes
        line.events += events
        line.size_bytes += size
        self.events += events
        self.size_bytes += size


def _fits(held: int, more: int, free: int) -> bool:
    return more <= free and held + more <= SHARE * free
