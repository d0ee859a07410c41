"""One event a call from 64 connections: unary Append and REST POST, beside aiohttp's hello.

Every event starts a new job, the dearest case, and is on disk before its answer.
"""

from __future__ import annotations

import asyncio
import json
import re

import calling
import harness

MARK = b"11111111"
"""Stands in the uuid and the job's id, for digits of their own."""

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
    """All of it."""
    async with harness.serving() as service, calling.hello() as hello:
        plain = await calling.rate(hello, lambda _: calling.get("/"), seconds)
        rates = {f"aiohttp's hello, {calling.CONNECTIONS} connections": plain}
        before = await harness.recorded(service.postgres)
        for what, server, caller, template in (
            ("unary Append of one event", calling.Asked.grpc(service), calling.GrpcCaller, append_request()),
            ("REST POST of one event", calling.Asked.http(service), calling.Caller, post_request()),
        ):

            def request(nth: int, template: bytes = template) -> bytes:
                return template.replace(MARK, b"%08d" % nth)

            found = rates[what] = await calling.rate(server, request, seconds, caller)
            after = await harness.recorded(service.postgres)
            if after - before != found.answers:
                raise SystemExit(f"{what}: {found.answers} answers, but {after - before} events in the log")
            before = after
    return [
        harness.Row(
            what=what,
            value=each.each_second,
            unit="/s",
            ratio=each.each_second / plain.each_second,
            note=f"p99 {each.p99_ms:.1f} ms; processor time {each.server_microseconds:.0f} µs"
            + ("" if each is plain else f" + {each.postgres_microseconds:.0f} µs of Postgres"),
        )
        for what, each in rates.items()
    ]


async def main() -> None:
    """Run and print."""
    print(harness.HEAD, *await measure(10), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
