"""One event a call from 64 connections: unary Append and REST POST, beside aiohttp's hello.

Every event starts a new job, the dearest case, and is on disk before its answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
from collections.abc import Callable, Sequence
from typing import Final

import calling
import harness

MARK = b"11111111"
"""Stands in the uuid and the job's id, for digits of their own."""

ROUNDS: Final = 3
ROUND_REQUESTS: Final = 10_000_000
"""More than are sent in a round."""

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f-]{27}")


def append_request() -> bytes:
    """An AppendRequest of one event, with :data:`MARK` in it."""
    return UUID.sub(MARK + b"-0000-4000-8000-000000000000", harness.encoded_request([f"job-{MARK.decode()}"]))


def post_request() -> bytes:
    """A POST of one event of about the same size, with :data:`MARK` in it."""
    mark = MARK.decode()
    described = {
        "jobID": f"post-{mark}",
        "uuid": f"{mark}-0000-4000-9000-000000000000",
        "name": "train-llama",
    }
    environment = [{"name": f"VARIABLE_{nth}", "value": "10.20.0.1"} for nth in range(8)]
    body = {**described, "status": "Running", "trainFrame": "pytorch", "envs": environment}
    encoded = json.dumps(body).encode()
    head = f"POST /v4/cwai/job?regionID=default HTTP/1.1\r\nHost: x\r\nContent-Length: {len(encoded)}\r\n"
    return head.encode() + b"Content-Type: application/json\r\n\r\n" + encoded


async def measure(seconds: float) -> list[harness.Row]:
    """All of it, in turn: a machine that is shared changes its speed by the minute."""
    kinds: dict[str, tuple[type[calling.Caller], bytes]] = {
        "unary Append of one event": (calling.GrpcCaller, append_request()),
        "REST POST of one event": (calling.Caller, post_request()),
    }
    plain: list[calling.Rate] = []
    found: dict[str, list[calling.Rate]] = {what: [] for what in kinds}
    async with harness.serving() as service, calling.hello() as hello:
        for nth in range(ROUNDS):
            plain.append(await calling.rate(hello, lambda _: calling.get("/"), seconds))
            for what, (caller, template) in kinds.items():
                grpc = caller is calling.GrpcCaller
                server = calling.Asked.grpc(service) if grpc else calling.Asked.http(service)
                before = await harness.recorded(service.postgres)
                rate = await calling.rate(server, _numbered(template, nth), seconds, caller)
                recorded = await harness.recorded(service.postgres) - before
                if recorded != rate.answers:
                    raise SystemExit(f"{what}: {rate.answers} answers, but {recorded} events in the log")
                found[what].append(rate)
    hellos = _row(f"aiohttp's hello, {calling.CONNECTIONS} connections", plain, plain)
    return [hellos, *(_row(what, rates, plain) for what, rates in found.items())]


def _numbered(template: bytes, nth_round: int) -> Callable[[int], bytes]:
    """Requests of one round, none of which is one of another."""
    return lambda nth: template.replace(MARK, b"%08d" % (nth_round * ROUND_REQUESTS + nth))


def _row(what: str, rates: Sequence[calling.Rate], plain: Sequence[calling.Rate]) -> harness.Row:
    """Medians over the rounds, each beside the hello of its own."""
    ratios = [each.each_second / beside.each_second for each, beside in zip(rates, plain, strict=True)]
    shown = f"{min(ratios):.2f} to {max(ratios):.2f}, " if rates is not plain else ""
    p99, service, postgres = (
        statistics.median(values)
        for values in zip(
            *((each.p99_ms, each.server_microseconds, each.postgres_microseconds) for each in rates),
            strict=True,
        )
    )
    return harness.Row(
        what=what,
        value=statistics.median(each.each_second for each in rates),
        unit="/s",
        ratio=statistics.median(ratios),
        note=f"{shown}p99 {p99:.1f} ms; processor time {service:.0f} µs"
        + (f" + {postgres:.0f} µs of Postgres" if postgres else ""),
    )


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(5), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
