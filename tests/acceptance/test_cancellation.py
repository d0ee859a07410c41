"""Callers that give up at any moment leave nothing behind: no connection, no task, no line of error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TypeAlias

import aiohttp
import asyncpg
import grpc.aio
import pytest

from jobledger import app
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1
from tests.support import clusterd, events, polling, scale, services

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CALLS = scale.count("CANCELLED", 600)
READ_CONNECTIONS = 8
"""What a service has by default."""


async def test_calls_cancelled_at_random_leave_no_connection_and_no_error(
    service: app.Service, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await services.publish(service, *(events.submission(f"job-{n}") for n in range(200)))
    chance = random.Random(11)  # noqa: S311 - a test's choice
    request = bytes(
        v1.AppendRequest(
            events=[
                v1.Event(
                    signal=pb_job.JobSummarySignal(job_id="cancelled", job_status="running", operator="add")
                )
            ]
        )
    )
    url = f"http://127.0.0.1:{service.http_port}/v4/cwai/job/job-7?regionID=default"
    async with (
        clusterd.subscriber(services.grpc_address(service)) as client,
        grpc.aio.insecure_channel(services.grpc_address(service)) as channel,
        aiohttp.ClientSession() as session,
    ):

        async def subscribe() -> None:
            call = client.stream(start_from="earliest")
            try:
                await clusterd.take(call, 150)
            finally:
                call.cancel()

        async def append() -> None:
            await channel.unary_unary("/jobledger.v1.Ledger/Append")(request)

        async def ask() -> None:
            async with session.get(url) as answer:
                await answer.read()

        for _ in range(CALLS):
            call = asyncio.create_task(chance.choice((subscribe, append, ask))())
            await asyncio.sleep(chance.random() * 0.004)
            call.cancel()
            await asyncio.wait({call})

        async def settled() -> None:
            assert service.rpc.open_calls == 0

        await polling.eventually(settled)
        async with session.get(url) as answer:
            assert answer.status == 200
        # A connection that was not given back is one that cannot be had any more.
        async with asyncio.timeout(30), contextlib.AsyncExitStack() as stack:
            for _ in range(READ_CONNECTIONS):
                await stack.enter_async_context(service.pages._pool.connection())
    sessions = await connection.fetch(
        "select state from pg_stat_activity"
        " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
    )
    # Beside those to read, one to append and one to listen.
    assert len(sessions) == READ_CONNECTIONS + 2
    assert "idle in transaction" not in [row["state"] for row in sessions]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
