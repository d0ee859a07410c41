"""Milliseconds from an append to its subscriber, at a steady rate: one client that publishes and follows."""

from __future__ import annotations

import asyncio
import time

import channels
import harness

from jobledger.wire import messages

RATE = 300
SECONDS = 20
METHOD = "/job.Job/SubscribeJobSummarySignal"
LATEST = messages.ClientInfo(role="Bench", startFrom=3).SerializeToString()


async def main() -> None:
    """Run and print."""
    print(harness.machine())
    total = RATE * SECONDS
    sent: dict[str, float] = {}
    acknowledged: dict[str, float] = {}
    received: dict[str, float] = {}
    requests = [(f"job-{n}", harness.encoded_request([f"job-{n}"])) for n in range(total)]
    async with harness.serving() as service, channels.dial(service.grpc) as following:
        stream = following.unary_stream(METHOD)(LATEST)
        await stream.initial_metadata()

        async def follow() -> None:
            while len(received) < total:
                data = await stream.read()
                received[messages.JobSummarySignal.FromString(data).jobId] = time.perf_counter()

        async with channels.dial(service.grpc) as publishing:
            append = publishing.unary_unary("/jobledger.v1.Ledger/Append")

            async def publish(job_id: str, request: bytes) -> None:
                sent[job_id] = time.perf_counter()
                await append(request)
                acknowledged[job_id] = time.perf_counter()

            follower = asyncio.create_task(follow())
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for n, (job_id, request) in enumerate(requests):
                    # An open loop: a slow answer does not slow the next question.
                    await asyncio.sleep(max(0.0, began + n / RATE - time.perf_counter()))
                    group.create_task(publish(job_id, request))
            await follower
    _show("append sent → received", [received[each] - sent[each] for each in sent])
    _show("append sent → acknowledged", [acknowledged[each] - sent[each] for each in sent])
    _show("acknowledged → received", [received[each] - acknowledged[each] for each in sent])


def _show(what: str, seconds: list[float]) -> None:
    shares = ", ".join(f"p{p} {harness.percentile(seconds, p) * 1000:.2f} ms" for p in (50, 99))
    print(f"{what:28} {shares}   ({RATE} events/s for {SECONDS} s)")


if __name__ == "__main__":
    asyncio.run(main())
