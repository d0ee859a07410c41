"""Jobs as they were: folded from the log up to a position, by the same ``evolve`` as everything else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from jobledger import errors
from jobledger.ledger import beside
from jobledger.model import detail, event, job, moment
from jobledger.store import engine, eventlog, history
from jobledger.wire import signals

FOLDED_TOGETHER: Final = 200
"""Jobs that are folded between two looks at what else there is to do: a few milliseconds."""

_POSITION: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def resolve(connection: engine.Connection, text: str) -> event.Position:
    """The position that an ``asOf`` names: a position, an event's uuid, or an RFC 3339 time.

    0 is before the first event; a time after the last one is the head.

    Raises:
        errors.InvalidRequest: It is none of these, not in the log, in the future, or pruned.
    """
    bounds = await history.bounds(connection)
    if _POSITION.fullmatch(text):
        position = event.Position(int(text))
        if not 1 <= position <= bounds.head:
            raise errors.InvalidRequest(
                f"asOf: position {text} is not in the log, which ends at {bounds.head}; give one from 1 on"
            )
    elif (uuid := _uuid(text)) is not None:
        found = await eventlog.position_of(connection, uuid)
        if found is None:
            raise errors.InvalidRequest(f"asOf: uuid {uuid} is not in the log; give that of an event")
        position = found
    else:
        position = await _at_time(connection, text, bounds)
    if bounds.floor and position <= bounds.floor:
        raise errors.InvalidRequest(
            f"asOf: what was up to position {bounds.floor} was pruned; ask for a later position"
        )
    return position


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def _at_time(connection: engine.Connection, text: str, bounds: history.Bounds) -> event.Position:
    try:
        asked = moment.rfc_3339(moment.from_query(text))
    except ValueError as error:
        raise errors.InvalidRequest(
            f"asOf: {errors.shown(text)} is no position, uuid or RFC 3339 time ({error}); "
            "give one, such as 2026-01-31T08:00:00+08:00"
        ) from None
    if asked > bounds.now:
        raise errors.InvalidRequest(
            f"asOf: {errors.shown(text)} is to come; here it is {bounds.now.astimezone(UTC).isoformat()}"
        )
    return await history.position_at(connection, asked)


async def states(
    connection: engine.Connection, job_ids: Sequence[str], at: event.Position
) -> Mapping[str, job.Job]:
    """Jobs as they were at a position; those unknown then are left out. Needs an open transaction."""
    found: dict[str, job.Job] = {}
    for start in range(0, len(job_ids), FOLDED_TOGETHER):
        some = job_ids[start : start + FOLDED_TOGETHER]
        async with contextlib.aclosing(history.lives(connection, some, at)) as rows:
            async for row in rows:
                folded = await _beside(partial(_evolved, found.get(row.job_id), row), row)
                if folded is not None:
                    found[row.job_id] = folded
        await asyncio.sleep(0)
    return found


async def _beside(work: Callable[[], T], row: history.Event) -> T:
    return await beside.the_loop(work, len(row.detail or "") + len(row.hccl or ""))


def _evolved(before: job.Job | None, row: history.Event) -> job.Job | None:
    recorded = recorded_event(row)
    if recorded is None:
        return before
    try:
        return job.evolve(before, recorded)
    except (msgspec.MsgspecError, ValueError, OverflowError, OSError):
        _log.exception("position %d (%s) cannot be folded: its row was spoiled", row.position, row.uuid)
        return before


def recorded_event(row: history.Event) -> event.RecordedEvent | None:
    """The event that a row holds; None, and an ERROR line, if its bytes were spoiled."""
    if not eventlog.recordable(row.recorded_at):
        _log.error("position %d (%s) cannot be read: its recorded_at was spoiled", row.position, row.uuid)
        return None
    try:
        signal = signals.read_signal(row.signal, row.hccl)
    except errors.InvalidEvent:
        _log.error("position %d (%s) cannot be read: its stored signal was spoiled", row.position, row.uuid)
        return None
    try:
        if row.detail is not None:
            detail.decode(row.detail)
    except msgspec.MsgspecError:
        _log.error("position %d (%s) cannot be read: its detail was spoiled", row.position, row.uuid)
        return None
    return event.RecordedEvent(
        position=event.Position(row.position),
        uuid=row.uuid,
        signal=signal,
        detail=row.detail,
        region=row.region,
        account_id=row.account_id,
        user_id=row.user_id,
        recorded_at=row.recorded_at,
    )


async def of_job(
    connection: engine.Connection, of: history.Reader, *, after: int
) -> AsyncGenerator[event.RecordedEvent]:
    """The events of a job after a position, in order; needs an open transaction."""
    async with contextlib.aclosing(history.of_job(connection, of, after=after)) as rows:
        async for row in rows:
            recorded = await _beside(partial(recorded_event, row), row)
            if recorded is not None:
                yield recorded
