-- The past: the same fold as the service's (model/job.py, evolve), from the log alone.

create function audit.head(out "position" bigint, out hash bytea, out epoch uuid)
    language sql stable parallel safe
begin atomic
    select coalesce(last.position, 0), coalesce(last.hash, decode(repeat('00', 32), 'hex')), (
        select ledger_epochs.epoch from public.ledger_epochs order by from_position desc limit 1
    )
    from (select) as one
    left join lateral (
        select e.position, e.hash from public.job_events as e order by e.position desc limit 1
    ) as last on true;
end;
----
comment on function audit.head() is
    'The end of the log: last position (0: empty), its hash (then 32 zero bytes), the epoch. Kept elsewhere it is '
    'the anchor against which a cut-off tail shows. One row.';
----
create function audit.position_at(at timestamptz) returns bigint
    language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp
as $$
declare
    low bigint := (select floor from public.ledger_info);
    high bigint := (select coalesce(max(position), 0) + 1 from public.job_events);
    probe record;
begin
    if at > clock_timestamp() then
        raise exception 'the log does not reach % yet', at
            using errcode = 'invalid_parameter_value', hint = 'Ask for a time that has passed.';
    end if;
    -- recorded_at never decreases with position, so halving finds the place without an index on it
    while low + 1 < high loop
        select position, recorded_at into probe from public.job_events
        where position > low and position <= (low + high) / 2 order by position desc limit 1;
        if not found then
            low := (low + high) / 2;
        elsif probe.recorded_at <= at then
            low := greatest(probe.position, (low + high) / 2);
        else
            high := probe.position;
        end if;
    end loop;
    return (
        select coalesce(max(position), (select floor from public.ledger_info)) from public.job_events
        where position <= low
    );
end
$$;
----
comment on function audit.position_at(timestamptz) is
    'The last position recorded at or before a moment; 0 (or the floor) before the first. Raises '
    'invalid_parameter_value for a moment to come.';
----
create function audit.require_known(at bigint) returns void
    language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp
as $$
declare
    head bigint := (select coalesce(max(position), 0) from public.job_events);
    floor bigint := (select ledger_info.floor from public.ledger_info);
begin
    if at is null or at < 0 or at > head then
        raise exception 'position % is not in the log, which ends at %', at, head
            using errcode = 'invalid_parameter_value', hint = 'audit.head() tells where it ends.';
    elsif at <= floor and floor > 0 then
        raise exception 'position % was pruned; the log begins after %', at, floor
            using errcode = 'invalid_parameter_value', hint = 'Ask for a later position.';
    end if;
end
$$;
----
comment on function audit.require_known(bigint) is
    'Raises invalid_parameter_value for a position beyond the head or pruned; 0, before the first event, is known.';
----
-- A part is a signal of several whose list is shorter than its count. Read as model/ranktable.py reads it.
create function audit.part_count(hccl text) returns bigint
    language plpgsql immutable parallel unsafe set search_path = pg_catalog, pg_temp
as $$
declare
    "table" jsonb;
    listed bigint := 0;
    said text;
begin
    "table" := hccl::jsonb;
    if jsonb_typeof("table" -> 'server_list') = 'array' then
        listed := jsonb_array_length("table" -> 'server_list');
    end if;
    said := "table" ->> 'server_count';
    if said ~ '^[0-9]{1,10}$' and said::bigint <= 2147483647 and said::bigint > listed then
        return said::bigint;
    end if;
    return null;
exception when others then
    return null;
end
$$;
----
comment on function audit.part_count(text) is
    'The server_count of a HcclJson that lists fewer servers than that; null for a whole one. Raises nothing.';
----
create function audit.table_digest(positions bigint[]) returns bytea
    language sql stable parallel safe
begin atomic
    select case count(*)
        when 1 then (array_agg(sha256(convert_to(hccl, 'UTF8'))))[1]
        else sha256(string_agg(sha256(convert_to(hccl, 'UTF8')), ''::bytea order by job_events.position))
    end
    from public.job_events where job_events.position = any (positions) and hccl is not null;
end;
----
comment on function audit.table_digest(bigint[]) is
    'The sha256 of the HcclJson at a position; of the parts'' sha256s, in position order, at several; null if none '
    'was given.';
----
-- One pass over events in (job_id, position) order. What of a job the service reads off its row (model/job.py) is
-- here a variable; parts wait in `arriving` until their generation is whole. force_custom_plan: the plan for one
-- job and that for all jobs are different ones.
create function audit.fold(only_job text, from_position bigint, up_to bigint, every_state boolean)
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
                if arriving is null or event.cm_index = any (arrived) or event.servers <> arriving_count
                    or (event.total, event.job_status, event.job_time)
                        is distinct from (job.total, job.job_status, job.job_time)
                then
                    arriving := '{}';
                    arrived := '{}';
                    arriving_count := event.servers;
                end if;
                arriving := arriving || event.position;
                arrived := arrived || event.cm_index;
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
comment on function audit.fold(text, bigint, bigint, boolean) is
    'What job_as_of, jobs_as_of and jobs_on_server share: the jobs that the events between two positions make, '
    'from nothing; of one job, or of all where it is null; their last states, or every state (then without '
    'hccl_digest, and with the positions of the table that shows alone). By job_id, then position.';
----
-- Only the life that the position falls into: it begins after the last delete before the last add.
create function audit.job_as_of(job text, at bigint) returns setof audit.jobs
    language plpgsql stable parallel unsafe rows 1 set search_path = pg_catalog, pg_temp
as $$
declare
    newest bigint;
    ended bigint;
begin
    perform audit.require_known(at);
    select position into newest from public.job_events
    where job_id = job and position <= at and operator = 'add' order by position desc limit 1;
    if not found then
        return;
    end if;
    select position into ended from public.job_events
    where job_id = job and position < newest and operator = 'delete' order by position desc limit 1;
    return query select * from audit.fold(job, coalesce(ended, 0) + 1, at, false);
end
$$;
----
comment on function audit.job_as_of(text, bigint) is
    'The job as it was after a position, by the log alone: a row of the shape of audit.jobs, none if it was not known '
    'then. Raises invalid_parameter_value for a position beyond the head or pruned. An index on (job_id, position) '
    'finds the events of that life; each costs about 20 microseconds.';
----
create function audit.job_as_of(job text, at timestamptz) returns setof audit.jobs
    language plpgsql stable parallel unsafe rows 1 set search_path = pg_catalog, pg_temp
as $$
begin
    return query select * from audit.job_as_of(job, audit.position_at(at));
end
$$;
----
comment on function audit.job_as_of(text, timestamptz) is
    'The job as it was at a moment of the ledger''s clock. Raises invalid_parameter_value for a moment to come or '
    'pruned. Write the type before a literal: timestamptz ''2023-05-01 00:00+08''.';
----
create function audit.jobs_as_of(at bigint) returns setof audit.jobs
    language plpgsql stable parallel unsafe rows 1000 set search_path = pg_catalog, pg_temp
as $$
begin
    perform audit.require_known(at);
    return query select * from audit.fold(null, 1, at, false);
end
$$;
----
comment on function audit.jobs_as_of(bigint) is
    'Every job as it was after a position, ended ones too, by the log alone: rows of the shape of audit.jobs, by job_id. '
    'Reads the whole log up to there. At the head it must equal audit.jobs. Raises as job_as_of.';
----
create function audit.jobs_as_of(at timestamptz) returns setof audit.jobs
    language plpgsql stable parallel unsafe rows 1000 set search_path = pg_catalog, pg_temp
as $$
begin
    return query select * from audit.jobs_as_of(audit.position_at(at));
end
$$;
----
comment on function audit.jobs_as_of(timestamptz) is
    'Every job as it was at a moment of the ledger''s clock. Raises as job_as_of.';
