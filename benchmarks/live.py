"""Milliseconds from an append to its subscriber, at a steady rate: one client that publishes and follows."""

from __future__ import annotations

import asyncio
import time

import channels
import grpc
import grpc.aio
import harness

from jobledger.wire import messages

RATE = 300
METHOD = "/job.Job/SubscribeJobSummarySignal"
LATEST = messages.ClientInfo(role="Bench", startFrom=3).SerializeToString()


async def measure(seconds: int) -> list[harness.Row]:
    """All of it."""
    total = RATE * seconds
    sent: dict[str, float] = {}
    acknowledged: dict[str, float] = {}
    received: dict[str, float] = {}
    requests = [(f"job-{n}", harness.encoded_request([f"job-{n}"])) for n in range(total)]
    async with harness.serving() as service, channels.dial(service.grpc) as following:
        await harness.fill(service.grpc, 1, jobs=1)
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
                while True:
                    try:
                        await append(request)
                        break
                    except grpc.aio.AioRpcError as error:
                        # A busy machine: again, with the same uuid, as publishers do.
                        if error.code() is not grpc.StatusCode.UNAVAILABLE:
                            raise
                acknowledged[job_id] = time.perf_counter()

            follower = asyncio.create_task(follow())
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for n, (job_id, request) in enumerate(requests):
                    # An open loop: a slow answer does not slow the next question.
                    await asyncio.sleep(max(0.0, began + n / RATE - time.perf_counter()))
                    group.create_task(publish(job_id, request))
            await follower
    return [
        _row("append sent → received", [received[each] - sent[each] for each in sent]),
        _row("append sent → acknowledged", [acknowledged[each] - sent[each] for each in sent]),
        _row("acknowledged → received", [received[each] - acknowledged[each] for each in sent]),
    ]


def _row(what: str, seconds: list[float]) -> harness.Row:
    p50, p99 = (harness.percentile(seconds, percent) * 1000 for percent in (50, 99))
    return harness.Row(what=f"{what}, p50", value=p50, unit="ms", note=f"p99 {p99:.2f} ms, {RATE} events/s")


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(20), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
