"""The main job on a trace: publishers, stock subscribers that die and resume, a server that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import grpc.aio
import pytest

from jobledger.client import connection, publishing
from jobledger.model import event
from jobledger.trace import events as trace_events
from jobledger.trace import generated, pods
from tests.integration.test_view import folded, viewed
from tests.support import clusterd, services

BATCH = 50


@dataclass(slots=True)
class Follower:
    """A stock subscriber that starts again after its last seen uuid, whatever happens to its connection."""

    address: str
    seen: list[str] = field(default_factory=list[str])
    connections: int = 0

    async def run(self, until: int, *, die_after: int = 0) -> None:
        """Follow until so many events came; with ``die_after`` a client lives for that many only."""
        while len(self.seen) < until:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._connect(until, die_after)
            await asyncio.sleep(0.02)

    async def _connect(self, until: int, die_after: int) -> None:
        async with clusterd.subscriber(self.address) as client:
            self.connections += 1
            cursor = {"last_seen_uuid": self.seen[-1]} if self.seen else {"start_from": "earliest"}
            call = client.stream(lists=False, **cursor)
            taken = 0
            while len(self.seen) < until and not (die_after and taken >= die_after):
                message: Any = await call.read()
                if message is clusterd.EOF:
                    return
                self.seen.append(message.uuid)
                taken += 1


def _trace() -> list[event.Submission]:
    """The real trace if TRACE names it, else a shortened one of the same shape."""
    named = os.environ.get("TRACE")
    return trace_events.of(pods.read(Path(named)) if named else generated.generate(700, seed=1))


@pytest.mark.timeout(600)
async def test_killed_subscriber_and_killed_server_lose_and_repeat_nothing(tmp_path: Path) -> None:
    submissions = _trace()
    total = len(submissions)
    expected = [each.signal.uuid for each in submissions]
    process = await services.started(arguments=("--data-dir", str(tmp_path)))
    _, _, port = process.grpc.rpartition(":")
    fixed = ("--data-dir", str(tmp_path), "--grpc-port", port, "--http-port", "0")
    followers = [Follower(process.grpc) for _ in range(3)]
    following = [
        asyncio.create_task(each.run(total, die_after=total // 12 if n == 0 else 0))
        for n, each in enumerate(followers)
    ]
    receipts: list[event.Receipt] = []
    kills = [total // 3, 2 * total // 3]

    async def batches() -> AsyncIterator[list[event.Submission]]:
        nonlocal process
        for start in range(0, total, BATCH):
            if kills and start >= kills[0]:
                kills.pop(0)
                process.kill()
                await process.process.wait()
                process = await services.started(arguments=fixed)
            yield submissions[start : start + BATCH]

    def keep(_: object, outcomes: Any) -> None:
        receipts.extend(each for each in outcomes if isinstance(each, event.Receipt))

    try:
        await publishing.publish(connection.Address.parse(process.grpc), batches(), keep)
        async with asyncio.timeout(120):
            await asyncio.gather(*following)
        database = await asyncpg.connect(process.postgres)
        try:
            recorded = [
                str(row["uuid"])
                for row in await database.fetch("select uuid from job_events order by position")
            ]
            assert await viewed(database) == await folded(database)
        finally:
            await database.close()
    finally:
        for task in following:
            task.cancel()
        process.kill()
        await process.process.wait()

    assert len(receipts) == total
    assert recorded == expected
    for follower in followers:
        assert follower.seen == expected
    assert followers[0].connections >= 10
    assert not kills
