"""Ten minutes of stalled, slow, flapping and fast readers while appends go on at half rate: ``make soak``.

Fails if a reader loses, repeats or reorders an event, or if the service's memory still grows after the first
fifth of the time. SOAK_SECONDS sets how long. Writes soak.svg, the memory over the time.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import channels
import harness

from jobledger.wire import messages

# The extra `bench` brings it; types are checked without.
pyplot: Any = importlib.import_module("matplotlib.pyplot")

METHOD = "/job.Job/SubscribeJobSummarySignalList"
KINDS = {"fast": 2, "flapping": 2, "slow": 5, "stalled": 20}
"""How many readers there are of each kind."""

FLAP_SECONDS = 3.0
"""After which a flapping reader leaves, and comes back at once."""

SLOW_SECONDS = 0.5
"""Between two messages that a slow one reads."""

BATCH = 20
JOBS = 5_000
GROWTH = 1.15
"""How many times what it took after the first fifth it may take in the last: caches fill, a leak goes on."""

ALLOWANCE_BYTES = 64 << 20
"""And so much beside: short runs end before the caches are full."""


@dataclass(slots=True)
class Reader:
    """A subscriber that resumes after its last uuid, and must be told every position once, in order."""

    position: int = 0
    uuid: str = ""

    async def read(self, address: str, *, until: Callable[[], bool], pause_seconds: float = 0) -> None:
        """One stream, for so long; each message is a list of events."""
        async with channels.dial(address) as channel:
            asked = messages.ClientInfo(role="Soak", startFrom=2, lastSeenUuid=self.uuid)
            call = channel.unary_stream(METHOD)(asked.SerializeToString())
            while not until():
                for signal in messages.JobSummarySignalList.FromString(await call.read()).jobSummarySignals:
                    if signal.position != self.position + 1:
                        raise SystemExit(f"a reader got position {signal.position} after {self.position}")
                    self.position, self.uuid = signal.position, signal.uuid
                await asyncio.sleep(pause_seconds)
            call.cancel()


async def follow(reader: Reader, address: str, kind: str, until: float) -> None:
    """Read as its kind does, until the time is over."""

    def over() -> bool:
        return time.monotonic() >= until

    while not over():
        match kind:
            case "flapping":
                leaves = time.monotonic() + FLAP_SECONDS
                await reader.read(address, until=lambda at=leaves: over() or time.monotonic() >= at)
            case "stalled":
                await reader.read(address, until=over, pause_seconds=until - time.monotonic())
            case _:
                await reader.read(address, until=over, pause_seconds=SLOW_SECONDS if kind == "slow" else 0)


async def publish(address: str, rate: float, until: float) -> int:
    """Append at a steady rate, and for a moment longer than others read; how many events."""
    sent = 0
    async with channels.dial(address) as channel:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        began = time.monotonic()
        while time.monotonic() < until + FLAP_SECONDS:
            await asyncio.sleep(max(0.0, began + sent / rate - time.monotonic()))
            await call.write(harness.encoded_request([f"job-{(sent + n) % JOBS}" for n in range(BATCH)]))
            await call.read()
            sent += BATCH
        await call.done_writing()
    return sent


async def sample(pid: int, seconds: float) -> list[tuple[float, int]]:
    """The memory of a process, a hundred times over that time."""
    began, samples = time.monotonic(), list[tuple[float, int]]()
    while (now := time.monotonic() - began) < seconds:
        samples.append((now, harness.resident_bytes(pid)))
        await asyncio.sleep(seconds / 100)
    return samples


def plot(samples: Sequence[tuple[float, int]], path: Path) -> None:
    """The memory over the time."""
    figure, axes = pyplot.subplots(figsize=(9, 3))
    axes.plot([at for at, _ in samples], [size / 1e6 for _, size in samples])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("MB resident")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


async def main() -> None:
    """Run, check, plot."""
    seconds = float(os.environ.get("SOAK_SECONDS", "600"))
    readers = {kind: [Reader() for _ in range(count)] for kind, count in KINDS.items()}
    async with harness.serving() as service:
        filled = 5_000
        rate = await harness.fill(service.grpc, filled, jobs=JOBS) / 2
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for kind, some in readers.items():
                for reader in some:
                    group.create_task(follow(reader, service.grpc, kind, until))
            publishing = group.create_task(publish(service.grpc, rate, until))
            sampling = group.create_task(sample(service.pid, seconds))
        head, samples = filled + publishing.result(), sampling.result()
        for some in readers.values():
            await some[0].read(service.grpc, until=lambda last=some[0]: last.position >= head)
    plot(samples, Path(__file__).with_name("soak.svg"))
    sizes = [size for _, size in samples]
    fifth = len(sizes) // 5
    early, late = statistics.median(sizes[fifth : 2 * fifth]), statistics.median(sizes[-fifth:])
    print(f"{head:,} events at {rate:,.0f}/s in {seconds:g} s to {sum(KINDS.values())} readers; nothing lost")
    print(f"memory {early / 1e6:.0f} MB after the first fifth, {late / 1e6:.0f} MB in the last")
    if late > early * GROWTH + ALLOWANCE_BYTES:
        raise SystemExit("memory grew")


if __name__ == "__main__":
    asyncio.run(main())
