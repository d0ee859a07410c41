"""SIGTERM, and signals that cannot be handled, on the service as a process of its own.

``JOBLEDGER_TEST_PYTHONS`` names the interpreters, separated by colons, that the service is run with; each has
``jobledger[server]`` installed. Without it, the one that runs the tests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

import asyncpg
import grpc
import pytest

from jobledger.client import connection, publishing
from jobledger.model import event
from tests.support import clusterd, events, load, polling, scale, services

GRACE_SECONDS = 10.0

TOLD_SECONDS = scale.count("TOLD_SECONDS", 5)
"""Within which every client hears of the end."""

STOPPED_SECONDS = scale.count("STOPPED_SECONDS", 0)
"""How long a process stands still; at least until its clients gave up."""

PYTHONS = [each for each in os.environ.get("JOBLEDGER_TEST_PYTHONS", "").split(":") if each]


@pytest.fixture(params=PYTHONS or [sys.executable])
async def process(request: pytest.FixtureRequest, database: str) -> AsyncIterator[services.Process]:
    async with services.serving(
        python=request.param,
        JOBLEDGER_DATABASE_URL=database,
        JOBLEDGER_GRACE_SECONDS=str(GRACE_SECONDS),
    ) as started:
        yield started


async def test_sigterm_tells_1_000_streams_where_to_resume_and_ends_within_the_grace_time(
    process: services.Process,
) -> None:
    clients = [clusterd.Subscriber(process.grpc, own_connection=True) for _ in range(20)]
    calls = [each.stream(client_id=f"client-{n}-{m}") for n, each in enumerate(clients) for m in range(50)]
    await asyncio.gather(*map(clusterd.initial, calls))
    receipt = await append(process, events.submission())
    await asyncio.gather(*(clusterd.take(call, 1) for call in calls))

    started = time.monotonic()
    process.kill(signal.SIGTERM)
    ends = await asyncio.gather(*map(clusterd.ended, calls))
    told_after = time.monotonic() - started
    await process.process.wait()
    took = time.monotonic() - started

    assert {end.status for end in ends} == {grpc.StatusCode.UNAVAILABLE}
    assert {end.message for end in ends} == {f"shutting down, resume from {receipt.uuid}"}
    assert {end.trailers["resume-uuid"] for end in ends} == {str(receipt.uuid)}
    assert process.process.returncode == 0
    assert told_after < TOLD_SECONDS
    assert took < GRACE_SECONDS
    for client in clients:
        await client.close()


async def test_sigterm_under_load_loses_nothing_that_was_acknowledged(
    process: services.Process, database: str
) -> None:
    traffic = load.Load(process.grpc, f"http://{process.http}")
    publishers = [asyncio.create_task(traffic.publish_by_grpc()) for _ in range(8)]
    await traffic.steady(100)

    process.kill(signal.SIGTERM)
    await process.process.wait()
    for publisher in publishers:
        publisher.cancel()
    await asyncio.wait(publishers)

    traffic.check(await load.log_of(database)(), after=0)
    assert process.process.returncode == 0


async def test_sigterm_while_postgres_answers_nothing_ends_within_the_grace_time(
    process: services.Process, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with connection.transaction():
        # Appends wait for this lock until their time-out.
        await connection.execute("lock table job_events in access exclusive mode")
        waiting = [asyncio.create_task(append(process, events.submission())) for _ in range(3)]
        await polling.eventually(lambda: waits_for_lock(connection))

        started = time.monotonic()
        process.kill(signal.SIGTERM)
        await process.process.wait()

        assert time.monotonic() - started < GRACE_SECONDS
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Exception) for each in outcomes), outcomes
    assert process.process.returncode == 0


async def test_process_that_was_stopped_for_seconds_goes_on_where_it_was(
    process: services.Process, database: str
) -> None:
    async with load.running(process.grpc, f"http://{process.http}", load.log_of(database)) as traffic:
        process.kill(signal.SIGSTOP)
        ends = time.monotonic() + STOPPED_SECONDS
        await polling.eventually(lambda: gave_up(traffic, ends), STOPPED_SECONDS + 20)
        process.kill(signal.SIGCONT)

        await traffic.wait_until_back(within_seconds=60)


async def append(process: services.Process, submission: event.Submission) -> event.Receipt:
    [outcome] = await publishing.append(connection.Address.parse(process.grpc), [submission])
    assert isinstance(outcome, event.Receipt)
    return outcome


async def waits_for_lock(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    waiting = await connection.fetchval("select count(*) from pg_locks where not granted")
    assert waiting


def gave_up(traffic: load.Load, not_before: float) -> None:
    assert time.monotonic() >= not_before
    assert traffic.refusals["TimeoutError"] >= 2
    assert traffic.answers["TimeoutError"] >= 1
