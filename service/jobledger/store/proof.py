"""What proof and repair read and write: whole rows in order, and the view beside the head that it is of."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from jobledger.model import event, job
from jobledger.store import engine, eventlog, jobs

REPLACE_SECONDS: Final = 600.0
"""The longest that replacing rows may take; a million of them take about a minute."""

_TIMES = ("job_time", "delete_time", "recorded_at")
_ROW = ", ".join(
    eventlog.as_datetime(f"e.{name}") if name in _TIMES else f"e.{name}" for name in eventlog.Row._fields
)

# $1 after, $2 up to, $3 rows at most, $4 bytes at most (the first row comes whatever its size)
_ROWS = f"""
    select {_ROW}, before.operator as before_operator, before.namespace as before_namespace,
           before.framework as before_framework
    from (
        select *, sum(size + coalesce(octet_length(detail), 0)) over (order by position) as running,
               row_number() over (order by position) as nth
        from (
            select * from job_events where position > $1 and position <= $2 order by position limit $3
        ) as next
    ) as e
    left join lateral (
        select operator, namespace, framework from job_events
        where job_id = e.job_id and position < e.position order by position desc limit 1
    ) as before on true
    where e.running <= $4 or e.nth = 1
    order by e.position
"""  # noqa: S608 - our own names

# $1 after this job id, $2 how many. Of one snapshot, so that the rows are what the log says up to the head.
_SHOWN = f"""
    with logged as (
        select distinct job_id from job_events where job_id > $1 order by job_id limit $2
    ), viewed as (
        select job_id from jobs where job_id > $1 order by job_id limit $2
    ), wanted as (
        select job_id as id from (select job_id from logged union select job_id from viewed) as either
        order by id limit $2
    )
    select id, {jobs.READABLE_NAMES} from wanted left join jobs on job_id = id order by id
"""  # noqa: S608 - our own names

# The planner's guess, good enough for a rate: counting a large table takes seconds.
_ABOUT = "select greatest(reltuples, 0)::bigint from pg_class where oid = 'jobs'::regclass"

_SHADOW = (
    "create temp table rebuilt (like public.jobs including defaults including indexes)",
    'create temp table rebuilding (job_id text collate "C" primary key, folded_to bigint not null)',
)

# $1 job ids, $2 position
_MARK = """
    insert into rebuilding select unnest($1::text[]), $2
    on conflict (job_id) do update set folded_to = excluded.folded_to
"""

# $1 job ids
_FORGET = "delete from rebuilt where job_id = any ($1::text[])"

# $1 how many
_BEHIND = """
    select job_id from rebuilding where exists (
        select from public.job_events as later
        where later.job_id = rebuilding.job_id and later.position > rebuilding.folded_to
    ) order by job_id limit $1
"""

_REMOVE = """
    delete from public.jobs where job_id in (select job_id from rebuilding)
      and job_id not in (select job_id from rebuilt)
"""
_REPLACE = (
    f"insert into public.jobs ({jobs.NAMES}) select {jobs.NAMES} from rebuilt"  # noqa: S608 - our own names
    f" on conflict (job_id) do update set ({jobs.NAMES}) ="
    f" ({', '.join('excluded.' + name for name in jobs.NAMES.split(', '))})"
)


# $1 position
_RECORD = """
    insert into public.view_rebuilds (number, head, differed)
    select coalesce(max(number), 0) + 1, $1, (select count(*) from rebuilding) from public.view_rebuilds
"""


class Logged(NamedTuple):
    """A row of the log, and what the event of its job before it said."""

    row: eventlog.Row
    before_operator: str | None
    """None if there is no event of the job before it."""

    before_namespace: str
    before_framework: str


class Shown(NamedTuple):
    """What the view holds under a job id."""

    job_id: str
    values: Mapping[str, object] | None
    """By column; None if the view has no such row."""


@contextlib.asynccontextmanager
async def moment(connection: engine.Connection) -> AsyncGenerator[event.Position]:
    """One moment of the database for as long as the block lasts, and the head of that moment."""
    with engine.translated():
        async with connection.transaction(isolation="repeatable_read"):
            yield await eventlog.last(connection)


async def rows(
    connection: engine.Connection, after: int, up_to: int, *, count: int, size_bytes: int
) -> Sequence[Logged]:
    """The next whole rows, ascending, within both bounds, but at least one if there is one."""
    width = len(eventlog.Row._fields)
    found: list[Logged] = []
    for row in await connection.fetch(_ROWS, after, up_to, count, size_bytes):
        values = tuple(row)
        found.append(Logged(eventlog.Row(*values[:width]), *values[width:]))
    return found


async def shown(connection: engine.Connection, *, after: str, count: int) -> Sequence[Shown]:
    """The next job ids of log and view together, in order, and what the view has of each."""
    return [
        Shown(row["id"], None if row["job_id"] is None else dict(row))
        for row in await connection.fetch(_SHOWN, after, count)
    ]


async def about_jobs(connection: engine.Connection) -> int:
    """About how many rows the view has; 0 if nobody has counted yet."""
    return await connection.fetchval(_ABOUT)


def differing(found: Shown, expected: job.Job | None) -> Sequence[str]:
    """The columns in which the view's row is not what the fold makes; ``row`` if only one of them has it."""
    if found.values is None or expected is None:
        return () if found.values is None and expected is None else ("row",)
    made = jobs.columns(expected)
    return [name for name, value in made.items() if found.values[name] != value]


async def begin_shadow(connection: engine.Connection) -> None:
    """Make the tables of a rebuild, which only this connection sees and which go with it."""
    for statement in _SHADOW:
        await connection.execute(statement)


async def shadow(
    connection: engine.Connection, job_ids: Sequence[str], made: Iterable[job.Job], *, folded_to: int
) -> None:
    """Keep what jobs are to be, as of a position; those of the ids that were not made are to be gone."""
    await connection.execute(_MARK, list(job_ids), folded_to)
    await connection.execute(_FORGET, list(job_ids))
    await jobs.write_rebuilt(connection, made)


async def behind_shadow(connection: engine.Connection, *, count: int) -> Sequence[str]:
    """Jobs to be replaced of which the log says more by now."""
    return [row["job_id"] for row in await connection.fetch(_BEHIND, count)]


async def replace(connection: engine.Connection, head: int) -> None:
    """Put the shadow's rows in place of the view's; needs the append lock and its transaction.

    That is recorded: whoever read rows before must learn that they may not be the same any more.
    """
    await connection.execute(_REMOVE, timeout=REPLACE_SECONDS)
    await connection.execute(_REPLACE, timeout=REPLACE_SECONDS)
    await connection.execute(_RECORD, head)
