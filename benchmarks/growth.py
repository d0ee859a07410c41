"""What a large log costs: appending to it, resuming in it, proving it, and its bytes on disk."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time

import asyncpg
import harness

from jobledger.model import selection

JOBS = 20_000
"""That the events tell of, again and again."""

LAST = 20_000
"""Events at the beginning, and at the end, whose rates are compared; of a short log a quarter."""


async def measure(events: int) -> list[harness.Row]:
    """All of it."""
    part = min(LAST, events // 4)
    async with harness.postgres() as server:
        async with harness.serving(server) as service:
            first = await harness.fill(service.grpc, part, jobs=JOBS)
            await harness.fill(service.grpc, events - 2 * part, jobs=JOBS)
            last = await harness.fill(service.grpc, part, jobs=JOBS)
            resumed = await resume(service, events)
        connection = await asyncpg.connect(server.dsn)
        count, table, indexes = await connection.fetchrow(
            "select max(position), pg_table_size('job_events'), pg_indexes_size('job_events') from job_events"
        ) or (0, 0, 0)
        await connection.close()
        began = time.perf_counter()
        verifying = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobledger", "verify"),
            env={**os.environ, "JOBLEDGER_DATABASE_URL": server.dsn},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await verifying.wait():
            raise SystemExit("the log did not verify")
        proved = time.perf_counter() - began
    of = f"{count:,} events"
    return [
        harness.Row(what=f"appends, the first {part:,}", value=first, unit="events/s", ratio=1.0),
        harness.Row(
            what=f"appends, the last {part:,} of {of}", value=last, unit="events/s", ratio=last / first
        ),
        harness.Row(
            what=f"resume after the middle of {of}, to the first event", value=resumed * 1000, unit="ms"
        ),
        harness.Row(what=f"verify {of}", value=proved, unit="s", note=f"{count / proved:,.0f} events/s"),
        harness.Row(what="table, an event", value=table / count, unit="bytes"),
        harness.Row(what="indexes, an event", value=indexes / count, unit="bytes"),
    ]


async def resume(service: harness.Service, events: int) -> float:
    """Seconds until a subscriber that was away has its first event."""
    connection = await asyncpg.connect(service.postgres)
    uuid = await connection.fetchval("select uuid from job_events where position = $1", events // 2)
    await connection.close()
    asked = harness.client_info(selection.StartFrom.SNAPSHOT, lastSeenUuid=str(uuid))
    reading = await harness.Reading.started("grpc", service.grpc_port, asked, readers=1, messages=1)
    return await reading.seconds()


async def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    print(harness.HEAD, *await measure(parser.parse_args().events), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
