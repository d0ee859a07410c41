"""Two services on one Postgres, which take turns at the log, beside one: as many publishers in all."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import channels
import harness

PUBLISHERS = 128
CHANNELS = 4
EVENTS_A_MESSAGE = 10
ROUNDS = 3


async def publish(addresses: Sequence[str], seconds: float) -> float:
    """Events a second of all publishers in a closed loop, spread over the services; each starts a new job."""
    run = uuid4()
    stop_at = time.perf_counter() + seconds

    async def loop(channel: Any, publisher: int) -> int:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        sent = 0
        while time.perf_counter() < stop_at:
            ids = [f"job-{run}-{publisher}-{sent + nth}" for nth in range(EVENTS_A_MESSAGE)]
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
    """All of it, in turn; the second process runs only while it is measured."""
    alone: list[float] = []
    both: list[float] = []
    async with harness.postgres() as server, harness.serving(server) as first:
        for _ in range(ROUNDS):
            alone.append(await publish([first.grpc], seconds))
            async with harness.serving(server) as second:
                both.append(await publish([first.grpc, second.grpc], seconds))
    what = f"{PUBLISHERS} publishers, {EVENTS_A_MESSAGE} events a message"
    ratios = [together / single for together, single in zip(both, alone, strict=True)]
    return [
        harness.Row(what=f"one process, {what}", value=statistics.median(alone), unit="events/s", ratio=1.0),
        harness.Row(
            what=f"two processes on one Postgres, {what}",
            value=statistics.median(both),
            unit="events/s",
            ratio=statistics.median(ratios),
            note=f"median of {ROUNDS} rounds, {min(ratios):.2f} to {max(ratios):.2f}",
        ),
    ]


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(5), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
