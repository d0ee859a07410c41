"""The view's statements: the jobs table, which is a fold of the log and nothing else."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from jobledger.model import chain, event, job, parts, searchkeys, selection
from jobledger.model.signal import Signal
from jobledger.store import engine, eventlog, ledgerinfo

_FOLDED = (
    "job_id",
    "region",
    "account_id",
    "user_id",
    "job_name",
    "namespace",
    "framework",
    "job_status",
    "job_time",
    "delete_time",
    "cm_index",
    "total",
    "shared_tor_ip",
    "master_addr",
    "sid",
    "hccl_digest",
    "detail",
    "create_time",
    "ended_at",
    "version",
    "last_position",
    "last_uuid",
    "changed_at",
    "deleted_at",
    "signal_positions",
    "arriving",
)
"""What the fold makes."""

_folded = itemgetter(*_FOLDED)

_COLUMNS = (*_FOLDED, *searchkeys.Keys.__struct_fields__)
NAMES = ", ".join(_COLUMNS)
"""Every column of the view."""

_TIMES = frozenset(
    {"job_time", "delete_time", "create_time", "ended_at", "changed_at", "deleted_at", "finish_time"}
)
READABLE_NAMES = ", ".join(
    f"{eventlog.as_datetime(name)} as {name}" if name in _TIMES else name for name in _COLUMNS
)
"""The same for a select that must read rows that were spoiled too; in no order, which would be by these."""

FOLDED_NAMES = ", ".join(_FOLDED)
"""The columns from which :func:`from_row` makes a job, for a select of one's own."""

# $1 job ids
_CURRENT = f"select {FOLDED_NAMES} from jobs where job_id = any ($1::text[])"  # noqa: S608 - our own names

# $1 job ids, $2 position
_UNCHANGED = "select job_id from jobs where job_id = any ($1::text[]) and last_position <= $2"

_EPOCH = f"({ledgerinfo.EPOCH}) as epoch"

# $1 job id; the rank table is null where there is none, and where it came in parts
_WITH_RANK_TABLE = f"""
    select {FOLDED_NAMES}, (
        select hccl from job_events where position = any (jobs.signal_positions) and jobs.arriving is null
        order by position desc limit 1
    ) as rank_table, {_EPOCH}
    from jobs where job_id = $1
"""  # noqa: S608 - our own names

# $1 job ids, $2 bytes
_SMALL_WITH_RANK_TABLE = f"""
    select {FOLDED_NAMES}, (
        select hccl from job_events where position = any (jobs.signal_positions)
        order by position desc limit 1
    ) as rank_table, {_EPOCH}
    from jobs
    where job_id = any ($1::text[]) and arriving is null and coalesce(octet_length(detail), 0) + (
        select coalesce(sum(size), 0) from job_events where position = any (jobs.signal_positions)
    ) <= $2
"""  # noqa: S608 - our own names

# $1 job ids
_HEADS = f"""
    select job_id, region, account_id, user_id, deleted_at is null as live, last_position, {_EPOCH}
    from jobs where job_id = any ($1::text[])
"""  # noqa: S608 - our own names


WIDTH = len(_COLUMNS)
"""How many they are."""


def rows(parameter: str) -> str:
    """SQL for the rows of an array of job_row."""
    return f"select {NAMES} from unnest({parameter}::job_row[])"  # noqa: S608 - our own names


def insert_statement(into: str, given: str) -> str:
    """SQL that adds rows, those of another statement, to a table that has none of these jobs."""
    return f"insert into {into} ({NAMES}) {given}"


def upsert_statement(into: str, given: str) -> str:
    """The same for a table that may have them; an eighth dearer."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != "job_id")
    return f"{insert_statement(into, given)} on conflict (job_id) do update set {changed}"


# $1 rows
_UPSERT_REBUILT = upsert_statement("rebuilt", rows("$1"))

# $1 namespaces, $2 job ids, $3 frameworks: null lets all through. One row, one snapshot of the database.
# int8send: eight bytes a position instead of an object each.
_SNAPSHOT = f"""
    with live as materialized (
        select signal_positions from jobs
        where deleted_at is null
          and ($1::text[] is null or namespace = any ($1))
          and ($2::text[] is null or job_id = any ($2))
          and ($3::text[] is null or framework = any ($3))
    )
    select ({eventlog.LAST}) as head,
           (select count(*) from live) as jobs,
           (select coalesce(string_agg(int8send(place), ''::bytea order by place), ''::bytea)
            from live, unnest(signal_positions) as place) as positions
"""  # noqa: S608 - our own names


class Head(NamedTuple):
    """What decides who may see a job, and whether it changed."""

    job_id: str
    region: str
    account_id: str
    user_id: str
    live: bool
    last_position: int
    epoch: UUID


class WithRankTables(NamedTuple):
    """A job with all that its answer shows."""

    job: job.Job
    rank_tables: Sequence[str]
    """Part by part."""

    epoch: UUID


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Which events make the current state of every live job, at one moment."""

    head: event.Position
    """The log's end at that moment."""

    jobs: int
    """How many jobs were live and passed the filter."""

    positions: Sequence[int]
    """Ascending, eight bytes each."""


def _seconds(moment: Any) -> str:
    return "" if moment is None else str(chain.microseconds(moment) // 1_000_000)


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def from_row(row: asyncpg.Record) -> job.Job:
    """The job that a row with the columns of :data:`FOLDED_NAMES` holds."""
    (
        job_id,
        region,
        account_id,
        user_id,
        job_name,
        namespace,
        framework,
        job_status,
        job_time,
        delete_time,
        cm_index,
        total,
        shared_tor_ip,
        master_addr,
        sid,
        hccl_digest,
        detail,
        create_time,
        ended_at,
        version,
        last_position,
        last_uuid,
        changed_at,
        deleted_at,
        signal_positions,
        arriving,
    ) = _folded(row)
    return job.Job(
        job_id=job_id,
        region=region,
        account_id=account_id,
        user_id=user_id,
        signal=Signal(
            job_id=job_id,
            job_name=job_name,
            namespace=namespace,
            framework=framework,
            job_status=job_status,
            time=_seconds(job_time),
            cm_index=_text(cm_index),
            total=_text(total),
            delete_time=_seconds(delete_time),
            shared_tor_ip=shared_tor_ip,
            master_addr=master_addr,
            operator=event.Operator.ADD if deleted_at is None else event.Operator.DELETE,
            sid=sid,
        ),
        hccl_digest=hccl_digest,
        detail=detail,
        create_time=create_time,
        ended_at=ended_at,
        version=version,
        last_position=last_position,
        last_uuid=last_uuid,
        changed_at=changed_at,
        deleted_at=deleted_at,
        signal_positions=tuple(signal_positions),
        arriving=None if arriving is None else parts.decode(arriving),
    )


def values(current: job.Job) -> tuple[Any, ...]:
    """What the view's row of a job holds, in the order of the type job_row."""
    signal = current.signal
    return (
        current.job_id,
        current.region,
        current.account_id,
        current.user_id,
        signal.job_name,
        signal.namespace,
        signal.framework,
        signal.job_status,
        *job.numbers(signal),
        signal.shared_tor_ip,
        signal.master_addr,
        signal.sid,
        current.hccl_digest,
        current.detail,
        current.create_time,
        current.ended_at,
        current.version,
        current.last_position,
        current.last_uuid,
        current.changed_at,
        current.deleted_at,
        list(current.signal_positions),
        None if current.arriving is None else parts.encode(current.arriving),
        *msgspec.structs.astuple(searchkeys.of(current)),
    )


async def heads(connection: engine.Connection, job_ids: Iterable[str]) -> Mapping[str, Head]:
    """What decides about jobs, by id; unknown ids are left out."""
    return {row["job_id"]: Head(*row) for row in await connection.fetch(_HEADS, list(job_ids))}


async def current(connection: engine.Connection, job_ids: Iterable[str]) -> Mapping[str, job.Job]:
    """The jobs with these ids as they are now; unknown ids are left out."""
    rows = await connection.fetch(_CURRENT, list(job_ids))
    return {row["job_id"]: from_row(row) for row in rows}


async def unchanged(
    connection: engine.Connection, job_ids: Collection[str], *, since: event.Position
) -> Collection[str]:
    """Those of these jobs that are what they were at a position."""
    return {row["job_id"] for row in await connection.fetch(_UNCHANGED, list(job_ids), since)}


async def with_rank_tables(connection: engine.Connection, job_id: str) -> WithRankTables | None:
    """A job, and its rank table; None for an unknown id."""
    row = await connection.fetchrow(_WITH_RANK_TABLE, job_id)
    if row is None:
        return None
    found = _with_rank_table(row)
    if found.job.arriving is None:
        return found
    tables = await eventlog.rank_table(connection, found.job.table_positions)
    return found._replace(rank_tables=tables)


async def small_with_rank_table(
    connection: engine.Connection, job_ids: Iterable[str], *, limit_bytes: int
) -> Mapping[str, WithRankTables]:
    """Jobs with their rank tables, by id; without large ones, and those whose table came in parts."""
    rows = await connection.fetch(_SMALL_WITH_RANK_TABLE, list(job_ids), limit_bytes)
    return {row["job_id"]: _with_rank_table(row) for row in rows}


def _with_rank_table(row: asyncpg.Record) -> WithRankTables:
    return WithRankTables(from_row(row), [row["rank_table"] or ""], row["epoch"])


def columns(current: job.Job) -> Mapping[str, object]:
    """What the view's row of a job holds, by column."""
    return dict(zip(_COLUMNS, values(current), strict=True))


async def write_rebuilt(connection: engine.Connection, made: Iterable[job.Job]) -> None:
    """Write jobs into a rebuild's own table. One round trip."""
    await connection.execute(_UPSERT_REBUILT, [values(each) for each in made])


async def snapshot(connection: engine.Connection, wanted: selection.Filter) -> Snapshot:
    """The events that make every live job's state, and the head, in one statement.

    The filter's operators are the caller's to look at: every event of a snapshot is an add.
    """
    chosen = (list(names) or None for names in (wanted.namespaces, wanted.job_ids, wanted.frameworks))
    row = await connection.fetchrow(_SNAPSHOT, *chosen)
    assert row is not None  # noqa: S101 - the statement always has one row
    positions = array("q", row["positions"])
    if sys.byteorder == "little":
        positions.byteswap()
    return Snapshot(head=row["head"], jobs=row["jobs"], positions=positions)
