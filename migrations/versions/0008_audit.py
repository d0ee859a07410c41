"""``audit.stays`` compares no state of a job with every event, and ``audit.link`` takes any time.

The first was quadratic: a server that 10,000 events name took half a minute, and takes half a second now.
Which of the tables that a job held name the server is found by sorting. A join would do as well, but where
Postgres guesses that there is one row, it plans a join as the same loop again.

The second makes a hash of a row whose ``recorded_at`` was spoiled to infinity, too: ``audit.verify`` ended
in an error there, and now names the row. Of every other row the hash is what it was.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    create or replace function audit.stays(server text)
        returns table (job_id text, since bigint, until bigint, table_position bigint)
        language sql stable parallel unsafe rows 1000
    begin atomic
        with naming as materialized (
            select event.position, event.job_id from public.job_events as event
            where event.hccl is not null and public.job_events_servers(event.hccl) @> array[server]
        ), states as (
            select
                state.job_id, state.last_position as since,
                lead(state.last_position) over job as until,
                case
                    when state.deleted_at is null and state.job_status not in ('complete', 'failed')
                    then state.signal_positions
                end as tables
            from (select distinct naming.job_id from naming) as concerned,
                 lateral audit.fold(concerned.job_id, 1, 9223372036854775807, true) as state
            window job as (partition by state.job_id order by state.last_position)
        ), held as (
            select states.job_id, states.since, states.until, part.position
            from states left join lateral unnest(states.tables) as part (position) on true
            union all
            -- no state, but what names the server
            select null, null, null, naming.position from naming
        ), found as (
            select held.*, bool_or(held.since is null) over (partition by held.position) as names from held
        ), placed as (
            select
                found.job_id, found.since, found.until,
                max(found.position) filter (where found.names) as table_position
            from found where found.since is not null
            group by found.job_id, found.since, found.until
        ), numbered as (
            select placed.*, count(*) filter (where placed.table_position is null) over (
                partition by placed.job_id order by placed.since
            ) as stay
            from placed
        )
        select
            numbered.job_id, min(numbered.since), (array_agg(numbered.until order by numbered.since desc))[1],
            max(numbered.table_position)
        from numbered where numbered.table_position is not null
        group by numbered.job_id, numbered.stay;
    end
    """,
    """
    create or replace function audit.link(previous bytea, event public.job_events) returns bytea
        language sql immutable parallel safe
        return sha256(
            previous || int8send(event.position) || uuid_send(event.uuid) || event.content_hash
            || int8send(
                case
                    when isfinite(event.recorded_at)
                    then (extract(epoch from event.recorded_at) * 1000000)::bigint
                    else -1
                end
            )
            || audit.length_prefixed(event.signal)
            || audit.length_prefixed(convert_to(event.hccl, 'UTF8'))
            || audit.length_prefixed(convert_to(event.detail, 'UTF8'))
            || audit.length_prefixed(convert_to(event.region, 'UTF8'))
            || audit.length_prefixed(convert_to(event.account_id, 'UTF8'))
            || audit.length_prefixed(convert_to(event.user_id, 'UTF8'))
            || audit.length_prefixed(convert_to(event.publisher, 'UTF8'))
        )
    """,
)


def upgrade() -> None:
    """Replace the function."""
    for statement in STATEMENTS:
        op.execute(statement)
