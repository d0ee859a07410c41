"""Messages a second to subscribers that read 100,000 events from the first one on.

Beside JetStream's replay from its file, grpc.aio and grpclib's send_message with messages that were encoded
before, and, for the reads that Postgres must answer, a plain keyset read of the same rows. And how long
single calls take while a hundred read.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable

import asyncpg
import calling
import channels
import harness
import peers

from jobledger.model import selection

READERS = (1, 10, 100)
MOST = 2_000_000
"""Messages of one measurement: a hundred readers stop earlier."""

FEW = 100_000
"""The same for servers that send one by one."""

QUIET_SECONDS = 3
PAGE = 1000
EARLIEST = harness.client_info(selection.StartFrom.EARLIEST)
KEYSET = "select * from job_events where position > $1 order by position limit $2"


async def read(kind: str, port: int | str, readers: int, events: int, asked: str) -> float:
    """Messages a second of all readers together."""
    each = min(events, MOST // readers)
    reading = await harness.Reading.started(kind, port, asked, readers=readers, messages=each)
    return readers * each / await reading.seconds()


async def keyset(dsn: str) -> float:
    """Rows a second that a client reads page by page."""
    connection = await asyncpg.connect(dsn)
    statement = await connection.prepare(KEYSET)
    began, after, rows = time.perf_counter(), 0, 0
    while page := await statement.fetch(after, PAGE):
        after, rows = page[-1]["position"], rows + len(page)
    await connection.close()
    return rows / (time.perf_counter() - began)


async def meanwhile(service: harness.Service, when: str, work: Awaitable[object]) -> list[harness.Row]:
    """How long single calls take while something goes on, one without and one with a look into Postgres."""
    working = asyncio.ensure_future(work)
    path = "/v4/cwai/job/job-7?regionID=default"
    async with channels.dial(service.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")

        async def checks() -> list[float]:
            taken: list[float] = []
            while not working.done() or not taken:
                began = time.perf_counter()
                await check(b"")
                taken.append(time.perf_counter() - began)
                await asyncio.sleep(calling.PAUSE_SECONDS)
            return taken

        getting = calling.delays(service.http_port, lambda _: calling.get(path), working.done)
        delays = await asyncio.gather(checks(), getting)
    await working
    return [
        harness.Row(
            what=f"{what} {when}, p99",
            value=harness.percentile(each, 99) * 1000,
            unit="ms",
            note=f"p50 {harness.percentile(each, 50) * 1000:.2f} ms, {len(each):,} calls",
        )
        for what, each in zip(("unary health check", "REST, a job by id"), delays, strict=True)
    ]


async def measure(events: int) -> list[harness.Row]:
    """All of it."""
    rows: list[harness.Row] = []

    def note(what: str, rate: float, peer: float) -> None:
        rows.append(harness.Row(what=what, value=rate, unit="/s", ratio=rate / peer))

    encoded = [harness.encoded_signal(f"job-{n}") for n in range(events)]
    jetstream: dict[int, float] = {}
    async with peers.jetstream(encoded) as port:
        for readers in READERS:
            jetstream[readers] = await read("nats", port, readers, events, "bench-inbox")
            note(f"JetStream, from its file, {readers} readers", jetstream[readers], jetstream[readers])
    one_by_one: dict[str, dict[int, float]] = {"grpc.aio": {}, "grpclib": {}}
    for library, rates in one_by_one.items():
        async with peers.sending(library, encoded[: max(FEW // min(READERS), 1)]) as port:
            for readers in READERS:
                rates[readers] = await read("grpc", port, readers, min(events, FEW // readers), EARLIEST)
                what = f"{library}, one by one, encoded before, {readers} readers"
                note(what, rates[readers], jetstream[readers])
    async with harness.postgres() as server:
        async with harness.serving(server) as service:
            await harness.fill(service.grpc, events, jobs=events)
            await read("grpc", service.grpc_port, 1, events, EARLIEST)
            rows += await meanwhile(service, "idle", asyncio.sleep(QUIET_SECONDS))
            for readers in READERS:
                rate = await read("grpc", service.grpc_port, readers, events, EARLIEST)
                note(f"fan-out, pages in memory, {readers} readers", rate, jetstream[readers])
            most = max(READERS)
            peer = one_by_one["grpclib"][most]
            reading = asyncio.create_task(read("grpc", service.grpc_port, most, events, EARLIEST))
            rows += await meanwhile(service, f"while {most} read", reading)
            note(f"meanwhile, beside grpclib's send_message, {most} readers", await reading, peer)
        plain = await keyset(server.dsn)
        note(f"keyset read, pages of {PAGE:,}", plain, plain)
        for readers in READERS[:2]:
            async with harness.serving(server) as service:
                rate = await read("grpc", service.grpc_port, readers, events, EARLIEST)
                note(f"replay, nothing in memory, {readers} readers; of the keyset read", rate, plain)
    return rows


async def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    print(harness.HEAD, *await measure(parser.parse_args().events), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
