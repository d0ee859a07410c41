"""The past of jobs: which position a moment had, which jobs changed since, and their lives up to a position.

All by keys: (job_id, position) finds the life of a job, positions are searched by halving for a moment.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from jobledger.model import event
from jobledger.store import engine, eventlog

PREFETCHED_ROWS: Final = 50
"""Rows that are held at a time: one may weigh as much as an event may."""

# Always one row.
_BOUNDS = """
    select coalesce((select max(position) from job_events), 0) as head,
           (select floor from ledger_info) as floor, clock_timestamp() as now
"""

# $1 moment; recorded_at never decreases with position
_AT = """
    with recursive search (low, high) as (
        select (select floor from ledger_info), coalesce((select max(position) from job_events), 0)
        union all
        select case when recorded_at <= $1 then position else low end,
               case when recorded_at <= $1 then high else position - 1 end
        from search, lateral (
            select position, recorded_at from job_events where position = (low + high + 1) / 2
        ) as middle
        where low < high
    )
    select low from search where low >= high
"""

# $1 after, $2 up to, $3 at: those that were known then
_CHANGED = """
    select distinct job_id from job_events as later
    where position > $1 and position <= $2 and exists (
        select from job_events where job_id = later.job_id and position <= $3 and operator = 'add'
    )
"""


class Event(NamedTuple):
    """What the fold needs of a row."""

    position: int
    uuid: UUID
    job_id: str
    signal: bytes
    hccl: str | None
    detail: str | None
    region: str
    account_id: str
    user_id: str
    recorded_at: datetime


_RECORDED_AT = eventlog.as_datetime("recorded_at")
_EVENT = ", ".join(f"life.{name}" for name in Event._fields if name != "recorded_at")

# $1 job ids, $2 at. A life begins after the last delete before its last add.
_LIVES = f"""
    select {_EVENT}, {_RECORDED_AT} as recorded_at
    from unnest($1::text[]) with ordinality as wanted (id, nth),
    lateral (
        select position from job_events
        where job_id = wanted.id and position <= $2 and operator = 'add' order by position desc limit 1
    ) as newest,
    lateral (
        select coalesce((
            select position from job_events
            where job_id = wanted.id and position < newest.position and operator = 'delete'
            order by position desc limit 1
        ), 0) as position
    ) as ended,
    lateral (
        select * from job_events
        where job_id = wanted.id and position > ended.position and position <= $2
    ) as life
    order by wanted.nth, life.position
"""  # noqa: S608 - our own names

# $1 job id, $2 after, $3 region, $4 user, $5 account: "" lets all through
_OF_JOB = f"""
    select position, uuid, job_id, signal, hccl, detail, region, account_id, user_id, {_RECORDED_AT}
    from job_events
    where job_id = $1 and position > $2 and region = $3
      and ($4 = '' or user_id in ('', $4)) and ($5 = '' or account_id in ('', $5))
    order by position
"""  # noqa: S608 - our own names

# $1 as above, $2 up to, and so on
_BEFORE = f"""
    select position, uuid, job_id, signal, hccl, detail, region, account_id, user_id, {_RECORDED_AT}
    from job_events
    where job_id = $1 and position <= $2 and region = $3
      and ($4 = '' or user_id in ('', $4)) and ($5 = '' or account_id in ('', $5))
    order by position desc limit 1
"""  # noqa: S608 - our own names


class Bounds(NamedTuple):
    """What can be asked for."""

    head: event.Position
    floor: event.Position
    now: datetime


class Reader(NamedTuple):
    """Whose events of which job are asked for; "" is everybody's."""

    job_id: str
    region: str
    user_id: str
    account_id: str


async def bounds(connection: engine.Connection) -> Bounds:
    """The log's end, its floor, and the database's clock."""
    row = await connection.fetchrow(_BOUNDS)
    assert row is not None  # noqa: S101 - the statement always has one row
    return Bounds(*row)


async def position_at(connection: engine.Connection, moment: datetime) -> event.Position:
    """The last position that was recorded at or before a moment; the floor before the first."""
    return event.Position(await connection.fetchval(_AT, moment))


async def changed(connection: engine.Connection, *, after: int, up_to: int, at: int) -> Sequence[str]:
    """Jobs with events between two positions that were known at a third."""
    return [row["job_id"] for row in await connection.fetch(_CHANGED, after, up_to, at)]


async def lives(
    connection: engine.Connection, job_ids: Sequence[str], at: event.Position
) -> AsyncGenerator[Event]:
    """The events of the life that each job had at a position, up to it; job by job, in order.

    Needs an open transaction; jobs unknown then have none.
    """
    async for row in connection.cursor(_LIVES, list(job_ids), at, prefetch=PREFETCHED_ROWS):
        yield Event(*row)


async def of_job(connection: engine.Connection, of: Reader, *, after: int) -> AsyncGenerator[Event]:
    """The events of a job after a position, in order; needs an open transaction."""
    rows = connection.cursor(
        _OF_JOB, of.job_id, after, of.region, of.user_id, of.account_id, prefetch=PREFETCHED_ROWS
    )
    async for row in rows:
        yield Event(*row)


async def before(connection: engine.Connection, of: Reader, *, up_to: int) -> Event | None:
    """The last event of a job up to a position."""
    row = await connection.fetchrow(_BEFORE, of.job_id, up_to, of.region, of.user_id, of.account_id)
    return None if row is None else Event(*row)
