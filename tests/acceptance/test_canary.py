"""A secret that comes in by gRPC is nowhere afterwards: in no stream, answer, table, dump or log line."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

import aiohttp
import asyncpg
import grpc.aio
import pytest

from jobledger import app
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1
from tests.support import canaries, services
from tests.support import postgres as support

STREAMS: tuple[tuple[str, v1.SubscribeRequest | pb_job.ClientInfo, int], ...] = (
    ("/job.Job/SubscribeJobSummarySignal", pb_job.ClientInfo(role="a", start_from=pb_job.StartFrom(2)), 2),
    ("/job.Job/SubscribeJobSummarySignal", pb_job.ClientInfo(role="b"), 1),
    (
        "/job.Job/SubscribeJobSummarySignalList",
        pb_job.ClientInfo(role="c", start_from=pb_job.StartFrom(2)),
        1,
    ),
    ("/jobledger.v1.Ledger/Subscribe", v1.SubscribeRequest(start_from=pb_job.StartFrom(2)), 3),
    ("/jobledger.v1.Ledger/Subscribe", v1.SubscribeRequest(), 2),
)
ANSWERS = (
    "/v4/cwai/job/job-1?regionID=r",
    "/v4/cwai/job/job-1?regionID=r&asOf=1&includeDeleted=true",
    "/v4/cwai/job/job-1/events?regionID=r",
    "/v4/cwai/jobs?regionID=r&detail=true",
    "/v4/cwai/jobs?regionID=r&detail=true&asOf=1",
    "/v4/cwai/job/list?regionID=r",
    "/metrics",
    "/openapi.json",
    "/readyz",
)
REFUSED: tuple[dict[str, Any], ...] = (
    {"output": {"accessKeySecret": "CANARY", "unknown": 1}},
    {"envs": [{"name": "TOKEN", "value": ["CANARY"]}]},
    {"command": "--token CANARY"},
    {"pods": [{"yaml": "token: CANARY"}]},
    {"comment": "CANARY\0"},
)


def event(detail: str) -> v1.Event:
    signal = pb_job.JobSummarySignal(job_id="job-1", job_status="running", operator="add", job_name="train")
    return v1.Event(signal=signal, detail=detail, region="r")


async def streamed(channel: Any) -> str:
    """The beginning of every stream."""
    told: list[bytes] = []
    for method, request, count in STREAMS:
        call = channel.unary_stream(method)(bytes(request))
        told += [await call.read() for _ in range(count)]
        call.cancel()
    assert all(b"job-1" in each for each in told[:4])
    return b"".join(told).decode("latin-1")


async def answered(service: app.Service) -> str:
    """Every answer of REST, and the beginning of its stream."""
    told: list[str] = []
    base = f"http://127.0.0.1:{service.http_port}"
    async with aiohttp.ClientSession() as session:
        for target in ANSWERS:
            async with session.get(base + target) as answer:
                told.append(await answer.text())
        async with session.get(f"{base}/v4/cwai/events?startFrom=earliest") as stream:
            told.append((await stream.content.readuntil(b": caught up at position 2\n")).decode())
    assert json.loads(told[0])["returnObj"]["envs"][0]["value"] == "******"
    return "".join(told)


async def test_secret_in_an_appended_job_is_nowhere_afterwards(
    service: app.Service,
    database: str,
    postgres: support.Postgres,
    connection: asyncpg.Connection[asyncpg.Record],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    body, hidden = canaries.made()
    spoiled = [json.dumps(each).replace("CANARY", hidden[0]) for each in REFUSED]
    details = [json.dumps(body), *spoiled, json.dumps(body)[:-1], json.dumps({**body, "comment": "again"})]
    async with grpc.aio.insecure_channel(services.grpc_address(service)) as opened:
        channel = cast("Any", opened)
        given = bytes(v1.AppendRequest(events=[event(each) for each in details]))
        receipts: bytes = await channel.unary_unary("/jobledger.v1.Ledger/Append")(given)
        told = await streamed(channel)

    read = await answered(service)
    stored = await canaries.everything_stored(connection) + await canaries.dumped(postgres, database)

    positions = [each.position for each in v1.AppendResponse.parse(receipts).receipts]
    assert positions == [1, *[0] * (len(REFUSED) + 1), 2]
    assert '"accessKeySecret":"******"' in stored
    everything = receipts.decode("latin-1") + told + read + stored + caplog.text
    assert not canaries.found(everything, hidden)
    # Columns of bytes are dumped in hexadecimal.
    assert not canaries.found(stored, [secret.encode().hex() for secret in hidden])
