-- The tables as people read them. With the reader's own rights: nobody sees more through a view.

create view audit.events with (security_invoker = true) as
select
    position, uuid, job_id, operator, job_status, job_name, namespace, framework, job_time, delete_time,
    cm_index, total, audit.as_json(nullif(shared_tor_ip, '')) as shared_tor_ip, master_addr, sid,
    region, account_id, user_id, publisher,
    audit.as_json(hccl) as hccl, audit.as_json(detail) as detail,
    size, left_namespace, left_framework, recorded_at, content_hash, hash
from public.job_events;
----
comment on view audit.events is
    'Every event in the log, one a row: what was said, by whom (publisher), when it was recorded. JSON as jsonb, '
    'null where not given or unreadable; "" in a text is not given. The bytes as kept are in public.job_events.';
----
create view audit.jobs with (security_invoker = true) as
select
    job_id, region, account_id, user_id, job_name, namespace, framework, job_status, job_time, delete_time,
    cm_index, total, shared_tor_ip, master_addr, sid, hccl_digest, audit.as_json(detail) as detail,
    create_time, ended_at, version, last_position, last_uuid, changed_at, deleted_at, signal_positions
from public.jobs;
----
comment on view audit.jobs is
    'Each job as it is now, ended ones too (deleted_at), from the view that the service keeps. job_as_of and '
    'jobs_as_of make the same rows from the log alone.';
----
create view audit.event_servers with (security_invoker = true) as
select
    events.position, events.job_id, events.operator, events.job_status, events.recorded_at,
    server ->> 'server_id' as server_id, server ->> 'server_name' as server_name, server ->> 'host_ip' as host_ip,
    server ->> 'pod_name' as pod_name,
    case jsonb_typeof(server -> 'device') when 'array' then jsonb_array_length(server -> 'device') else 0 end
        as devices
from public.job_events as events,
     lateral jsonb_path_query(audit.as_json(events.hccl), 'lax $.server_list[*]') as server
where events.hccl is not null;
----
comment on view audit.event_servers is
    'The servers that an event names, one a row, with how many devices of each; an event without a rank table has '
    'no row. Which servers a job had in between: jobs_on_server.';
----
create view audit.publishers with (security_invoker = true) as
select
    publisher, count(*) as events, count(*) filter (where operator = 'add') as adds,
    count(*) filter (where operator = 'delete') as deletes, count(distinct job_id) as jobs,
    min(position) as first_position, max(position) as last_position,
    min(recorded_at) as first_at, max(recorded_at) as last_at
from public.job_events
group by publisher;
----
comment on view audit.publishers is
    'Who said how much: events, of which adds and deletes, on how many jobs, from when to when. Reads the whole log.';
----
-- boundary: where a status begins, or a delete ends one. lead() among the boundaries alone finds its end without
-- looking at every row in between.
create view audit.job_history with (security_invoker = true) as
select
    job_id, life, position, uuid, recorded_at, publisher, operator, job_status, changes,
    detail is not null as described, begins_status,
    case when begins_status then lead(recorded_at) over (
        partition by job_id, boundary order by position
    ) - recorded_at end as held
from (
    select
        lived.*,
        begins_status or (operator = 'delete' and alive) as boundary,
        case
            when operator = 'add' then (
                select coalesce(jsonb_object_agg(name, jsonb_build_array(before, now)), '{}')
                from (values
                    ('job_status', (previous).job_status, job_status),
                    ('job_name', (previous).job_name, job_name),
                    ('namespace', (previous).namespace, namespace),
                    ('framework', (previous).framework, framework),
                    ('job_time', (previous).job_time::text, job_time::text),
                    ('delete_time', (previous).delete_time::text, delete_time::text),
                    ('cm_index', (previous).cm_index::text, cm_index::text),
                    ('total', (previous).total::text, total::text),
                    ('shared_tor_ip', (previous).shared_tor_ip, shared_tor_ip),
                    ('master_addr', (previous).master_addr, master_addr),
                    ('sid', (previous).sid, sid),
                    ('region', (previous).region, region),
                    ('account_id', (previous).account_id, account_id),
                    ('user_id', (previous).user_id, user_id)
                ) as field (name, was, is_now),
                lateral (select nullif(was, '') as before, nullif(is_now, '') as now) as given
                where before is distinct from now
            ) || case when (previous).hccl is distinct from hccl then jsonb_build_object('hccl', jsonb_build_array(
                encode(sha256(convert_to((previous).hccl, 'UTF8')), 'hex'),
                encode(sha256(convert_to(hccl, 'UTF8')), 'hex')
            )) else '{}' end
            when alive then jsonb_build_object('deleted', jsonb_build_array(null, recorded_at))
        end as changes
    from (
        select
            seen.*,
            count(*) filter (where operator = 'add' and not alive) over job as life,
            operator = 'add' and (not alive or job_status <> (previous).job_status) as begins_status
        from (
            select
                event.*,
                coalesce(lag(operator) over job = 'add', false) as alive,
                case when lag(operator) over job = 'add' then lag(event) over job end as previous
            from public.job_events as event
            window job as (partition by job_id order by position)
        ) as seen
        window job as (partition by job_id order by position)
    ) as lived
) as told;
----
comment on view audit.job_history is
    'What each event of a job changed, in position order; ask for one job_id. life: 1 for the first, one more each '
    'time that the job was added after a delete. changes: {field: [before, after]}, null is not given, hccl as its '
    'sha256; null as a whole: the event changed nothing (a delete of a job that was not there). held: on the '
    'event that begins a status, for how long it held by the ledger''s clock, null while it does.';
----
comment on column audit.job_history.described is 'Whether the event carried a CWAI description.';
----
comment on column audit.job_history.begins_status is
    'Whether the job''s status is another than before, or its life begins; such rows have held.';
