"""A thousand subscribers come back at once: how long a user of REST waits meanwhile, and what Postgres reads.

They resume 100,000 events back, then a thousand stock clients take a snapshot of 10,000 jobs. Each time the
service has just started and has nothing in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import asyncpg
import calling
import harness
import reader

from jobledger import embedded
from jobledger.model import selection

SUBSCRIBERS = 1_000
JOBS = 10_000
MOST = 20_000_000
"""Messages to all subscribers together: beyond that each stops earlier."""

IDLE_SECONDS = 5.0
ROWS_A_REQUEST = 2
"""Of the log, that Postgres reads for a job by id: its event's size, and its rank table."""

LISTS = "/job.Job/SubscribeJobSummarySignalList"
FETCHED = (
    "select coalesce(idx_tup_fetch, 0) + seq_tup_read from pg_stat_user_tables where relname = 'job_events'"
)


async def measure(events: int) -> list[harness.Row]:
    """All of it."""
    jobs = min(JOBS, events)
    rows: list[harness.Row] = []
    async with harness.postgres() as server:
        async with harness.serving(server) as service:
            await harness.fill(service.grpc, events, jobs=jobs)
            # The first event has nothing before it to resume after, so that one is not missed.
            first = await _value(server.dsn, "select uuid::text from job_events where position = 1")
        back = harness.client_info(selection.StartFrom.SNAPSHOT, lastSeenUuid=str(first))
        stock = harness.client_info(selection.StartFrom.SNAPSHOT)

        def request(nth: int) -> bytes:
            return calling.get(f"/v4/cwai/job/job-{nth * 7919 % jobs}?regionID=default")

        async with harness.serving(server) as service:
            ends = time.perf_counter() + IDLE_SECONDS
            quiet = await calling.delays(service.http_port, request, lambda: time.perf_counter() > ends)
        idle = harness.percentile(quiet, 99) * 1000
        rows.append(harness.Row(what="REST, a job by id, idle, p99", value=idle, unit="ms", ratio=1.0))
        for what, asked, method, each, all_of_it in (
            ("resume", back, reader.METHOD, min(events - 1, MOST // SUBSCRIBERS), events - 1),
            ("take a snapshot", stock, LISTS, min(jobs, MOST // SUBSCRIBERS), jobs),
        ):
            alone = await _phase(server, 1, (asked, method), each, request)
            found = await _phase(server, SUBSCRIBERS, (asked, method), each, request)
            p99 = harness.percentile(found.waited, 99) * 1000
            note = f"{len(found.waited):,} requests; {each:,} of {all_of_it:,} events each"
            many = f"{SUBSCRIBERS:,} {what}"
            rows += [
                harness.Row(
                    what=f"REST while {many}, p99", value=p99, unit="ms", ratio=idle / p99, note=note
                ),
                harness.Row(what=f"{many}, in all", value=SUBSCRIBERS * each / found.took, unit="events/s"),
                harness.Row(
                    what=f"{many}, rows read from Postgres beside one alone",
                    value=found.rows / alone.rows,
                    unit="",
                ),
            ]
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    took: float
    """Seconds until all had all."""

    waited: Sequence[float]
    """Seconds that each REST request took meanwhile."""

    rows: int
    """Rows of the log that Postgres read, without those of the requests."""


async def _phase(
    server: embedded.Server, readers: int, asked: Sequence[str], each: int, request: Callable[[int], bytes]
) -> _Phase:
    before = await _value(server.dsn, FETCHED)
    over = asyncio.Event()
    async with harness.serving(server) as service:
        waiting = asyncio.create_task(calling.delays(service.http_port, request, over.is_set))
        reading = await harness.Reading.started(
            "grpc", service.grpc_port, *asked, readers=readers, messages=each
        )
        took = await reading.seconds()
        over.set()
        waited = await waiting
    # A session's statistics are certain to be there once it has ended.
    rows = int(await _value(server.dsn, FETCHED)) - int(before) - ROWS_A_REQUEST * len(waited)
    return _Phase(took=took, waited=waited, rows=rows)


async def _value(dsn: str, query: str) -> str | int:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    print(harness.HEAD, *await measure(parser.parse_args().events), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
