"""Messages a second to subscribers that read 100,000 events from the first one on.

Beside JetStream's replay from its file, grpc.aio with messages that were encoded before, and, for the reads
that Postgres must answer, a plain keyset read of the same rows.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import asyncpg
import harness
import peers

from jobledger.model import selection

READERS = (1, 10, 100)
MOST = 2_000_000
"""Messages of one measurement: a hundred readers stop earlier."""

PAGE = 1000
EARLIEST = harness.client_info(selection.StartFrom.EARLIEST)
KEYSET = "select * from job_events where position > $1 order by position limit $2"


async def read(kind: str, port: int | str, readers: int, events: int, asked: str) -> float:
    """Messages a second of all readers together."""
    each = min(events, MOST // readers)
    reading = await harness.Reading.started(kind, port, readers=readers, messages=each, asked=asked)
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
    async with peers.grpc_aio(encoded) as port:
        for readers in READERS[:2]:
            rate = await read("grpc", port, readers, min(events, 20_000), EARLIEST)
            note(f"grpc.aio, encoded before, {readers} readers", rate, jetstream[readers])
    async with harness.postgres() as server:
        async with harness.serving(server) as service:
            await harness.fill(service.grpc, events, jobs=events)
            await read("grpc", service.grpc_port, 1, events, EARLIEST)
            for readers in READERS:
                rate = await read("grpc", service.grpc_port, readers, events, EARLIEST)
                note(f"fan-out, pages in memory, {readers} readers", rate, jetstream[readers])
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
