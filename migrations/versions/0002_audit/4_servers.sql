-- Which jobs a server had. The index names every job that ever had it; their lives are folded again, because
-- what an event said holds until a later one says otherwise, and a part only once its table is whole.

create function audit.stays(server text)
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
            case when state.deleted_at is null and state.job_status not in ('complete', 'failed') then (
                select max(naming.position) from naming where naming.position = any (state.signal_positions)
            ) end as table_position
        from (select distinct naming.job_id from naming) as concerned,
             lateral audit.fold(concerned.job_id, 1, 9223372036854775807, true) as state
        window job as (partition by state.job_id order by state.last_position)
    ), numbered as (
        select states.*, count(*) filter (where states.table_position is null) over (
            partition by states.job_id order by states.since
        ) as stay
        from states
    )
    select
        numbered.job_id, min(numbered.since), (array_agg(numbered.until order by numbered.since desc))[1],
        max(numbered.table_position)
    from numbered where numbered.table_position is not null
    group by numbered.job_id, numbered.stay;
end;
----
comment on function audit.stays(text) is
    'When a job was on a server: from a position until before another, null while it is. What jobs_on_server shows.';
----
create function audit.jobs_on_server(server text, "between" int8range)
    returns table (
        job_id text, job_name text, namespace text, user_id text, from_position bigint, until_position bigint,
        since timestamptz, until timestamptz, table_position bigint
    )
    language sql stable parallel unsafe rows 1000
begin atomic
    select
        stay.job_id, arrival.job_name, arrival.namespace, arrival.user_id, stay.since, stay.until,
        arrival.recorded_at, departure.recorded_at, stay.table_position
    from audit.stays(server) as stay
    join public.job_events as arrival on arrival.position = stay.since
    left join public.job_events as departure on departure.position = stay.until
    where int8range(stay.since, stay.until) && "between"
    order by stay.since;
end;
----
comment on function audit.jobs_on_server(text, int8range) is
    'The jobs that had a server (its server_id or server_name) while the log stood within a range of positions, '
    'a row a stay. A stay: the job''s rank table names the server, and it is neither complete, failed nor '
    'deleted. until is null while it is there; table_position: the newest event of the stay that names the server. '
    'Finds jobs by the index job_events_servers_idx.';
----
create function audit.jobs_on_server(server text, "between" tstzrange default '(,)')
    returns table (
        job_id text, job_name text, namespace text, user_id text, from_position bigint, until_position bigint,
        since timestamptz, until timestamptz, table_position bigint
    )
    language sql stable parallel unsafe rows 1000
begin atomic
    select stay.* from audit.jobs_on_server(server, '(,)'::int8range) as stay
    where tstzrange(stay.since, stay.until, '[]') && "between"
    order by stay.from_position;
end;
----
comment on function audit.jobs_on_server(text, tstzrange) is
    'The same for a range of moments of the ledger''s clock, such as tstzrange(''2023-05-01+08'', ''2023-06-01+08''); '
    'without one, for ever. A stay that ends in the moment in which the range begins is in it.';
