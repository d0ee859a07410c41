"""REST: a job by id against aiohttp's hello, 304, and lists of many jobs.

    python benchmarks/rest.py [--jobs 1000000] [--seconds 5]

Starts the service on an embedded Postgres of its own; jobs are made by SQL, one event each.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

import aiohttp
import asyncpg
import calling
import harness
import lists

ROUNDS: Final = 3
REGION: Final = lists.REGION

EVENTS = """
    insert into job_events
    select n, gen_random_uuid(), 'job-' || lpad(n::text, 8, '0'), 'add',
           (array['pending','running','complete','failed'])[1 + n % 4],
           'train-' || n, 'ns-' || n % 50, 'pytorch', t, null, 0, 1, '', '', '', 'r',
           'account-' || n % 100, 'user-' || n % 1000, 'benchmark', null,
           '{"queueID":"q-' || n % 20 || '"}', '\\x', sha256(n::text::bytea), 100,
           null, null, t, sha256(n::text::bytea)
    from generate_series(1, $1) as n,
         lateral (select timestamptz '2024-01-01' + n * interval '1 second' as t) as made
"""
JOBS = """
    insert into jobs
    select job_id, region, account_id, user_id, job_name, namespace, framework, job_status, job_time,
           null, 0, 1, '', '', '', null, detail, job_time,
           case when job_status in ('complete','failed') then job_time end,
           1, position, uuid, recorded_at, null, array[position], job_name,
           initcap(job_status), framework, detail::jsonb ->> 'queueID', '',
           case when job_status in ('complete','failed') then job_time end, true
    from job_events
"""


async def fill(dsn: str, jobs: int) -> None:
    """Make jobs, and vacuum as autovacuum would have."""
    connection = await asyncpg.connect(dsn)
    for statement, arguments in ((EVENTS, (jobs,)), (JOBS, ()), ("vacuum analyze", ())):
        await connection.execute(statement, *arguments)
    await connection.close()


async def by_id(
    service: harness.Service, jobs: int, seconds: float
) -> AsyncGenerator[dict[str, calling.Rate]]:
    """A job by id, 304, and hello, in turns; hello is the first."""

    def target(nth: int) -> str:
        return f"/v4/cwai/job/job-{1 + nth * 7919 % jobs:08}?regionID={REGION}"

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{service.http}{target(0)}") as answer,
    ):
        etag = answer.headers["ETag"]
    asked: dict[str, Callable[[int], bytes]] = {
        "job by id, another each time": lambda nth: calling.get(target(nth)),
        "job by id, of 1,000": lambda nth: calling.get(target(nth % 1000)),
        "304": lambda _: calling.get(target(0), f"If-None-Match: {etag}\r\n"),
    }
    async with calling.hello() as hello:
        for _ in range(ROUNDS):
            plain = await calling.rate(hello, lambda _: calling.get("/"), seconds)
            rows = {"aiohttp's hello": plain}
            for name, request in asked.items():
                rows[name] = await calling.rate(calling.Asked.http(service), request, seconds)
            yield rows


def show(rows: dict[str, calling.Rate]) -> None:
    """One round, with what the processor did."""
    plain = next(iter(rows.values()))
    for name, each in rows.items():
        took = each.server_microseconds + each.postgres_microseconds
        print(
            f"| {name} | {each.each_second:,.0f}/s | {each.each_second / plain.each_second:.2f}"
            f" | {each.server_microseconds:.0f} + {each.postgres_microseconds:.0f} µs"
            f" | {plain.server_microseconds / took:.2f} |"
        )


async def measure(jobs: int, seconds: float = 5.0) -> list[harness.Row]:
    """The last round of a job by id."""
    rows: dict[str, calling.Rate] = {}
    async with harness.serving() as service:
        await fill(service.postgres, jobs)
        async for found in by_id(service, jobs, seconds):
            rows = found
    plain = next(iter(rows.values())).each_second
    return [
        harness.Row(
            what=f"{name}, {calling.CONNECTIONS} connections, {jobs:,} jobs",
            value=each.each_second,
            unit="/s",
            ratio=each.each_second / plain,
        )
        for name, each in rows.items()
    ]


async def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    print(harness.machine())
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(harness.serving())
        began = time.perf_counter()
        await fill(service.postgres, given.jobs)
        print(f"{given.jobs} jobs made in {time.perf_counter() - began:.0f} s\n")
        print("| at 64 connections | rate | of hello | processor time: server + Postgres | of hello |")
        print("|---|---|---|---|---|")
        async for rows in by_id(service, given.jobs, given.seconds):
            show(rows)
        print("\n| list, 2 connections | first, counted | page p50 | p99 |\n|---|---|---|---|")
        await lists.present(service.http_port, given.seconds)
        await lists.past(service.http_port, given.jobs, given.seconds)


if __name__ == "__main__":
    asyncio.run(main())
