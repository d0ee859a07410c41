"""Appends a second through AppendStream, beside pgbench's plain single-row insert on the same server.

The plain insert is the unsafe way: a sequence hands out numbers before commit, there is no chain, no view
and no answer to a retry. It is what the database alone gives.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import harness

PUBLISHERS = 128
CHANNELS = 8
EVENTS = 10
"""Of a message."""

SHAPES = ((PUBLISHERS, EVENTS), (1, 1), (1, 200), (32, 50), (PUBLISHERS, 1))
"""Publishers, and events a message."""

SECONDS = 10.0
LONG_SECONDS = 40.0
"""So long that the kernel comes to write what Postgres left to it: half a minute later."""

PGBENCH_CLIENTS = 32
PGBENCH_SECONDS = 5.0
PGBENCH = shutil.which("pgbench") or str(next(Path("/usr/lib/postgresql").glob("*/bin/pgbench"), "pgbench"))
INSERT = f"insert into plain (payload) values (decode(repeat('61', {harness.EVENT_BYTES}), 'hex'));\n"  # noqa: S608


async def through_append_stream(
    service: harness.Service, *, publishers: int, events: int, rate: float = 0, seconds: float = SECONDS
) -> tuple[float, list[float]]:
    """Events a second, and the milliseconds that each message took; a closed loop unless a rate is given.

    The rate is of events a second in all.
    """
    before = await harness.recorded(service.postgres)
    options = (service.grpc_port, CHANNELS, publishers, before, seconds, *([rate / events] if rate else ()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("writer.py")), *map(str, options)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate(harness.template_request(events))
    told = json.loads(out)
    recorded = await harness.recorded(service.postgres) - before
    if recorded != told["messages"] * events:
        raise SystemExit(f"{told['messages']} messages of {events} events, and {recorded} in the log")
    return told["measured"] * events / told["seconds"], told["delays"]


async def plain_inserts(dsn: str) -> float:
    """Rows a second of pgbench, one a transaction, of the same size, on the same server."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "create table if not exists plain (position bigserial primary key, payload bytea not null)"
    )
    await connection.close()
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(INSERT)
        script.flush()
        clients = ("-c", str(PGBENCH_CLIENTS), "-j", "2", "-T", str(max(1, round(PGBENCH_SECONDS))))
        done = await asyncio.to_thread(
            subprocess.run,
            [PGBENCH, "-n", "-M", "prepared", *clients, "-f", script.name, dsn],
            check=True,
            capture_output=True,
            text=True,
        )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found is not None, done.stdout  # noqa: S101 - pgbench's last line
    return float(found[1])


async def measure() -> list[harness.Row]:
    """All of it. The peer runs before and after each: a shared machine changes its speed by the minute."""
    async with harness.serving() as service:
        plain = [await plain_inserts(service.postgres)]
        rows: list[harness.Row] = []
        rates: dict[tuple[int, int], float] = {}
        for publishers, events in SHAPES:
            reached, delays = await through_append_stream(service, publishers=publishers, events=events)
            plain.append(await plain_inserts(service.postgres))
            rates[publishers, events] = reached
            beside = statistics.mean(plain[-2:])
            rows.append(_row(publishers, events, reached, delays, ratio=reached / beside))
        # As in a database that has run for a while.
        await harness.checkpoint(service.postgres)
        for seconds in (SECONDS, LONG_SECONDS):
            reached, delays = await through_append_stream(
                service,
                publishers=PUBLISHERS,
                events=EVENTS,
                rate=rates[PUBLISHERS, EVENTS] / 2,
                seconds=seconds,
            )
            how = f", open loop at half of that for {seconds:g} s"
            rows.append(_row(PUBLISHERS, EVENTS, reached, delays, how=how))
    peer = harness.Row(
        what=f"pgbench, plain insert, {PGBENCH_CLIENTS} clients",
        value=statistics.mean(plain),
        unit="rows/s",
        ratio=1.0,
        note=f"before and after each of the next five, {min(plain):,.0f} to {max(plain):,.0f}",
    )
    return [peer, *rows]


def _row(
    publishers: int,
    events: int,
    reached: float,
    delays: Sequence[float],
    *,
    how: str = "",
    ratio: float | None = None,
) -> harness.Row:
    shares = ", ".join(f"p{p} {harness.percentile(delays, p):.1f} ms" for p in (50, 90, 99))
    return harness.Row(
        what=f"AppendStream, {publishers} publishers, {events} events a message{how}",
        value=reached,
        unit="events/s",
        ratio=ratio,
        note=f"{shares} a message",
    )


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
