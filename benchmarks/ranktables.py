"""Events with rank tables of 20 KB, all different: at the appender, and through AppendStream.

About 160 devices each, with random addresses and serials, so that they compress as real ones do.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import channels
import harness

from jobledger import heap
from jobledger.ledger import admission, appender, batch
from jobledger.model import event
from jobledger.model.principal import Principal
from jobledger.store import engine
from jobledger.wire import messages

PUBLISHERS = 32
CHANNELS = 8
EVENTS_A_MESSAGE = 5
SERVERS, DEVICES = 20, 8
TABLES = 200
"""Made before; each event is another job's with one of them."""


def table(chance: random.Random) -> str:
    """A rank table of about 20 KB, without spaces, as Go writes it."""

    def address() -> str:
        return ".".join(str(chance.randrange(1, 255)) for _ in range(4))

    def device(rank: int) -> dict[str, str]:
        serial = f"{chance.randrange(16**32):032x}"
        return {
            "device_id": str(rank % DEVICES),
            "device_ip": address(),
            "rank_id": str(rank),
            "slot": str(rank),
            "serial": serial,
        }

    servers = [
        {
            "device": [device(DEVICES * nth + each) for each in range(DEVICES)],
            "server_id": address(),
            "server_name": f"node-{chance.randrange(10_000)}",
            "host_ip": address(),
        }
        for nth in range(SERVERS)
    ]
    whole = {"status": "complete", "server_list": servers, "server_count": str(SERVERS), "total": 1}
    return json.dumps(whole, separators=(",", ":"))


def submissions(tables: list[str], count: int) -> list[event.Submission]:
    """Events of jobs that were not there before."""
    return [
        event.Submission(signal=harness.running_signal(f"job-{uuid4()}", tables[nth % len(tables)]))
        for nth in range(count)
    ]


async def at_the_appender(dsn: str, given: list[event.Submission]) -> float:
    """Events a second of this process's own appender, without gRPC and without readers."""
    heap.keep()  # as the service does
    pool = engine.ReadPool(dsn, size=2)
    await pool.open()
    appending = appender.Appender(
        dsn=dsn,
        pool=pool,
        admission=admission.Admission(zone=ZoneInfo("UTC"), detail_limit_bytes=4 << 20),
        rules=batch.Rules(default_region="default", event_limit_bytes=4 << 20),
        queue_events=20_000,
        queue_bytes=64 << 20,
        on_commit=lambda _: None,
    )
    running = asyncio.create_task(appending.run())
    whom = Principal.anonymous("127.0.0.1")
    began = time.perf_counter()

    async def publish(publisher: int) -> None:
        mine = given[publisher::PUBLISHERS]
        for at in range(0, len(mine), EVENTS_A_MESSAGE):
            outcomes = await appending.append(mine[at : at + EVENTS_A_MESSAGE], whom)
            if refused := [each for each in outcomes if not isinstance(each, event.Receipt)]:
                raise SystemExit(f"refused: {refused[0]}")

    await asyncio.gather(*map(publish, range(PUBLISHERS)))
    took = time.perf_counter() - began
    appending.close()
    await running
    await pool.close()
    return len(given) / took


async def through_grpc(address: str, requests: list[bytes]) -> float:
    """Events a second of a closed loop."""

    async def publish(channel: Any, mine: list[bytes]) -> None:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        for request in mine:
            await call.write(request)
            answer = messages.AppendResponse.FromString(await call.read())
            if refused := [each for each in answer.receipts if each.HasField("error")]:
                raise SystemExit(f"refused: {refused[0]}")
        await call.done_writing()

    dialled = [channels.dial(address) for _ in range(CHANNELS)]
    began = time.perf_counter()
    await asyncio.gather(
        *(publish(dialled[nth % CHANNELS], requests[nth::PUBLISHERS]) for nth in range(PUBLISHERS))
    )
    took = time.perf_counter() - began
    for channel in dialled:
        await channel.close()
    return len(requests) * EVENTS_A_MESSAGE / took


async def measure(events: int) -> list[harness.Row]:
    """All of it."""
    chance = random.Random(7)  # noqa: S311 - a benchmark's data
    tables = [table(chance) for _ in range(TABLES)]
    size = sum(map(len, tables)) / len(tables)
    async with harness.postgres() as server:
        async with harness.serving(server) as service:
            requests = [
                harness.request(
                    [harness.encoded(each.signal) for each in submissions(tables, EVENTS_A_MESSAGE)]
                )
                for _ in range(events // EVENTS_A_MESSAGE)
            ]
            grpc = await through_grpc(service.grpc, requests)
            del requests
        own = await at_the_appender(server.dsn, submissions(tables, events))
    note = f"{size / 1000:.1f} KB each, all different, {PUBLISHERS} publishers, {EVENTS_A_MESSAGE} a request"
    return [
        harness.Row(what="rank tables of 20 KB, at the appender", value=own, unit="events/s", note=note),
        harness.Row(what="rank tables of 20 KB, AppendStream", value=grpc, unit="events/s", note=note),
    ]


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(10_000), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
