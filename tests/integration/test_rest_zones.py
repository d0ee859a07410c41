"""The host's time zone and language reach no byte of an answer or of the log."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import aiohttp
import grpc.aio
import yarl

from tests.support import events, ledgers, rendering, services


def rendered(host_zone: str) -> tuple[str, str]:
    """What a process in this zone calls its zone, and what it stores and answers."""
    environment = {**os.environ, "TZ": host_zone}
    program = [sys.executable, rendering.__file__]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=60)
    name, rest = done.stdout.split("\n", 1)
    return name, rest


def test_hosts_zone_changes_neither_answer_nor_log() -> None:
    zones = [rendered(zone) for zone in ("Asia/Kolkata", "UTC", "America/New_York")]

    assert len({name for name, _ in zones}) == 3
    assert len({rest for _, rest in zones}) == 1
    assert '"createTime":"2023-11-05 01:30:00","finishTime":"2023-11-05 14:30:00"' in zones[0][1]


NAME = "训练-𠮷-é-\u202e-🚀"
TARGETS = (
    "/v4/cwai/job/{id}?regionID=region-1",
    "/v4/cwai/job/{id}?regionID=region-1&asOf=2",
    "/v4/cwai/job/{id}/events?regionID=region-1",
    "/v4/cwai/jobs?regionID=region-1&name={id}",
    "/v4/cwai/jobs?regionID=region-1&namespace={id}&createdFrom=2023-11-15%2006:13:20",
    "/v4/cwai/jobs?regionID=region-1&asOf=2&includeDeleted=true&sort=name",
)


async def read_all(address: str) -> list[bytes]:
    """Every reading endpoint's bytes, and the beginning of the stream."""
    told: list[bytes] = []
    async with aiohttp.ClientSession() as session:
        for target in TARGETS:
            url = yarl.URL(f"http://{address}{target.format(id=quote(NAME))}", encoded=True)
            async with session.get(url) as answer:
                told.append(await answer.read())
        async with session.get(f"http://{address}/v4/cwai/events?startFrom=earliest") as answer:
            told.append(await answer.content.readuntil(b": caught up at position 3\n"))
    return told


STREAMS: tuple[tuple[str, bytes, str, int], ...] = (
    ("/job.Job/SubscribeJobSummarySignal", b"", "earliest", 3),
    ("/job.Job/SubscribeJobSummarySignal", b"", "snapshot", 2),
    ("/job.Job/SubscribeJobSummarySignalList", b"", "earliest", 1),
    # startFrom earliest; three events, and that there are no more.
    ("/jobledger.v1.Ledger/Subscribe", b"\x18\x02", "", 4),
)


async def stream_all(address: str) -> list[bytes]:
    """Every stream's messages, as they come."""
    told: list[bytes] = []
    async with grpc.aio.insecure_channel(address) as opened:
        channel: Any = opened
        for method, request, start, count in STREAMS:
            metadata = (("start-from", start),) if start else ()
            call = channel.unary_stream(method)(request, metadata=metadata)
            told += [await call.read() for _ in range(count)]
            call.cancel()
    return told


async def test_hosts_zone_and_language_change_no_byte_of_any_answer(database: str) -> None:
    async with ledgers.running(database) as ledger:
        named: dict[str, Any] = {
            "region": "region-1",
            "job_name": NAME,
            "namespace": NAME,
            "time": "1700000000",
        }
        await ledger.receipts(events.submission(NAME, **named, detail={"finishTime": "2023-11-05 01:30:00"}))
        await ledger.receipts(events.submission(NAME, **named, job_status="complete"))
        await ledger.receipts(events.submission("other", region="region-1"))

    answers: list[list[bytes]] = []
    streams: list[list[bytes]] = []
    for zone in ("Asia/Kolkata", "UTC", "America/New_York"):
        host: dict[str, Any] = {"TZ": zone, "LANG": "C", "LC_ALL": "C", "JOBLEDGER_DATABASE_URL": database}
        async with services.serving(**host) as process:
            answers.append(await read_all(process.http))
            streams.append(await stream_all(process.grpc))

    assert answers[0] == answers[1] == answers[2]
    assert streams[0] == streams[1] == streams[2]
    named_in = [NAME.encode() in each for each in streams[0]]
    assert named_in == [True, True, False, True, False, True, True, True, False, False]
    *answered, stream = answers[0]
    assert [NAME in each.decode() for each in answered] == [True] * 2 + [False] + [True] * 3
    assert b'"createTime":"2023-11-15 06:13:20"' in answered[0]
    assert [b'"totalCount":1' in each for each in answered[3:]] == [True] * 3
    assert NAME in stream.decode()
