"""Verify: whether the log is whole and unaltered, and the view what the log says.

::

    rows from … to, page by page     next position? links to the hash before? columns as the signal says?
    jobs, page by page               row = fold of the log up to the head of the moment it was read at

Appends go on meanwhile: the log is checked up to the head at the start, each page of the view against the
head of its own moment. Holds one page at a time. Reads only.

What it cannot see: a tail that was cut off, without an anchor (a position and its hash, kept elsewhere), and
a whole log that was written anew by somebody who can. ``content_hash`` is of the event as given, before it
was completed, so nothing stored makes it again: the chain alone protects it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from jobledger import errors
from jobledger.ledger import past
from jobledger.model import chain, event, job, ranktable
from jobledger.model.signal import Signal
from jobledger.store import engine, eventlog, proof
from jobledger.wire import delivery, signals

PAGE_EVENTS: Final = 1_000
PAGE_BYTES: Final = 8 << 20
"""The most that a page may weigh, unless it is one event."""

PAGE_JOBS: Final = 200

_SAME: Final = (
    "uuid",
    "job_id",
    "job_name",
    "namespace",
    "framework",
    "job_status",
    "shared_tor_ip",
    "master_addr",
    "operator",
    "sid",
)
"""Columns that are fields of the signal, to the letter; position, times and numbers are compared apart."""


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A place of the log that was written down elsewhere."""

    position: event.Position
    hash: bytes


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is wrong."""

    position: event.Position | None
    """None if it is in the view."""

    job_id: str | None
    reason: str


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far it is."""

    what: str
    """``events`` or ``jobs``."""

    done: int
    total: int
    """Of jobs an estimate; 0 if unknown."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and found."""

    first: event.Position
    last: event.Position
    events: int
    """Rows that were looked at, up to the first bad one."""

    jobs: int | None
    """Jobs that were compared; None if only a part of the log was asked for, or it is bad."""

    head: Anchor
    """The end of what was checked, to be kept elsewhere."""

    anchored: bool
    finding: Finding | None


OnProgress = Callable[[Progress], None]


async def run(
    connection: engine.Connection,
    *,
    floor: event.Position,
    first: int | None,
    last: int | None,
    anchor: Anchor | None,
    on_progress: OnProgress,
) -> Report:
    """Check the log, and the view too if no part of the log was asked for.

    Raises:
        errors.InvalidRequest: The part is not in the log.
        errors.DatabaseUnavailable: Postgres is away.
    """
    with engine.translated():
        head = await eventlog.last(connection)
        begin = max(first or 1, floor + 1)
        end = event.Position(head if last is None else last)
        if begin < 1 or end > head or (begin > end and (first, last) != (None, None)):
            raise errors.InvalidRequest(
                f"positions {first or 1} to {end} are not in the log, which goes from {floor + 1} to {head}"
            )
        finding = await _anchored(connection, anchor, head)
        checked, tip = 0, chain.GENESIS
        if finding is None:
            log = _Log(connection, begin, end, floor)
            finding = await log.check(on_progress)
            checked, tip = log.checked, log.hash
        compared = None
        if finding is None and first is None and last is None:
            compared, finding = await _compare(connection, on_progress)
    return Report(
        first=event.Position(begin),
        last=end,
        events=checked,
        jobs=compared,
        head=Anchor(position=end, hash=tip),
        anchored=anchor is not None,
        finding=finding,
    )


async def _anchored(connection: engine.Connection, anchor: Anchor | None, head: int) -> Finding | None:
    if anchor is None:
        return None
    if anchor.position > head:
        reason = f"the log ends at {head}, before the anchor at {anchor.position}: its tail was removed"
        return Finding(position=event.Position(head + 1), job_id=None, reason=reason)
    found = await eventlog.hash_at(connection, anchor.position) if anchor.position else chain.GENESIS
    if found == anchor.hash:
        return None
    reason = "is missing" if found is None else f"has hash {found.hex()}, the anchor has {anchor.hash.hex()}"
    return Finding(position=anchor.position, job_id=None, reason=reason)


class _Log:
    def __init__(self, connection: engine.Connection, first: int, last: int, floor: int) -> None:
        self._connection = connection
        self._first = first
        self._last = last
        self._floor = floor
        self.checked = 0
        self.hash = chain.GENESIS

    async def check(self, on_progress: OnProgress) -> Finding | None:
        previous: bytes | None = chain.GENESIS
        if self._first > 1:
            previous = await eventlog.hash_at(self._connection, self._first - 1)
            # The hash before a pruned log's first row may be gone with its row: then it is taken as given.
            if previous is None and self._first - 1 != self._floor:
                return _missing(self._first - 1)
        position = self._first - 1
        while position < self._last:
            rows = await proof.rows(
                self._connection, position, self._last, count=PAGE_EVENTS, size_bytes=PAGE_BYTES
            )
            for each in rows:
                position += 1
                if each.row.position != position:
                    return _missing(position)
                reason = _broken(each.row, previous) or _contradiction(each)
                if reason is not None:
                    return Finding(position=event.Position(position), job_id=each.row.job_id, reason=reason)
                previous = self.hash = each.row.hash
                self.checked += 1
            if not rows:
                return _missing(position + 1)
            on_progress(Progress(what="events", done=self.checked, total=self._last - self._first + 1))
        return None


def _missing(position: int) -> Finding:
    return Finding(position=event.Position(position), job_id=None, reason="the row is missing")


def _broken(row: eventlog.Row, previous: bytes | None) -> str | None:
    if previous is None:
        return None
    made = chain.link(
        previous=previous,
        position=row.position,
        uuid=row.uuid,
        content_hash=row.content_hash,
        recorded_at=row.recorded_at,
        signal=row.signal,
        hccl=row.hccl,
        detail=row.detail,
        region=row.region,
        account_id=row.account_id,
        user_id=row.user_id,
        publisher=row.publisher,
    )
    if made == row.hash:
        return None
    return "hash does not follow from the row and the hash before it: one of them was changed"


def _contradiction(logged: proof.Logged) -> str | None:
    row = logged.row
    try:
        signal = signals.read_signal(row.signal, row.hccl)
    except errors.InvalidEvent as error:
        return error.reason
    alive = logged.before_operator == event.Operator.ADD
    wrong = [name for name in _SAME if str(getattr(row, name)) != getattr(signal, name)]
    try:
        wrong += [name for name, (kept, said) in _typed(row, signal).items() if kept != said]
    except (ValueError, OverflowError, OSError) as error:
        return f"the signal holds no number where one belongs: {error}"
    for name, before in (("namespace", logged.before_namespace), ("framework", logged.before_framework)):
        left = before if alive and before != getattr(row, name) else None
        if getattr(row, f"left_{name}") != left:
            wrong.append(f"left_{name}")
    return f"{', '.join(wrong)} contradict the signal or the event before it" if wrong else None


def _typed(row: eventlog.Row, signal: Signal) -> dict[str, tuple[object, object]]:
    job_time, delete_time, cm_index, total = job.numbers(signal)
    return {
        "job_time": (row.job_time, job_time),
        "delete_time": (row.delete_time, delete_time),
        "cm_index": (row.cm_index, cm_index),
        "total": (row.total, total),
        "size": (row.size, delivery.signal_size(row.signal, row.hccl)),
        "servers": (row.servers, None if row.servers is None else ranktable.servers(row.hccl or "")),
    }


async def _compare(connection: engine.Connection, on_progress: OnProgress) -> tuple[int, Finding | None]:
    after, done = "", 0
    about = await proof.about_jobs(connection)
    while True:
        async with proof.moment(connection) as head:
            found = await proof.shown(connection, after=after, count=PAGE_JOBS)
            states = await past.states(connection, [each.job_id for each in found], head)
        for each in found:
            wrong = proof.differing(each, states.get(each.job_id))
            if wrong:
                reason = f"the view's {', '.join(wrong)} is not what the log says; run jobledger rebuild"
                return done, Finding(position=None, job_id=each.job_id, reason=reason)
            done += 1
        if len(found) < PAGE_JOBS:
            return done, None
        after = found[-1].job_id
        on_progress(Progress(what="jobs", done=done, total=max(about, done)))
