-- What the rest stands on: text read without raising, and an index from servers to events.
-- Statements are parted by lines of dashes.

create schema audit;
----
comment on schema audit is
    'The ledger for people: readable views, its past, and its proof. Reads only; docs/audit.md.';
----
-- plpgsql for its exception block: one row spoiled by hand must not end a query over all of them. A block is a
-- subtransaction, which parallel plans of Postgres 15 and 16 forbid, leader included: hence unsafe.
create function audit.as_json(given text) returns jsonb
    language plpgsql immutable strict parallel unsafe set search_path = pg_catalog, pg_temp
as $$
begin
    return given::jsonb;
exception when others then
    return null;
end
$$;
----
comment on function audit.as_json(text) is
    'The text as jsonb; null if it is no JSON, which only a row spoiled by hand is. Raises nothing.';
----
create function audit.as_moment(given text) returns timestamptz
    language plpgsql immutable strict parallel unsafe set search_path = pg_catalog, pg_temp
    set timezone = 'UTC' set datestyle = 'ISO, YMD'
as $$
begin
    return given::timestamptz;
exception when others then
    return null;
end
$$;
----
comment on function audit.as_moment(text) is
    'The RFC 3339 text of a description as a moment; null if it is none. Raises nothing.';
----
-- In public, beside the table whose index is made of it: a dump of that schema alone restores.
create function public.job_events_servers_parsed(hccl text) returns text[]
    language plpgsql immutable strict parallel unsafe set search_path = pg_catalog, pg_temp
as $$
begin
    return (
        select array_agg(name)
        from jsonb_path_query(hccl::jsonb, 'lax $.server_list[*]') as server,
             lateral (values (server ->> 'server_id'), (server ->> 'server_name')) as given (name)
        where length(name) between 1 and 256
    );
exception when others then
    return null;
end
$$;
----
comment on function public.job_events_servers_parsed(text) is
    'What job_events_servers says of a HcclJson that it cannot cut: one with spaces or escapes.';
----
-- The append runs this for every event with a rank table, so it cuts the text instead of parsing it, which takes a
-- fifth of the time: where no backslash is, every `"server_` is the start of a key. Names end where an index
-- entry would not take them: an event is not refused for that.
create function public.job_events_servers(hccl text) returns text[]
    language sql immutable strict parallel unsafe
    return case
        when strpos(hccl, '"server_list"') = 0 and strpos(hccl, '\') = 0 then null
        when strpos(hccl, '\') > 0 then public.job_events_servers_parsed(hccl)
        else (
            select case when bool_and(piece like 'id":"%' or piece like 'name":"%') then
                array_agg(split_part(piece, '"', 3)) filter (where length(split_part(piece, '"', 3)) between 1 and 256)
            else public.job_events_servers_parsed(hccl) end
            from unnest((string_to_array(hccl, '"server_'))[2:]) as piece
            where piece like 'id"%' or piece like 'name"%'
        )
    end;
----
comment on function public.job_events_servers(text) is
    'Every server_id and server_name of 1 to 256 characters in a HcclJson, in its order, repeated as it repeats '
    'them; null if there is none or it cannot be read. Raises nothing.';
----
-- fastupdate: new entries wait in a list, so that an append pays for one place and not for each server.
create index job_events_servers_idx on public.job_events using gin (public.job_events_servers(hccl))
    where hccl is not null;
