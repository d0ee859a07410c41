"""What a job of 5,000 pods and 1 MiB of environment costs somebody who asks for a small one meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import time
from collections.abc import Generator
from typing import Any, Final

import calling
import harness

SMALL: Final = b'{"jobID":"small","name":"small"}'
LARGE: Final = json.dumps(
    {
        "jobID": "large",
        "name": "large",
        "pods": [{"name": f"pod-{nth}"} for nth in range(5_000)],
        "envs": [{"name": f"V{nth}", "value": "x" * 1_000} for nth in range(1_048)],
    }
).encode()

REGION: Final = "?regionID=default"
JOB: Final = "/v4/cwai/job"

ASKED: Final = (
    ("gets it", "GET", f"{JOB}/large{REGION}", b""),
    ("lists it in full", "GET", f"{JOB}s{REGION}&detail=true", b""),
    ("posts it", "POST", f"{JOB}{REGION}", LARGE),
)
"""What the other client does without end: in words, method, target, body."""


def ask(port: str, method: str, target: str, body: bytes) -> None:
    """Ask once, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
    with connection.getresponse() as answer:
        told = json.load(answer)
    connection.close()
    if told["statusCode"] != 800:  # noqa: PLR2004 - the document's word for success
        raise SystemExit(f"{method} {target}: {told}")


def _ask_without_end(port: str, method: str, target: str, body: bytes, asked: Any) -> None:
    while True:
        ask(port, method, target, body)
        asked.value += 1


@contextlib.contextmanager
def without_end(port: str, method: str, target: str, body: bytes) -> Generator[Any]:
    """Another process that asks so as long as this lasts; gives the number of its answers, as ``value``."""
    spawning = multiprocessing.get_context("spawn")
    asked = spawning.Value("i", 0)
    process = spawning.Process(target=_ask_without_end, args=(port, method, target, body, asked), daemon=True)
    process.start()
    try:
        while not asked.value:
            if not process.is_alive():
                raise SystemExit(f"{method} {target} failed")
            time.sleep(0.01)
        yield asked
    finally:
        process.kill()
        process.join()


async def measure(seconds: float) -> list[harness.Row]:
    """All of it."""
    small = calling.get(f"{JOB}/small{REGION}")

    async def small_p99(port: str) -> float:
        ends = time.perf_counter() + seconds
        taken = await calling.delays(port, lambda _: small, lambda: time.perf_counter() > ends)
        return harness.percentile(taken, 99) * 1000

    async with harness.serving() as service:
        port = service.http_port
        for body in (SMALL, LARGE):
            await asyncio.to_thread(ask, port, "POST", f"{JOB}{REGION}", body)
        alone = await small_p99(port)
        rows = [harness.Row(what="a small job, p99, alone", value=alone, unit="ms", ratio=1)]
        for what, method, target, body in ASKED:
            with without_end(port, method, target, body) as asked:
                before = asked.value
                p99 = await small_p99(port)
                note = f"{(asked.value - before) / seconds:.0f} large ones a second meanwhile"
            rows.append(
                harness.Row(what=f"beside who {what}", value=p99, unit="ms", ratio=alone / p99, note=note)
            )
    return rows


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(10), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
