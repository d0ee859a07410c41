"""Two services on one Postgres, which take turns at the log, beside one: as many publishers in all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import channels
import harness

PUBLISHERS = 128
CHANNELS = 4
EVENTS_A_MESSAGE = 10


async def publish(addresses: Sequence[str], seconds: float) -> float:
    """Events a second of all publishers in a closed loop, spread over the services."""
    stop_at = time.perf_counter() + seconds

    async def loop(channel: Any, publisher: int) -> int:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        sent = 0
        while time.perf_counter() < stop_at:
            ids = [f"job-{publisher}-{sent + nth}" for nth in range(EVENTS_A_MESSAGE)]
            await call.write(harness.encoded_request(ids))
            await call.read()
            sent += EVENTS_A_MESSAGE
        await call.done_writing()
        return sent

    dialled = [channels.dial(address) for address in addresses for _ in range(CHANNELS)]
    began = time.perf_counter()
    sent = await asyncio.gather(*(loop(dialled[nth % len(dialled)], nth) for nth in range(PUBLISHERS)))
    took = time.perf_counter() - began
    for channel in dialled:
        await channel.close()
    return sum(sent) / took


async def measure(seconds: float) -> list[harness.Row]:
    """All of it."""
    async with harness.postgres() as server, harness.serving(server) as first:
        alone = await publish([first.grpc], seconds)
        async with harness.serving(server) as second:
            both = await publish([first.grpc, second.grpc], seconds)
    what = f"{PUBLISHERS} publishers, {EVENTS_A_MESSAGE} events a message"
    return [
        harness.Row(what=f"one process, {what}", value=alone, unit="events/s", ratio=1.0),
        harness.Row(
            what=f"two processes on one Postgres, {what}", value=both, unit="events/s", ratio=both / alone
        ),
    ]


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(10), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
