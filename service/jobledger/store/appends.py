"""What an append asks, and writes under the append lock: one statement each, since a round trip is dear.

A batch of one has statements of its own, of single values. Postgres plans them once; those of arrays it plans
again each time, which for one event costs more than all the rest that they do.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from jobledger.model import chain, event, job
from jobledger.store import engine, eventlog, jobs


def _state(of_uuid: str, of_job: str) -> str:
    """SQL for the log's end, and what it holds of events and jobs; always one row."""
    return f"""
        select clock_timestamp() as now, last.position, last.uuid, last.hash,
               {eventlog.as_datetime("last.recorded_at")} as recorded_at,
               (select coalesce(max(number), 0) from view_rebuilds) as rebuilds,
               array(select (uuid, position, content_hash) from job_events where uuid {of_uuid}) as known,
               array(select row({jobs.NAMES})::job_row from jobs where job_id {of_job}) as jobs
        from (select) as one
        left join lateral (
            select position, uuid, hash, recorded_at from job_events order by position desc limit 1
        ) as last on true
    """  # noqa: S608 - our own names


# $1 uuids, $2 job ids
_STATE = _state("= any ($1::uuid[])", "= any ($2::text[])")

# $1 uuid, $2 job id
_STATE_OF_ONE = _state("= $1", "= $2")

# Of no event: nothing but the end.
_STATE_OF_NONE = _state("is null", "is null")

_LOGGED: Final = ", ".join(eventlog.Row._fields)
_OF_LOG: Final = len(eventlog.Row._fields)


def _write(logged: str, *viewed: str) -> str:
    """SQL that adds rows to the log, and does so much to the view."""
    log = f"insert into job_events ({_LOGGED}) {logged}"
    *before, last = log, *viewed
    steps = ", ".join(f"step_{nth} as ({each})" for nth, each in enumerate(before))
    return f"with {steps} {last}" if before else last


# $1 rows of the log, $2 new rows of the view, $3 changed ones
_WRITE = _write(
    f"select {_LOGGED} from unnest($1::job_event_row_2[])",  # noqa: S608 - our own names
    jobs.insert_statement("jobs", jobs.rows("$2")),
    jobs.upsert_statement("jobs", jobs.rows("$3")),
)

# The values of a row of the log, and of one of the view
_LOG_ONE = _write(engine.values(_OF_LOG))
_ADD_ONE = _write(
    engine.values(_OF_LOG), jobs.insert_statement("jobs", engine.values(jobs.WIDTH, after=_OF_LOG))
)
_CHANGE_ONE = _write(
    engine.values(_OF_LOG), jobs.upsert_statement("jobs", engine.values(jobs.WIDTH, after=_OF_LOG))
)


class Known(NamedTuple):
    """An event that the log holds already."""

    position: event.Position
    content_hash: bytes


class End(NamedTuple):
    """The end of the log: two that are equal have the same events before them, and the same view."""

    position: event.Position
    """Of the last event; 0 in an empty log."""

    uuid: UUID | None
    """Of that event; None in an empty log."""

    hash: bytes
    recorded_at: datetime | None
    """None in an empty log, and if the last row's was spoiled."""

    rebuilds: int
    """How often rows of the view were put right, of which the log says nothing."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the log holds, for an append to go on from."""

    end: End
    now: datetime
    """The database's clock."""

    known: Mapping[UUID, Known]
    """Those of the uuids asked for that the log holds."""

    jobs: Mapping[str, job.Job]
    """Those of the jobs asked for that the view has, by id."""


async def state(connection: engine.Connection, uuids: Collection[UUID], job_ids: Collection[str]) -> State:
    """The end of the log, and what it holds of these events and jobs; only under the append lock it stays so.

    Raises:
        msgspec.MsgspecError: A job's row in the view was spoiled.
    """
    try:
        if len(uuids) == len(job_ids) == 1:
            row = await connection.fetchrow(_STATE_OF_ONE, *uuids, *job_ids)
        elif uuids or job_ids:
            row = await connection.fetchrow(_STATE, list(uuids), list(job_ids))
        else:
            row = await connection.fetchrow(_STATE_OF_NONE)
    except OverflowError as error:
        message = f"a time is beyond those that the driver can read: {error}"
        raise msgspec.ValidationError(message) from error
    assert row is not None  # noqa: S101 - the statement always has one row
    recorded_at = row["recorded_at"]
    return State(
        end=End(
            event.Position(row["position"] or 0),
            row["uuid"],
            row["hash"] or chain.GENESIS,
            recorded_at if recorded_at is not None and eventlog.recordable(recorded_at) else None,
            row["rebuilds"],
        ),
        now=row["now"],
        known={uuid: Known(position, content_hash) for uuid, position, content_hash in row["known"]},
        jobs={each["job_id"]: jobs.from_row(each) for each in row["jobs"]},
    )


async def write(
    connection: engine.Connection,
    rows: Sequence[eventlog.Row],
    changed: Iterable[job.Job],
    *,
    before: Container[str],
) -> None:
    """Write events, and their jobs as they are then; needs positions that go on from the log's end.

    ``before`` has the ids of those that the view holds already.
    """
    if len(rows) == 1:
        await _write_one(connection, rows[0], changed, before)
        return
    old: list[tuple[Any, ...]] = []
    new: list[tuple[Any, ...]] = []
    for each in changed:
        (old if each.job_id in before else new).append(jobs.values(each))
    await connection.execute(_WRITE, rows, new, old)


async def _write_one(
    connection: engine.Connection, row: eventlog.Row, changed: Iterable[job.Job], before: Container[str]
) -> None:
    current = next(iter(changed), None)
    if current is None:
        await connection.execute(_LOG_ONE, *row)
    else:
        how = _CHANGE_ONE if current.job_id in before else _ADD_ONE
        await connection.execute(how, *row, *jobs.values(current))
