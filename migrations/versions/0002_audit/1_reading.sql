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
create function public.job_events_servers(hccl text) returns text[]
    language plpgsql immutable strict parallel unsafe set search_path = pg_catalog, pg_temp
as $$
begin
    -- {"status":"initializing"} and the like: too short to name a server
    if octet_length(hccl) < 32 then
        return null;
    end if;
    return (
        select array_agg(distinct name collate "C")
        from jsonb_path_query(hccl::jsonb, 'lax $.server_list[*]') as server,
             lateral (values (server ->> 'server_id'), (server ->> 'server_name'), (server ->> 'host_ip'))
                 as given (name)
        -- an index entry has an end, and an event is not refused for what one index cannot hold
        where length(name) between 1 and 256
    );
exception when others then
    return null;
end
$$;
----
comment on function public.job_events_servers(text) is
    'Every server_id, server_name and host_ip of 1 to 256 characters in a HcclJson, sorted; null if there is '
    'none or it cannot be read. Raises nothing: the append runs it.';
----
-- fastupdate: new entries wait in a list, so that an append pays for one place and not for each server.
create index job_events_servers_idx on public.job_events using gin (public.job_events_servers(hccl))
    where hccl is not null;
