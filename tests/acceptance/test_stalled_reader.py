"""Subscribers that stop reading: they cost their own cursor, and nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from jobledger.client import connection, publishing
from jobledger.model import event
from jobledger.web import health
from tests.support import clusterd, events, polling, scale, services

STALLED = scale.count("STALLED", 20)

ASLEEP_SECONDS = scale.count("ASLEEP_SECONDS", 0)
"""How long they sleep; at least while all events are published."""

BEHIND_SECONDS = scale.count("BEHIND_SECONDS", 1)
"""Behind by more the tail is not ready; a service's own limit is ten."""

EVENTS = 3_000
BATCH = 50
TABLE = '{"status":"complete","padding":"%s"}' % ("x" * 20_000)
"""With :data:`EVENTS` of them a stalled reader would have 60 MB to hold back."""


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def test_stalled_readers_delay_nobody_cost_no_memory_and_go_on_where_they_were(tmp_path: Path) -> None:
    variables = {"JOBLEDGER_WINDOW_BYTES": "8000000", "JOBLEDGER_PAGE_CACHE_BYTES": "8000000"}
    async with (
        services.serving(arguments=("--data-dir", str(tmp_path)), **variables) as process,
        clusterd.subscriber(process.grpc) as fast,
    ):
        sleepers = [clusterd.Subscriber(process.grpc, own_connection=True) for _ in range(STALLED)]
        try:
            asleep = [sleeper.stream(start_from="earliest") for sleeper in sleepers]
            for call in asleep:
                await clusterd.initial(call)
            awake = fast.stream(start_from="earliest")
            await clusterd.initial(awake)
            before = _resident_bytes(process.process.pid)
            following = asyncio.create_task(clusterd.take(awake, EVENTS))
            # In the middle of their streams, as whoever is busy with what it has just been told.
            falling_asleep = [asyncio.create_task(clusterd.take(call, 1)) for call in asleep]

            await _publish(process.grpc)
            followed = await asyncio.wait_for(following, 300)

            grown = _resident_bytes(process.process.pid) - before
            heard = await asyncio.gather(*falling_asleep)
            late = [heard[n] + await clusterd.take(asleep[n], EVENTS - 1) for n in range(min(2, STALLED))]
        finally:
            for sleeper in sleepers:
                await sleeper.close()

    in_order = [message.uuid for message in followed]
    assert len(set(in_order)) == EVENTS
    assert all([message.uuid for message in messages] == in_order for messages in late)
    # Twenty readers of 60 MB each are 1.2 GB; the window, the pages and what is being written are far less.
    assert grown < 200_000_000


async def _publish(address: str) -> None:
    async def batches() -> AsyncIterator[list[event.Submission]]:
        for start in range(0, EVENTS, BATCH):
            yield [events.submission(f"job-{start + n}", hccl_json=TABLE) for n in range(BATCH)]
            await asyncio.sleep(ASLEEP_SECONDS * BATCH / EVENTS)

    def ignore(_batch: object, _outcomes: object) -> None:
        """The log is asked instead."""

    await publishing.publish(connection.Address.parse(address), batches(), ignore)


async def test_tail_that_falls_behind_turns_readiness_red_and_green_again(
    database: str, connection: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BEHIND_LIMIT_SECONDS", float(BEHIND_SECONDS))
    async with services.running(database) as service, aiohttp.ClientSession() as session:

        async def readiness(status: int) -> None:
            async with session.get(f"http://127.0.0.1:{service.http_port}/readyz") as answer:
                assert answer.status == status, await answer.text()

        await polling.eventually(lambda: readiness(200))
        async with connection.transaction():
            # Whoever reads the log waits now.
            await connection.execute("lock table job_events in access exclusive mode")
            await polling.eventually(lambda: readiness(503))
        await polling.eventually(lambda: readiness(200))
