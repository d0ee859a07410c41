"""The servers that an event's rank table names, as a column: the service read the table already.

The index had Postgres cut them out of HcclJson again for every event, a third of its time for a table of
20 KB and a quarter for a small one. It still does where the column is null: in the rows that are there, in
those of a replica of the release before, still running, and where a table is not as it should be.

One text, a name a line: of an array, the driver asks of each element what it is, 35 µs for 40 names.

The index is made anew, which takes about a minute for a million events; appends wait meanwhile.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE job_events ADD COLUMN servers text",
    """
    CREATE TYPE job_event_row_2 AS (
        position bigint, uuid uuid, job_id text, operator text, job_status text, job_name text,
        namespace text, framework text, job_time timestamptz, delete_time timestamptz, cm_index integer,
        total integer, shared_tor_ip text, master_addr text, sid text, region text, account_id text,
        user_id text, publisher text, hccl text, detail text, signal bytea, content_hash bytea, size integer,
        left_namespace text, left_framework text, recorded_at timestamptz, hash bytea, servers text
    )
    """,
    """
    COMMENT ON TYPE job_event_row_2 IS
        'A row of job_events as an append sends it; job_event_row is what the release before sends.'
    """,
    "DROP INDEX job_events_servers_idx",
    """
    CREATE INDEX job_events_servers_idx
        ON job_events USING gin (coalesce(string_to_array(servers, chr(10)), job_events_servers(hccl)))
        WHERE hccl IS NOT NULL
    """,
    """
    create or replace function audit.stays(server text)
        returns table (job_id text, since bigint, until bigint, table_position bigint)
        language sql stable parallel unsafe rows 1000
    begin atomic
        with naming as materialized (
            select event.position, event.job_id from public.job_events as event
            where event.hccl is not null
                and coalesce(string_to_array(event.servers, chr(10)), public.job_events_servers(event.hccl))
                    @> array[server]
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
    create or replace function audit.contradiction(event public.job_events) returns text
        language plpgsql stable parallel unsafe set search_path = pg_catalog, pg_temp
    as $$
    declare
        fields text[] := audit.signal_fields(event.signal);
        bytes bigint := octet_length(convert_to(event.hccl, 'UTF8'));
        size bigint := octet_length(event.signal) + coalesce(1 + audit.varint_bytes(bytes) + bytes, 0);
        followed text;
        left_namespace text;
        left_framework text;
        wrong record;
    begin
        if fields is null then
            return 'signal is not a JobSummarySignal';
        elsif fields[10] is not null or fields[16] is not null then
            return format('signal holds field %s, which has a column of its own', coalesce(fields[16], '10'));
        elsif event.hccl = '' then
            return 'hccl is empty, not null';
        end if;
        select operator, nullif(namespace, event.namespace), nullif(framework, event.framework)
        into followed, left_namespace, left_framework from public.job_events
        where job_id = event.job_id and position < event.position order by position desc limit 1;
        if followed = 'delete' then
            left_namespace := null;
            left_framework := null;
        end if;
        select * into wrong from (values
            ('uuid', event.uuid::text, fields[1]),
            ('job_id', event.job_id, fields[2]),
            ('job_name', event.job_name, fields[3]),
            ('namespace', event.namespace, fields[4]),
            ('framework', event.framework, fields[5]),
            ('job_status', event.job_status, fields[6]),
            ('job_time', extract(epoch from event.job_time)::text, nullif(fields[7], '') || '.000000'),
            ('cm_index', event.cm_index::text, nullif(fields[8], '')),
            ('total', event.total::text, nullif(fields[9], '')),
            ('delete_time', extract(epoch from event.delete_time)::text, nullif(fields[11], '') || '.000000'),
            ('shared_tor_ip', event.shared_tor_ip, fields[12]),
            ('master_addr', event.master_addr, fields[13]),
            ('operator', event.operator, fields[14]),
            ('sid', event.sid, fields[15]),
            ('size', event.size::text, size::text),
            ('left_namespace', event.left_namespace, left_namespace),
            ('left_framework', event.left_framework, left_framework),
            ('servers', event.servers, case
                when event.servers is not null
                then coalesce(
                    array_to_string(public.job_events_servers_parsed(event.hccl), chr(10)),
                    -- what jsonb cannot hold, JSON can name servers in
                    case when event.hccl <> '' and audit.as_json(event.hccl) is null then event.servers end,
                    ''
                )
            end)
        ) as compared (name, kept, expected)
        where kept is distinct from expected limit 1;
        if found then
            return format('%s is %s, but %s by the signal%s', wrong.name,
                coalesce(quote_literal(wrong.kept), 'null'), coalesce(quote_literal(wrong.expected), 'null'),
                case when wrong.name like 'left%' then ' and the job before' else '' end);
        end if;
        return null;
    end
    $$;
    """,
)


def upgrade() -> None:
    """Add the column, have the index and what reads it look there first, and have it proved."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
