"""What subscribers cost that wait: memory each, and how long one event takes to reach all of them."""

from __future__ import annotations

import argparse
import asyncio
import time

import harness

from jobledger.model import selection

LATEST = harness.client_info(selection.StartFrom.LATEST)


async def measure(subscribers: int) -> list[harness.Row]:
    """All of it."""
    async with harness.serving() as service:
        await harness.fill(service.grpc, 1, jobs=1)
        before = harness.resident_bytes(service.pid)
        reading = await harness.Reading.started(
            "grpc", service.grpc_port, LATEST, readers=subscribers, messages=1
        )
        each = (harness.resident_bytes(service.pid) - before) / subscribers
        began, used = time.perf_counter(), harness.processor_seconds(service.pid)
        await harness.fill(service.grpc, 1, jobs=1)
        await reading.finished()
        reached, used = time.perf_counter() - began, harness.processor_seconds(service.pid) - used
    count = f"{subscribers:,} connections"
    return [
        harness.Row(what=f"an idle subscriber, of {count}", value=each / 1000, unit="KB"),
        harness.Row(what=f"one event to all of {count}", value=reached, unit="s"),
        harness.Row(what="of the service's processor", value=used, unit="s"),
    ]


async def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=10_000)
    print(harness.HEAD, *await measure(parser.parse_args().subscribers), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
