-- The proof: the chain, and what the typed columns say against the signal as it was kept.
-- Functions with a body that is parsed when it is made need no search_path: every name is bound already.

create function audit.length_prefixed(bytes bytea) returns bytea
    language sql immutable parallel safe
    return coalesce(int4send(octet_length(bytes)) || bytes, int4send(-1));
----
comment on function audit.length_prefixed(bytea) is
    'lp of the hash formula: int4 length and the bytes, int4 -1 for null; big-endian.';
----
create function audit.link(previous bytea, event public.job_events) returns bytea
    language sql immutable parallel safe
    return sha256(
        previous || int8send(event.position) || uuid_send(event.uuid) || event.content_hash
        || int8send((extract(epoch from event.recorded_at) * 1000000)::bigint)
        || audit.length_prefixed(event.signal)
        || audit.length_prefixed(convert_to(event.hccl, 'UTF8'))
        || audit.length_prefixed(convert_to(event.detail, 'UTF8'))
        || audit.length_prefixed(convert_to(event.region, 'UTF8'))
        || audit.length_prefixed(convert_to(event.account_id, 'UTF8'))
        || audit.length_prefixed(convert_to(event.user_id, 'UTF8'))
        || audit.length_prefixed(convert_to(event.publisher, 'UTF8'))
    );
----
comment on function audit.link(bytea, public.job_events) is
    'The hash that a row must have after the hash of the row before it (32 zero bytes before the first): the '
    'formula of docs/audit.md.';
----
create function audit.signal_fields(signal bytea) returns text[]
    language plpgsql immutable strict parallel unsafe set search_path = pg_catalog, pg_temp
as $$
declare
    fields text[] := array_fill(''::text, array[15]);
    length int := octet_length(signal);
    at int := 0;
    number bigint;
    value bigint;
    kind int;
    octet int;
    shift int;
begin
    fields[10] := null;
    fields[16] := null;
    while at < length loop
        number := 0;
        shift := 0;
        loop
            octet := get_byte(signal, at);
            at := at + 1;
            number := number | ((octet & 127)::bigint << shift);
            exit when octet < 128;
            shift := shift + 7;
            if shift > 28 then
                return null;
            end if;
        end loop;
        kind := (number & 7)::int;
        number := number >> 3;
        if number = 0 or (number <= 15 and kind <> 2) then
            return null;
        elsif kind = 1 or kind = 5 then
            at := at + case kind when 1 then 8 else 4 end;
        elsif kind = 0 or kind = 2 then
            value := 0;
            shift := 0;
            loop
                octet := get_byte(signal, at);
                at := at + 1;
                if shift < 63 then
                    value := value | ((octet & 127)::bigint << shift);
                end if;
                exit when octet < 128;
                shift := shift + 7;
                if shift > 63 then
                    return null;
                end if;
            end loop;
            if kind = 2 then
                if value < 0 or value > length - at then
                    return null;
                end if;
                if number <= 15 then
                    fields[number] := convert_from(substring(signal from at + 1 for value::int), 'UTF8');
                end if;
                at := at + value::int;
            end if;
        else
            return null;
        end if;
        if number in (100, 101) then
            fields[16] := number::text;
        end if;
    end loop;
    return case when at = length then fields end;
exception when others then
    return null;
end
$$;
----
comment on function audit.signal_fields(bytea) is
    'The string fields 1 to 15 of a JobSummarySignal in protobuf by their numbers, "" where not given; 10 (HcclJson) is '
    'null, and so is a 16th, which else names a field of our own (100, 101) that has no place there. Null if the '
    'bytes are no such message. Raises nothing.';
----
create function audit.varint_bytes(value bigint) returns int
    language sql immutable parallel safe
    return case
        when value < 128 then 1 when value < 16384 then 2 when value < 2097152 then 3
        when value < 268435456 then 4 else 5
    end;
----
comment on function audit.varint_bytes(bigint) is 'Bytes that protobuf takes for a non-negative number below 2^35.';
----
create function audit.contradiction(event public.job_events) returns text
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
        ('left_framework', event.left_framework, left_framework)
    ) as compared (name, kept, expected)
    where kept is distinct from expected limit 1;
    if found then
        return format('%s is %s, but %s by the signal%s', wrong.name, coalesce(quote_literal(wrong.kept), 'null'),
            coalesce(quote_literal(wrong.expected), 'null'),
            case when wrong.name like 'left%' then ' and the job before' else '' end);
    end if;
    return null;
end
$$;
----
comment on function audit.contradiction(public.job_events) is
    'The first column that says something else than the signal as it was kept: typed columns, size, and what the job '
    'left. Null if all agree. content_hash is of the event as given, which is not kept: the chain alone protects it.';
----
-- Page by page: memory stays bounded, and the first bad row ends it. All pages see the snapshot of the calling
-- statement, so appends may go on.
create function audit.verify(
    from_position bigint default null, to_position bigint default null, deep boolean default false,
    out ok boolean, out checked bigint, out first_bad bigint, out reason text
)
    language plpgsql stable parallel unsafe set search_path = pg_catalog, pg_temp
as $$
declare
    floor bigint := (select ledger_info.floor from public.ledger_info);
    head bigint := (select coalesce(max(position), 0) from public.job_events);
    at bigint := coalesce(from_position, floor + 1);
    upto bigint := coalesce(to_position, head);
    page_end bigint;
    start bigint;
    page record;
begin
    if at <= floor or (to_position is not null and to_position < at) then
        raise exception 'positions % to % cannot be checked; the log goes from % to %', at, upto, floor + 1, head
            using errcode = 'invalid_parameter_value';
    end if;
    checked := 0;
    while at <= upto and first_bad is null loop
        page_end := least(at + 9999, upto);
        -- the row before is wanted for its hash, but for the first one of the log
        start := case when at - 1 in (0, floor) then at else at - 1 end;
        select
            count(*) filter (where judged.position >= at) as rows,
            coalesce(max(judged.position) + 1, start) as next,
            min(judged.bad) as bad,
            (array_agg(judged.problem order by judged.bad) filter (where judged.bad is not null))[1] as problem
        into page
        from (
            select
                linked.position, problem,
                case when problem = 'missing' then due when problem is not null then linked.position end as bad
            from (
                select
                    position, coalesce(lag(position) over place + 1, start) as due, lag(hash) over place as previous
                from public.job_events
                where position between start and page_end
                window place as (order by position)
            ) as linked
            -- read again: whole rows are too large to go through a window
            join public.job_events as event on event.position = linked.position,
            lateral (select case
                when linked.position > due then 'missing'
                when linked.position < at then null
                when (linked.position = 1 or previous is not null)
                    and audit.link(coalesce(previous, decode(repeat('00', 32), 'hex')), event) <> event.hash
                    then 'hash does not follow from this row and the hash before it: this row was changed'
                when deep then audit.contradiction(event)
            -- offset 0 keeps this a subquery of its own: pulled up, it would run once for each use of its result
            end as problem offset 0) as judgement
        ) as judged;
        if page.bad is null and page.next <= page_end then
            page.bad := page.next;
            page.problem := 'missing';
        end if;
        checked := checked + page.rows;
        first_bad := page.bad;
        reason := page.problem;
        at := page_end + 1;
    end loop;
    ok := first_bad is null;
    if reason = 'missing' then
        reason := format('position %s is missing', first_bad)
            || case when first_bad > head then format(': the log ends at %s', head) else '' end;
    end if;
end
$$;
----
comment on function audit.verify(bigint, bigint, boolean) is
    'Whether the log is whole from one position to another, both included (default: all of it): no position missing, '
    'every hash follows from its row and the one before; from > 1 takes the hash at from - 1 as given. deep also '
    'decodes each signal and compares the typed columns, size and left_* with it. Always one row: ok, how many '
    'rows were looked at, the first bad position, and why. Up to a position beyond the head it says that this is '
    'missing: so a cut-off tail shows, if its position is known. Raises invalid_parameter_value for a range that '
    'is empty or pruned.';
