"""Streams under readers that stall, leave, shrink their windows, and come in numbers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import grpc
import pytest
from h2.events import PingAckReceived
from h2.settings import SettingCodes

from jobledger.rpc import connection, methods, streaming
from tests.support import scale, transport

CHUNK = streaming.frame(bytes(1019)) * 64
"""64 KiB in messages of 1 KiB with their prefix."""


async def wait_at_the_head(call: streaming.Call, _request: bytes) -> None:
    await call.send_initial_metadata()
    await asyncio.Event().wait()


async def send_for_ever(call: streaming.Call, _request: bytes) -> None:
    while True:
        await call.send_chunk(CHUNK)


async def echo(_call: streaming.Call, request: bytes) -> bytes:
    return request


class Witness:
    """Wraps a stream handler and tells when its generators would be closed."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.closed = asyncio.Event()

    async def produce(self, *, ready: bool) -> AsyncGenerator[bytes]:
        try:
            self.started.set()
            while True:
                if not ready:
                    await asyncio.Event().wait()
                yield CHUNK
        finally:
            self.closed.set()

    def method(self, *, ready: bool) -> methods.Method:
        async def subscribe(call: streaming.Call, _request: bytes) -> None:
            async with contextlib.aclosing(self.produce(ready=ready)) as chunks:
                async for chunk in chunks:
                    await call.send_chunk(chunk)

        return methods.server_stream(subscribe)


@pytest.mark.parametrize("ready", [False, True], ids=["waiting at the head", "blocked in a send"])
async def test_cancelled_stream_closes_its_generator_at_once_and_is_no_error_line(
    caplog: pytest.LogCaptureFixture, *, ready: bool
) -> None:
    witness = Witness()
    async with (
        transport.serving({"/test.Test/Call": witness.method(ready=ready)}) as (running, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_stream("/test.Test/Call")(b"")
        await asyncio.wait_for(witness.started.wait(), 5)
        if ready:
            await call.read()
            await asyncio.sleep(0.1)  # until the window is shut
        call.cancel()
        await asyncio.wait_for(witness.closed.wait(), 10)
        await transport.becomes_true(lambda: running.open_calls == 0)
    assert transport.error_lines(caplog.records) == []


async def test_handler_that_fails_after_its_client_left_is_no_error_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail_on_the_way_out(call: streaming.Call, _request: bytes) -> None:
        try:
            await wait_at_the_head(call, b"")
        finally:
            raise ConnectionError("the pool is closed")

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(fail_on_the_way_out)}) as (running, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_stream("/test.Test/Call")(b"")
        await call.initial_metadata()
        call.cancel()
        await transport.becomes_true(lambda: running.open_calls == 0)
    assert transport.error_lines(caplog.records) == []
    assert "the pool is closed" in caplog.text


@pytest.mark.parametrize("ready", [False, True], ids=["waiting at the head", "blocked in a send"])
async def test_lost_connection_closes_the_generators_of_its_streams_at_once(
    caplog: pytest.LogCaptureFixture, *, ready: bool
) -> None:
    witness = Witness()
    async with transport.serving({"/test.Test/Call": witness.method(ready=ready)}) as (running, port):
        async with transport.RawClient.connected(port) as client:
            client.call("/test.Test/Call")
            await client.flush()
            await asyncio.wait_for(witness.started.wait(), 5)
            client.writer.transport.abort()
            await asyncio.wait_for(witness.closed.wait(), 10)
        await transport.becomes_true(lambda: running.open_calls == 0)
    assert transport.error_lines(caplog.records) == []


async def test_130_streams_on_one_channel_leave_room_for_another_call() -> None:
    service = {
        "/test.Test/Subscribe": methods.server_stream(wait_at_the_head),
        "/test.Test/Call": methods.unary(echo),
    }
    async with transport.serving(service) as (running, port), transport.channel(port) as channel:
        calls = [channel.unary_stream("/test.Test/Subscribe")(b"") for _ in range(130)]
        await asyncio.wait_for(asyncio.gather(*(call.initial_metadata() for call in calls)), 10)
        assert running.open_calls == 130
        assert await channel.unary_unary("/test.Test/Call")(b"x", timeout=5) == b"x"
        for call in calls:
            call.cancel()


async def test_idle_streams_keep_no_event_and_no_queue() -> None:
    async def wait(call: streaming.Call, _request: bytes) -> None:
        await call.send_initial_metadata()
        await asyncio.get_running_loop().create_future()

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(wait)}) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        before = held()
        calls = [client.call("/test.Test/Call") for _ in range(20)]
        await client.flush()
        await client.until(lambda: client.trailers.keys() >= set(calls))
        assert running.open_calls == 20
        assert held() <= before


@pytest.mark.parametrize("how", ["the connection", "its stream"])
async def test_nothing_of_a_call_whose_client_left_waits_for_the_collector(how: str) -> None:
    calls: list[weakref.ref[streaming.Call]] = []

    async def follow(call: streaming.Call, request: bytes) -> None:
        calls.append(weakref.ref(call))
        await wait_at_the_head(call, request)

    async with transport.serving({"/test.Test/Call": methods.server_stream(follow)}) as (running, port):
        gc.collect()
        gc.disable()
        try:
            async with transport.RawClient.connected(port) as client:
                stream = client.call("/test.Test/Call")
                await client.flush()
                await client.until(lambda: stream in client.trailers)
                if how == "its stream":
                    client.h2.reset_stream(stream)
                    await client.flush()
                    await transport.becomes_true(lambda: running.open_calls == 0)
            await transport.becomes_true(lambda: running.open_calls == 0)
            await transport.becomes_true(lambda: calls[0]() is None)
        finally:
            gc.enable()


def held() -> int:
    """How many of asyncio's events and queues there are; each holds a deque of 760 bytes."""
    gc.collect()
    return sum(issubclass(type(each), asyncio.Event | asyncio.Queue) for each in gc.get_objects())


@pytest.mark.parametrize("late", [False, True], ids=["with the request", "later"])
async def test_what_follows_the_one_request_of_a_stream_gives_its_window_back(*, late: bool) -> None:
    options = connection.Options(connection_window_bytes=1 << 18)
    service = {"/test.Test/Call": methods.server_stream(wait_at_the_head)}
    async with (
        transport.serving(service, options=options) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        for _ in range(100):
            stream_id = client.open("/test.Test/Call")
            client.h2.send_data(stream_id, streaming.frame(b""))
            if late:
                await client.flush()
                await client.until(lambda stream_id=stream_id: stream_id in client.trailers)
            client.h2.send_data(stream_id, bytes(10_000), end_stream=True)
            await client.flush()
            await client.until(lambda stream_id=stream_id: stream_id in client.trailers)
            client.h2.reset_stream(stream_id)
            await client.flush()
            await client.until(lambda: client.h2.outbound_flow_control_window > 100_000)
        await transport.becomes_true(lambda: running.open_calls == 0)


async def read_to_end(call: Any) -> None:
    while await call.read():
        pass


async def test_stalled_reader_is_told_so_and_another_is_not_delayed() -> None:
    service = {"/test.Test/Subscribe": methods.server_stream(send_for_ever)}
    async with (
        transport.serving(service, send_timeout_seconds=1.0) as (running, port),
        transport.channel(port) as stalled_channel,
        transport.channel(port) as channel,
    ):
        stalled = stalled_channel.unary_stream("/test.Test/Subscribe")(b"")
        assert len(await stalled.read()) == 1019
        reading = channel.unary_stream("/test.Test/Subscribe")(b"")
        started = time.monotonic()
        async with asyncio.timeout(20):
            while running.open_calls > 1 or time.monotonic() < started + 0.5:
                await asyncio.wait_for(reading.read(), 5)
        reading.cancel()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_to_end(stalled)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert ("ledger-reason", "slow-reader") in tuple(caught.value.trailing_metadata() or ())


def read_and_forget(port: int, request: bytes, stop: threading.Event) -> int:
    """Reads as fast as the kernel gives, so that the server never waits for the reader; the bytes read."""
    total = 0
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(request)
        sock.settimeout(0.5)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                total += len(sock.recv(1 << 20))
    return total


async def test_long_replay_does_not_delay_other_calls() -> None:
    service = {
        "/test.Test/Subscribe": methods.server_stream(send_for_ever),
        "/test.Test/Call": methods.unary(echo),
    }
    stop = threading.Event()
    async with transport.serving(service) as (_, port), transport.RawClient.connected(port) as other:
        request = transport.greedy_request("/test.Test/Subscribe")
        replay = asyncio.create_task(asyncio.to_thread(read_and_forget, port, request, stop))
        slowest = 0.0
        for _ in range(300):
            started = time.monotonic()
            call_id = other.call("/test.Test/Call")
            await other.flush()
            assert await other.status(call_id) == "0"
            slowest = max(slowest, time.monotonic() - started)
        stop.set()
        assert await replay > 10_000_000
    assert slowest < 1


async def test_small_answers_wait_for_no_delayed_acknowledgement() -> None:
    service = {"/test.Test/Call": methods.unary(echo)}
    async with transport.serving(service) as (_, port), transport.RawClient.connected(port) as client:
        took: list[float] = []
        for _ in range(21):
            started = time.monotonic()
            stream_id = client.call("/test.Test/Call")
            await client.flush()
            assert await client.status(stream_id) == "0"
            took.append(time.monotonic() - started)
    # Nagle's algorithm and a delayed acknowledgement together take 40 ms or more, each time.
    assert min(took) < 0.03


async def test_window_shrunk_below_zero_in_mid_stream_only_pauses_it() -> None:
    sent = b"".join(streaming.frame(bytes([n]) * 10_000) for n in range(30))

    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        await call.send_chunk(sent)

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(subscribe)}) as (_, port),
        transport.RawClient.connected(port) as client,
    ):
        stream_id = client.call("/test.Test/Call")
        await client.flush()
        await client.until(lambda: len(client.data.get(stream_id, b"")) >= 40_000, ack=False)
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1000})
        await client.flush()
        await client.until(lambda: client.h2.local_settings.initial_window_size == 1000, ack=False)
        held = len(client.data[stream_id])
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        client.h2.increment_flow_control_window(1 << 20)
        await client.flush()
        assert await client.status(stream_id) == "0"
        assert held < len(sent)
        assert client.data[stream_id] == sent


KEEN = connection.Options(keepalive_seconds=0.2, keepalive_timeout_seconds=0.2)


@pytest.mark.parametrize("calls", [0, 1])
async def test_peer_that_answers_no_ping_is_given_up(calls: int) -> None:
    service = {"/test.Test/Call": methods.server_stream(wait_at_the_head)}
    async with (
        transport.serving(service, options=KEEN) as (running, port),
        transport.RawClient.connected(port) as silent,
    ):
        for _ in range(calls):
            silent.call("/test.Test/Call")
        await silent.flush()
        await transport.becomes_true(lambda: running.open_calls == calls)
        await asyncio.wait_for(silent.closed_by_server(), 20)
        await transport.becomes_true(lambda: running.open_calls == 0)


async def test_stalled_connection_holds_neither_its_call_nor_the_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "TRAILERS_SECONDS", 0.2)
    service = {"/test.Test/Subscribe": methods.server_stream(send_for_ever)}
    async with transport.serving(service, send_timeout_seconds=0.2) as (running, port):
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(transport.greedy_request("/test.Test/Subscribe"))
            await transport.becomes_true(lambda: running.open_calls == 1)
            await transport.becomes_true(lambda: running.open_calls == 0)
            await asyncio.wait_for(running.shutdown(grace_seconds=0.1), 10)


async def test_subscriber_that_reads_nothing_for_long_answers_pings_and_stays() -> None:
    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        for _ in range(8):
            await call.send_chunk(CHUNK)

    service = {"/test.Test/Call": methods.server_stream(subscribe)}
    async with transport.serving(service, options=KEEN) as (_, port):

        def read_with_a_nap() -> int:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                messages = cast("Iterator[bytes]", channel.unary_stream("/test.Test/Call")(b""))
                next(messages)
                time.sleep(2)
                return 1 + sum(1 for _ in messages)

        assert await asyncio.to_thread(read_with_a_nap) == 8 * 64


PINGS = 20
PING_SECONDS = scale.count("PING_SECONDS", 0)
"""Between two of them."""


async def test_client_that_half_closes_and_pings_without_data_is_kept() -> None:
    service = {"/test.Test/Call": methods.server_stream(wait_at_the_head)}
    async with (
        transport.serving(service) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        client.call("/test.Test/Call")
        for n in range(1, PINGS + 1):
            client.h2.ping(n.to_bytes(8, "big"))
            await client.flush()
            await client.until(lambda n=n: sum(isinstance(e, PingAckReceived) for e in client.seen) == n)
            await asyncio.sleep(PING_SECONDS)
        assert running.open_calls == 1
