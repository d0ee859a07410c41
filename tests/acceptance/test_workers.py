"""``jobledger serve --workers``: several processes on the same ports, each as good as one alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import grpc
import pytest

from jobledger._proto.jobledger import v1
from jobledger.client import batches
from jobledger.model import event
from tests.support import clusterd, events, load, polling, services, working

COUNT = 2


@pytest.fixture
async def process(database: str) -> AsyncIterator[services.Process]:
    async with services.serving(
        arguments=("--workers", str(COUNT)), JOBLEDGER_DATABASE_URL=database
    ) as started:
        yield started


async def test_events_appended_through_either_worker_reach_subscribers_of_both(
    process: services.Process,
) -> None:
    async with working.clients(process) as clients:
        calls = [client.stream(start_from="earliest") for client in clients.values()]

        sent = [
            await append(client, events.submission(f"job-{nth}"))
            for nth in range(20)
            for client in clients.values()
        ]

        for call in calls:
            assert [message.uuid for message in await clusterd.take(call, len(sent))] == sent


async def test_client_that_subscribes_at_the_other_worker_takes_its_stream_over(
    process: services.Process,
) -> None:
    async with working.clients(process) as clients:
        one, other = clients.values()
        client_id = (await one.register()).clientId
        older = one.stream(client_id=client_id)
        await clusterd.initial(older)

        newer = other.stream(client_id=client_id)
        await clusterd.initial(newer)

        end = await clusterd.ended(older)
        assert (end.status, end.trailers["ledger-reason"]) == (grpc.StatusCode.CANCELLED, "takeover")
        uuid = await append(one, events.submission())
        assert [message.uuid for message in await clusterd.take(newer, 1)] == [uuid]


async def test_worker_that_ends_is_replaced_and_its_clients_resume_without_loss(
    process: services.Process, database: str
) -> None:
    async with load.running(process.grpc, f"http://{process.http}", load.log_of(database)) as traffic:
        for pid, number in zip(working.pids(process), (signal.SIGKILL, signal.SIGTERM), strict=True):
            os.kill(pid, number)
            await polling.eventually(lambda pid=pid: replaced(process, pid), 30)
            await traffic.wait_until_back(within_seconds=60)

    # Each follower was a client of the one or the other.
    assert all(follower.ends for follower in traffic.followers)


async def test_sigterm_tells_the_streams_of_every_worker_where_to_resume(process: services.Process) -> None:
    async with working.clients(process) as clients:
        calls = [client.stream(start_from="earliest") for client in clients.values()]
        uuid = await append(next(iter(clients.values())), events.submission())
        for call in calls:
            await clusterd.take(call, 1)

        process.kill(signal.SIGTERM)
        ends = [await clusterd.ended(call) for call in calls]

        assert await process.process.wait() == 0
        assert {end.status for end in ends} == {grpc.StatusCode.UNAVAILABLE}
        assert {end.trailers["resume-uuid"] for end in ends} == {uuid}
        assert not any(map(working.alive, clients))


async def test_workers_and_postgres_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    arguments = ("--workers", str(COUNT), "--data-dir", str(tmp_path))
    async with services.serving(arguments=arguments) as first, working.clients(first) as clients:
        postgres = int((tmp_path / "postgres" / "postmaster.pid").read_text().split()[0])
        uuid = await append(next(iter(clients.values())), events.submission())
        calls = [client.stream(start_from="earliest") for client in clients.values()]
        for call in calls:
            await clusterd.take(call, 1)

        first.kill(signal.SIGKILL)
        ends = [await clusterd.ended(call) for call in calls]

        assert {end.trailers.get("resume-uuid") for end in ends} == {uuid}
        await polling.eventually(lambda: gone(*clients, postgres), 30)
    where = ("--grpc-port", first.grpc.rpartition(":")[2], "--http-port", first.http.rpartition(":")[2])
    async with (
        services.serving(arguments=(*arguments, *where)) as second,
        clusterd.subscriber(second.grpc) as client,
    ):
        again = await clusterd.take(client.stream(start_from="earliest"), 1)
        assert [message.uuid for message in again] == [uuid]


async def test_worker_that_never_comes_up_again_ends_the_service_with_the_reason(
    database: str, connection: asyncpg.Connection[asyncpg.Record], capfd: pytest.CaptureFixture[str]
) -> None:
    async with services.serving(
        arguments=("--workers", str(COUNT)), JOBLEDGER_DATABASE_URL=database, JOBLEDGER_LOG_FORMAT="json"
    ) as process:
        await connection.execute("delete from alembic_version")

        os.kill(working.pids(process)[1], signal.SIGKILL)

        assert await asyncio.wait_for(process.process.wait(), 100) == 2
    said = capfd.readouterr().err
    assert "worker 2 ended 5 times soon after its start, the last time with 1" in said
    assert '"worker": 2' in said
    assert "revision" in said


async def test_ports_of_a_service_with_workers_are_not_shared_with_another(
    process: services.Process, database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    port = process.grpc.rpartition(":")[2]
    where = ("--workers", str(COUNT), "--grpc-port", port, "--http-port", "0")

    with pytest.raises(AssertionError, match="serve ended with 2"):
        await services.started(arguments=where, JOBLEDGER_DATABASE_URL=database)

    said = " ".join(capfd.readouterr().err.split())
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; set JOBLEDGER_GRPC_PORT" in said


async def append(client: clusterd.Subscriber, submission: event.Submission) -> str:
    """Record an event through this very client's worker; the answer is its uuid."""
    call = client.channel.unary_unary("/jobledger.v1.Ledger/Append")
    [outcome] = batches.outcomes(v1.AppendResponse.parse(await call(bytes(batches.request([submission])))))
    assert isinstance(outcome, event.Receipt), outcome
    return str(outcome.uuid)


def replaced(process: services.Process, pid: int) -> None:
    now = working.pids(process)
    assert pid not in now
    assert len(now) == COUNT


def gone(*pids: int) -> None:
    assert not any(map(working.alive, pids))
