"""Pages of a list that are all of one position, whatever happens between them.

::

    jobs unchanged since P   ── their rows, by an index ──┐
                                                          ├─ merged in order ──▶ page
    jobs changed after P     ── as they were, folded ─────┘

Nothing is skipped and nothing comes twice: the list is that of P. What changed after P is found once and kept
for the next page; only its places are, not the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final

from jobledger import errors
from jobledger.ledger import past
from jobledger.model import event, job, listing
from jobledger.store import engine, eventlog, history, jobs
from jobledger.store import listing as store_listing

CHANGES_LIMIT: Final = 100_000
"""Events after its position beyond which a cursor expires: finding the jobs of so many takes seconds."""

KEPT_WALKS: Final = 8
"""Walks whose changes are kept; another one finds them again."""

AT_A_TIME: Final = 2
"""Lists of the past that are made at a time; the others wait, so that reads of the present do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Jobs in order, and how the list goes on."""

    jobs: Sequence[job.Job]
    at: event.Position
    """The position of which the list is."""

    total: int
    last: listing.Place | None
    """The place of the last job if others follow; None at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """A list of a position."""

    wanted: listing.Filter
    order: listing.Order
    at: event.Position
    expires: bool
    """Whether it ends when much happened since: a cursor's does, one that was asked for by asOf does not."""


class _Changes:
    """Jobs that changed after a position, as they were then."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.up_to: int = walk.at
        self.seen: set[str] = set()
        self.places: list[listing.Place] = []
        """Of those that passed the filter; ascending."""

        self.lock = asyncio.Lock()

    async def find(self, connection: engine.Connection, head: event.Position) -> None:
        """Bring what is known up to the head; sees the same moment as the page."""
        if self.up_to >= head:
            return
        at, order = self.walk.at, self.walk.order
        later = await history.changed(connection, after=self.up_to, up_to=head, at=at)
        new = [job_id for job_id in later if job_id not in self.seen]
        for start in range(0, len(new), past.FOLDED_TOGETHER):
            some = new[start : start + past.FOLDED_TOGETHER]
            states = (await past.states(connection, some, at)).values()
            still = await self._still(connection, states)
            for folded in states:
                if folded.job_id not in still and self.walk.wanted.passes(folded):
                    insort(self.places, order.place(folded))
            self.seen.update(set(some).difference(still))
        self.up_to = head

    async def _still(self, connection: engine.Connection, states: Collection[job.Job]) -> Collection[str]:
        """Jobs that are what they were: the delete of an ended one changes nothing, its row holds."""
        ended = [each.job_id for each in states if not each.live] if self.walk.wanted.ended_too else []
        return await jobs.unchanged(connection, ended, since=self.walk.at) if ended else ()


class Walks:
    """Makes pages."""

    def __init__(self, pool: engine.ReadPool) -> None:
        self._pool = pool
        self._changes: OrderedDict[Walk, _Changes] = OrderedDict()
        self._totals: OrderedDict[tuple[int, listing.Filter], int] = OrderedDict()
        self._past = asyncio.Semaphore(AT_A_TIME)

    async def present(self, wanted: listing.Filter, order: listing.Order, *, offset: int, limit: int) -> Page:
        """A page of the list as it is now.

        Raises:
            errors.TooBroad: It takes too long.
            errors.DatabaseUnavailable: Postgres is away.
        """
        if (known := await self._known_page(wanted, order, offset=offset, limit=limit)) is not None:
            return known
        async with store_listing.moment(self._pool) as connection:
            at = await eventlog.last(connection)
            found = await store_listing.page(
                connection, wanted, order, after=None, offset=offset, limit=limit + 1
            )
            total = self._totals.get((at, wanted))
            if total is None:
                if len(found) <= limit and (found or not offset):
                    total = offset + len(found)
                else:
                    total = await store_listing.count(connection, wanted)
                self._keep_total(at, wanted, total)
        return _page(found, order, at=at, total=total, limit=limit)

    async def _known_page(
        self, wanted: listing.Filter, order: listing.Order, *, offset: int, limit: int
    ) -> Page | None:
        """A page of a list that was counted since the last event."""
        if not any(counted == wanted for _, counted in self._totals):
            return None
        found = await store_listing.at_once(
            self._pool, wanted, order, after=None, offset=offset, limit=limit + 1
        )
        if found is None or (total := self._totals.get((found[0], wanted))) is None:
            return None
        return _page(found[1], order, at=found[0], total=total, limit=limit)

    async def at(self, text: str) -> event.Position:
        """The position that an ``asOf`` names; see :func:`past.resolve`."""
        async with store_listing.moment(self._pool) as connection:
            return await past.resolve(connection, text)

    async def go_on(
        self, walk: Walk, *, after: listing.Place | None, offset: int = 0, limit: int, total: int | None
    ) -> Page:
        """A page of the list as it was at a position, behind a place.

        Raises:
            errors.InvalidRequest: So much happened since that the cursor expired, or it is of another log.
            errors.TooBroad: It takes too long.
            errors.DatabaseUnavailable: Postgres is away.
        """
        changes = self._kept(walk)
        if walk.expires and total is not None and changes.up_to == walk.at:
            found = await store_listing.at_once(
                self._pool, walk.wanted, walk.order, after=after, offset=offset, limit=limit + 1
            )
            if found is not None and found[0] == walk.at:
                return _page(found[1], walk.order, at=walk.at, total=total, limit=limit)
        turn = contextlib.nullcontext() if walk.expires else self._past
        # What is known of changes must not be of a later moment than the rows: one after the other.
        async with changes.lock, turn, store_listing.moment(self._pool) as connection:
            return await _page_of(connection, changes, after, offset=offset, limit=limit, total=total)

    def _kept(self, walk: Walk) -> _Changes:
        changes = self._changes.get(walk)
        if changes is None:
            changes = self._changes[walk] = _Changes(walk)
        self._changes.move_to_end(walk)
        while len(self._changes) > KEPT_WALKS:
            self._changes.popitem(last=False)
        return changes

    def _keep_total(self, at: event.Position, wanted: listing.Filter, total: int) -> None:
        self._totals[(at, wanted)] = total
        while len(self._totals) > KEPT_WALKS:
            self._totals.popitem(last=False)


async def _page_of(
    connection: engine.Connection,
    changes: _Changes,
    after: listing.Place | None,
    *,
    offset: int,
    limit: int,
    total: int | None,
) -> Page:
    walk = changes.walk
    head = await eventlog.last(connection)
    if walk.at > head or (walk.expires and head - walk.at > CHANGES_LIMIT):
        raise errors.InvalidRequest("cursor expired, start again")
    await changes.find(connection, head)
    count = offset + limit + 1
    unchanged = await store_listing.places(
        connection, walk.wanted, walk.order, after=after, unchanged_since=walk.at, limit=count
    )
    merged = merge(
        ((place, False) for place in unchanged),
        ((place, True) for place in _behind(changes.places, walk.order, after)),
        reverse=walk.order.descending,
    )
    chosen = list(islice(merged, offset, count))
    if total is None:
        total = len(changes.places) + await store_listing.count(
            connection, walk.wanted, unchanged_since=walk.at
        )
    then = await past.states(connection, [place[1] for place, changed in chosen if changed], walk.at)
    now = await jobs.current(connection, [place[1] for place, changed in chosen if not changed])
    found = [(then if changed else now)[place[1]] for place, changed in chosen]
    return _page(found, walk.order, at=walk.at, total=total, limit=limit)


def _behind(
    ascending: Sequence[listing.Place], order: listing.Order, after: listing.Place | None
) -> Sequence[listing.Place]:
    """The places behind one, in order."""
    if not order.descending:
        if after is None:
            return ascending
        start = bisect_left(ascending, after)
        return ascending[start + (start < len(ascending) and ascending[start] == after) :]
    return (ascending if after is None else ascending[: bisect_left(ascending, after)])[::-1]


def _page(
    found: Sequence[job.Job], order: listing.Order, *, at: event.Position, total: int, limit: int
) -> Page:
    shown = found[:limit]
    last = order.place(shown[-1]) if len(found) > limit else None
    return Page(jobs=shown, at=at, total=total, last=last)
