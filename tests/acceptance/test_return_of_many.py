"""Everybody comes back at once, as after a restart: Postgres is asked once for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from jobledger import app
from jobledger.ledger import pagecache, start, subscription, turns
from jobledger.model import selection
from jobledger.rpc import http2
from jobledger.store import engine, eventlog, jobs
from tests.support import clusterd, events, scale, services

CONNECTIONS = 10
SUBSCRIBERS = scale.count("SUBSCRIBERS", 100)
PAGE_EVENTS = 64
EVENTS = 4 * PAGE_EVENTS
WAITING = 40
"""Streams of each kind that one event wakes."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[object]:
    """How often Postgres was asked for which events; small pages, so that there are several."""
    monkeypatch.setattr(pagecache, "PAGE_EVENTS", PAGE_EVENTS)
    counted: Counter[object] = Counter()
    for name in ("between", "at"):
        read = getattr(eventlog, name)

        async def noted(connection: Any, *asked: Any, read: Any = read, **more: Any) -> Any:
            counted[repr((read.__name__, asked))] += 1
            return await read(connection, *asked, **more)

        monkeypatch.setattr(eventlog, name, noted)
    return counted


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a snapshot take until everybody has asked for it."""
    find, read = start.Starts.find, jobs.snapshot
    asked: list[selection.StreamRequest] = []
    all_asked = asyncio.Event()

    async def asking(self: start.Starts, request: selection.StreamRequest) -> subscription.Start:
        asked.append(request)
        if len(asked) == SUBSCRIBERS:
            all_asked.set()
        return await find(self, request)

    async def reading(connection: engine.Connection, wanted: selection.Filter) -> jobs.Snapshot:
        await all_asked.wait()
        return await read(connection, wanted)

    # This process is server and all clients: on a busy machine a connection may take its time.
    monkeypatch.setattr(engine, "CALLER_PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(start.Starts, "find", asking)
    monkeypatch.setattr(jobs, "snapshot", reading)


@contextlib.asynccontextmanager
async def clients(address: str) -> AsyncGenerator[Sequence[clusterd.Subscriber]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(clusterd.subscriber(address, own_connection=True))
            for _ in range(CONNECTIONS)
        ]


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("start_from", ["earliest", "snapshot"])
async def test_subscribers_that_return_at_once_cost_one_read_a_page_and_rest_is_answered(
    database: str, reads: Counter[object], start_from: str
) -> None:
    async with services.running(database) as before:
        await services.publish(before, *(events.submission(f"job-{n}") for n in range(EVENTS)))
    async with (
        services.running(database) as service,
        aiohttp.ClientSession() as session,
        clients(services.grpc_address(service)) as some,
    ):
        url = f"http://127.0.0.1:{service.http_port}/v4/cwai/job/job-7?regionID=default"
        calls = [some[n % CONNECTIONS].stream(start_from=start_from, lists=True) for n in range(SUBSCRIBERS)]
        returning = [asyncio.create_task(_take_all(call)) for call in calls]
        answers: list[int] = []
        while not all(task.done() for task in returning):
            async with session.get(url) as answer:
                answers.append((await answer.json())["statusCode"])
        told = await asyncio.gather(*returning)

    assert len(told[0]) == len(set(told[0])) == EVENTS
    assert all(each == told[0] for each in told)
    assert set(answers) == {800}
    assert set(reads.values()) == {1}, reads


async def test_streams_by_grpc_and_by_http_take_the_same_turns(
    service: app.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[turns.Turns] = []
    written: list[object] = []
    passes: list[int] = []
    _note(monkeypatch, turns.Turns, "take", taken)
    _note(monkeypatch, http2.Stream, "sends_at_once", written)
    _note(monkeypatch, web.StreamResponse, "write", written)

    async def count_passes() -> None:
        while True:
            passes.append(len(written))
            await asyncio.sleep(0)

    url = f"http://127.0.0.1:{service.http_port}/v4/cwai/events?startFrom=latest"
    async with (
        contextlib.AsyncExitStack() as stack,
        clients(services.grpc_address(service)) as some,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        counting = asyncio.create_task(count_passes())
        calls = [some[n % CONNECTIONS].stream(start_from="latest") for n in range(WAITING)]
        for call in calls:
            await clusterd.initial(call)
        answers = [await stack.enter_async_context(session.get(url)) for _ in range(WAITING)]
        for answer in answers:
            assert await answer.content.readuntil(b": caught up at position 0\n\n")

        await services.publish(service, events.submission())

        await asyncio.gather(*(clusterd.take(call, 1) for call in calls))
        await asyncio.gather(*(answer.content.readuntil(b"data: ") for answer in answers))
        counting.cancel()

    assert len(taken) >= len(written) >= 2 * WAITING
    assert len(set(taken)) == 1
    assert max(later - earlier for earlier, later in itertools.pairwise(passes)) <= 2 * turns.CHUNKS_A_PASS


def _note(patch: pytest.MonkeyPatch, owner: type, name: str, noted: list[Any]) -> None:
    """Keep on whom a method is called."""
    method = getattr(owner, name)

    def noting(self: object, *given: Any, **more: Any) -> Any:
        noted.append(self)
        return method(self, *given, **more)

    patch.setattr(owner, name, noting)


async def _take_all(call: Any) -> list[str]:
    uuids: list[str] = []
    while len(uuids) < EVENTS:
        message = await call.read()
        assert message is not clusterd.EOF, await clusterd.ended(call)
        uuids += [signal.uuid for signal in message.jobSummarySignals]
    return uuids
