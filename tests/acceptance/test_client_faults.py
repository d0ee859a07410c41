"""Our own client when connections break: what it was asked to do, and to stop doing, it still does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpclib.client
import pytest

from jobledger import app, errors
from jobledger.client import batches, connection, messages, publishing, subscription
from tests.support import events, relay, services

ANSWER_SECONDS = 30.0
"""Far longer than anything here takes: a call that does not end in this has hung."""


async def caught_up(stream: AsyncGenerator[messages.Message]) -> None:
    while not isinstance(await anext(stream), messages.CaughtUp):
        pass


async def test_a_lost_connection_leaves_no_cancellation_behind(service: app.Service) -> None:
    task = asyncio.current_task()
    assert task is not None
    async with relay.running(service.grpc_port) as between:
        stream = subscription.follow(connection.Address("127.0.0.1", between.port))
        async with contextlib.aclosing(stream), asyncio.timeout(ANSWER_SECONDS):
            await caught_up(stream)
            between.cut()

            await caught_up(stream)

            assert task.cancelling() == 0


async def test_a_connection_that_is_lost_before_it_is_used_is_a_server_that_is_away(
    service: app.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = grpclib.client.Channel.__connect__

    async def lost(self: grpclib.client.Channel) -> Any:
        protocol = await connect(self)
        protocol.processor.connection.close()
        return protocol

    monkeypatch.setattr(grpclib.client.Channel, "__connect__", lost)
    with pytest.raises(errors.ServerUnreachable, match="lost at once"):
        await publishing.append(connection.Address("127.0.0.1", service.grpc_port), [events.submission()])


async def test_a_connection_that_goes_silent_is_given_up_and_what_came_meanwhile_is_handed_over_once(
    service: app.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than the heartbeats' 10 s: the service is silent too, so that nothing but the limit can end it.
    monkeypatch.setattr(subscription, "SILENCE_SECONDS", 2.0)
    async with relay.running(service.grpc_port) as between:
        stream = subscription.follow(connection.Address("127.0.0.1", between.port))
        async with contextlib.aclosing(stream), asyncio.timeout(ANSWER_SECONDS):
            await caught_up(stream)
            await services.publish(service, events.submission("seen"))
            seen = await delivered(stream, 1)
            between.swallow()
            await services.publish(service, *(events.submission(f"unseen-{n}") for n in range(3)))

            unseen = await delivered(stream, 3)

    assert [each.signal.job_id for each in (*seen, *unseen)] == ["seen", "unseen-0", "unseen-1", "unseen-2"]
    assert [each.position for each in unseen] == [2, 3, 4]


async def delivered(stream: AsyncGenerator[messages.Message], count: int) -> list[messages.Delivered]:
    """The next events, whatever stands between them."""
    found: list[messages.Delivered] = []
    while len(found) < count:
        if isinstance(message := await anext(stream), messages.Delivered):
            found.append(message)
    return found


async def test_a_caller_that_cancels_as_the_connection_breaks_is_not_kept() -> None:
    waits = connection.Waits()

    async def call() -> None:
        with waits:
            await asyncio.Event().wait()

    calling = asyncio.create_task(call())
    await asyncio.sleep(0)

    calling.cancel()
    waits.cancel(ConnectionResetError("in the same moment"))

    await asyncio.wait({calling})
    assert calling.cancelled()


def ignore(_: batches.Batch, _outcomes: Sequence[batches.Outcome]) -> None:
    """What became of the events does not matter here."""


async def endless() -> AsyncGenerator[batches.Batch]:
    while True:
        yield [events.submission()]


async def test_a_publisher_with_much_to_say_hears_that_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = connection.Address("127.0.0.1", taken.getsockname()[1])

    publication = asyncio.create_task(publishing.publish(address, endless(), ignore))
    await asyncio.wait({publication}, timeout=ANSWER_SECONDS)

    assert publication.done()
    assert isinstance(publication.exception(), errors.ServerUnreachable)


async def test_a_publisher_can_be_cancelled_while_the_service_is_away(database: str) -> None:
    answered = asyncio.Event()

    def note(_: batches.Batch, _outcomes: Sequence[batches.Outcome]) -> None:
        answered.set()

    async with services.running(database) as service:
        address = connection.Address.parse(services.grpc_address(service))
        publication = asyncio.create_task(publishing.publish(address, endless(), note))
        await answered.wait()

    publication.cancel()
    await asyncio.wait({publication}, timeout=ANSWER_SECONDS)

    assert publication.cancelled()
