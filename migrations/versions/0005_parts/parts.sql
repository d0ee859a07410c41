-- The fold of 0002, but that no table is complete by parts that are none of its places (cmIndex from 0 to total - 1).

-- One pass over events in (job_id, position) order. What of a job the service reads off its row (model/job.py) is
-- here a variable; parts wait in `arriving` until their generation is whole (model/parts.py). force_custom_plan:
-- the plan for one job and that for all jobs are different ones.
create or replace function audit.fold(only_job text, from_position bigint, up_to bigint, every_state boolean)
    returns setof audit.jobs
    language plpgsql stable parallel unsafe rows 10
    set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
as $$
declare
    event record;
    job audit.jobs;
    shown audit.jobs;
    live boolean;
    whole bigint[];
    arriving bigint[];
    arrived int[];
    place int;
    arriving_count bigint;
    before bigint[];
begin
    for event in
        select
            position, uuid, job_id, operator, job_status, job_name, namespace, framework, job_time, delete_time,
            cm_index, total, shared_tor_ip, master_addr, sid, region, account_id, user_id, recorded_at,
            audit.as_json(detail) as detail, hccl is not null as has_table,
            case when operator = 'add' and total > 1 then audit.part_count(hccl) end as servers
        from public.job_events
        where (only_job is null or job_id = only_job) and position between from_position and up_to
        order by job_id, position
    loop
        if job.job_id is distinct from event.job_id then
            if job.job_id is not null and not every_state then
                job.hccl_digest := audit.table_digest(whole);
                return next job;
            end if;
            job := null;
            live := false;
        end if;
        if event.operator = 'delete' then
            continue when not live;
            live := false;
            job.delete_time := event.delete_time;
            job.ended_at := coalesce(job.ended_at, event.delete_time, event.recorded_at);
            job.deleted_at := event.recorded_at;
        else
            if not live then
                job := null;
                job.job_id := event.job_id;
                job.version := 0;
                job.create_time := coalesce(
                    audit.as_moment(event.detail ->> 'createTime'), event.job_time, event.recorded_at
                );
                job.detail := null;
                whole := '{}';
                arriving := null;
            end if;
            before := whole;
            if event.servers is null then
                whole := array[event.position];
                arriving := null;
            else
                -- a part that names none of the places stays alone, with null for its place
                place := case when event.cm_index < event.total then event.cm_index end;
                if arriving is null or place is null or arrived[1] is null or place = any (arrived)
                    or event.servers <> arriving_count
                    or (event.total, event.job_status, event.job_time)
                        is distinct from (job.total, job.job_status, job.job_time)
                then
                    arriving := '{}';
                    arrived := '{}';
                    arriving_count := event.servers;
                end if;
                arriving := arriving || event.position;
                arrived := arrived || place;
                if cardinality(arrived) = event.total then
                    whole := arriving;
                end if;
            end if;
            if event.detail is not null then
                job.detail := event.detail;
            elsif live and job.detail is not null then
                if event.job_status <> job.job_status then
                    job.detail := job.detail - array['status', 'finishTime'];
                end if;
                if job.detail ?| array['pods', 'replicas']
                    and audit.table_digest(before) is distinct from audit.table_digest(whole)
                then
                    job.detail := job.detail - array['pods', 'replicas'];
                end if;
            end if;
            if event.job_status not in ('complete', 'failed') then
                job.ended_at := null;
            else
                job.ended_at := coalesce(job.ended_at, event.delete_time, event.recorded_at);
            end if;
            live := true;
            job.region := event.region;
            job.account_id := event.account_id;
            job.user_id := event.user_id;
            job.job_name := event.job_name;
            job.namespace := event.namespace;
            job.framework := event.framework;
            job.job_status := event.job_status;
            job.job_time := event.job_time;
            job.delete_time := event.delete_time;
            job.cm_index := event.cm_index;
            job.total := event.total;
            job.shared_tor_ip := event.shared_tor_ip;
            job.master_addr := event.master_addr;
            job.sid := event.sid;
            job.signal_positions := case
                when arriving is null or arriving = whole then whole else whole || arriving
            end;
        end if;
        job.version := job.version + 1;
        job.last_position := event.position;
        job.last_uuid := event.uuid;
        job.changed_at := event.recorded_at;
        if every_state then
            shown := job;
            shown.signal_positions := whole;
            return next shown;
        end if;
    end loop;
    if job.job_id is not null and not every_state then
        job.hccl_digest := audit.table_digest(whole);
        return next job;
    end if;
end
$$;
----
alter table public.jobs add column arriving text;
----
-- Rows whose newest add is a part were made as if it were whole. All others are right: null is a whole one.
with parted as (
    select job_id from public.jobs
    where total > 1 and audit.part_count((
        select hccl from public.job_events where position = jobs.signal_positions[cardinality(jobs.signal_positions)]
    )) is not null
), folded as (
    select last.job_id, last.signal_positions, last.hccl_digest, (
        select state.signal_positions from audit.fold(parted.job_id, 1, 9223372036854775807, true) as state
        order by state.last_position desc limit 1
    ) as whole
    from parted, lateral audit.fold(parted.job_id, 1, 9223372036854775807, false) as last
), came as (
    select folded.job_id, event.total, audit.part_count(event.hccl) as server_count, event.position, event.hccl,
           case when event.cm_index < event.total then event.cm_index end as place
    from folded,
         lateral unnest(case
             when signal_positions = whole then whole else signal_positions[cardinality(whole) + 1:]
         end) as part (position)
    join public.job_events as event on event.position = part.position
), arriving as (
    select job_id, format(
        '{"total":%s,"server_count":%s,"places":[%s],"digests":[%s]}', min(total), min(server_count),
        string_agg(coalesce(place::text, 'null'), ',' order by position),
        string_agg(to_json(encode(sha256(convert_to(hccl, 'UTF8')), 'base64'))::text, ',' order by position)
    ) as arriving
    from came group by job_id
)
update public.jobs
set signal_positions = folded.signal_positions, hccl_digest = folded.hccl_digest, arriving = arriving.arriving
from folded join arriving using (job_id) where jobs.job_id = folded.job_id;
