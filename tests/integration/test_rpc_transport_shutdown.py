"""How calls end from our side: every client hears a status, and where to resume, within a second."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import grpclib
import grpclib.client
import pytest
from grpclib.const import Cardinality, Status

from jobledger import errors
from jobledger.rpc import http2, internals, methods, streaming
from tests.support import transport


async def wait_at_the_head(call: streaming.Call, _request: bytes) -> None:
    await call.send_initial_metadata()
    await call.send(b"x", resume_uuid="u-1")
    await asyncio.Event().wait()


async def status_of(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Reads a grpcio stream to its end."""
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        trailers = {key: str(value) for key, value in error.trailing_metadata() or ()}
        return error.code(), error.details() or "", trailers
    return grpc.StatusCode.OK, "", {}


SHUT_DOWN = (
    grpc.StatusCode.UNAVAILABLE,
    "shutting down, resume from u-1",
    {"ledger-reason": "shutdown", "resume-uuid": "u-1"},
)


async def test_waiting_stream_is_told_where_to_resume_and_its_connection_closes() -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(wait_at_the_head)}) as (running, port),
        transport.channel(port) as channel,
    ):
        status = asyncio.create_task(status_of(channel.unary_stream("/test.Test/Call")(b"")))
        await transport.becomes_true(lambda: running.open_calls == 1)
        started = time.monotonic()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        assert await status == SHUT_DOWN
        assert time.monotonic() - started < 1
        await asyncio.wait_for(stopping, 10)
        with pytest.raises(OSError, match=str(port)):
            await asyncio.open_connection("127.0.0.1", port)


async def test_1_000_streams_hear_of_the_shutdown_within_the_grace_time() -> None:
    service = {"/test.Test/Call": methods.server_stream(wait_at_the_head)}
    async with transport.serving(service) as (running, port), contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(transport.RawClient.connected(port)) for _ in range(10)]
        opened = {client: [client.call("/test.Test/Call") for _ in range(100)] for client in clients}
        for client in clients:
            await client.flush()
        # A stream that has not had its turn to send has nothing to be resumed after here.
        for client, calls in opened.items():
            await client.until(lambda client=client, calls=calls: all(map(client.data.get, calls)))
        assert running.open_calls == 1000
        started = time.monotonic()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        for client, calls in opened.items():
            await client.until(lambda client=client, calls=calls: client.ended.issuperset(calls))
        took = time.monotonic() - started
        await stopping
    ends = [client.trailers[stream_id] for client, calls in opened.items() for stream_id in calls]
    assert {(end["grpc-status"], end["resume-uuid"]) for end in ends} == {("14", "u-1")}
    assert took < 4


async def test_grpclib_client_that_is_busy_still_hears_the_status_before_its_connection_goes() -> None:
    service = {"/test.Test/Call": methods.server_stream(wait_at_the_head)}

    async def follow(port: int) -> None:
        channel = grpclib.client.Channel("127.0.0.1", port, codec=internals.BytesCodec())
        try:
            opening: Any = channel.request("/test.Test/Call", Cardinality.UNARY_STREAM, bytes, bytes)
            async with opening as stream:
                await stream.send_message(b"", end=True)
                async for _ in stream:
                    time.sleep(0.1)  # noqa: ASYNC251 - decoding; the shutdown happens meanwhile
        finally:
            channel.close()

    async with transport.serving(service) as (running, port):
        following = asyncio.create_task(asyncio.to_thread(asyncio.run, follow(port)))
        await transport.becomes_true(lambda: running.open_calls == 1)
        await running.shutdown(grace_seconds=5)
        with pytest.raises(grpclib.GRPCError) as caught:
            await following
    assert (caught.value.status, caught.value.message) == (Status.UNAVAILABLE, SHUT_DOWN[1])


async def test_calls_that_were_read_are_answered_before_the_server_stops() -> None:
    read, answer = asyncio.Event(), asyncio.Event()

    async def slow(_call: streaming.Call, request: bytes) -> bytes:
        read.set()
        await answer.wait()
        return request

    async def slow_in_turn(call: streaming.Call) -> None:
        while (request := await call.receive()) is not None:
            await call.send(await slow(call, request))

    service = {
        "/test.Test/Call": methods.unary(slow),
        "/test.Test/InTurn": methods.bidirectional(slow_in_turn),
    }
    async with transport.serving(service) as (running, port), transport.channel(port) as channel:
        single = channel.unary_unary("/test.Test/Call")(b"1")
        in_turn = channel.stream_stream("/test.Test/InTurn")()
        await in_turn.write(b"2")
        await transport.becomes_true(lambda: running.open_calls == 2)
        await read.wait()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        await asyncio.sleep(0.1)
        answer.set()
        assert await single == b"1"
        assert await in_turn.read() == b"2"
        assert (await in_turn.code(), await in_turn.details()) == (
            grpc.StatusCode.UNAVAILABLE,
            "shutting down",
        )
        await stopping


async def test_idle_publisher_stream_ends_at_once() -> None:
    async def echo(call: streaming.Call) -> None:
        while (request := await call.receive()) is not None:
            await call.send(request)

    async with (
        transport.serving({"/test.Test/Call": methods.bidirectional(echo)}) as (running, port),
        transport.channel(port) as channel,
    ):
        call = channel.stream_stream("/test.Test/Call")()
        await call.write(b"1")
        assert await call.read() == b"1"
        started = time.monotonic()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        assert await call.code() == grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - started < 1
        await stopping


async def test_call_that_outlasts_the_grace_time_is_cut_short_with_a_status() -> None:
    async def stuck(_call: streaming.Call, _request: bytes) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with (
        transport.serving({"/test.Test/Call": methods.unary(stuck)}) as (running, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_unary("/test.Test/Call")(b"")
        await transport.becomes_true(lambda: running.open_calls == 1)
        stopping = asyncio.create_task(running.shutdown(grace_seconds=0.2))
        assert await asyncio.wait_for(call.code(), 20) == grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "shutting down"
        await stopping


async def test_stalled_reader_does_not_hold_up_the_shutdown_and_finds_its_status() -> None:
    async def send_for_ever(call: streaming.Call, _request: bytes) -> None:
        while True:
            await call.send_chunk(streaming.frame(bytes(1000)) * 64)

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(send_for_ever)}) as (running, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_stream("/test.Test/Call")(b"")
        await asyncio.sleep(0.2)  # until the window is shut
        started = time.monotonic()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=60))
        await transport.becomes_true(lambda: running.open_calls == 0, within_seconds=30)
        code, details, _ = await status_of(call)
        await stopping
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "shutting down")
        assert time.monotonic() - started < 30


async def test_chunk_being_written_is_finished_before_its_stream_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "PATIENCE_SECONDS", 60.0)
    chunk = streaming.frame(bytes(100_000)) * 4

    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        await call.send_chunk(chunk, resume_uuid="u-1")
        await asyncio.Event().wait()

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(subscribe)}) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        stream_id = client.call("/test.Test/Call")
        await client.flush()
        await client.until(lambda: len(client.data.get(stream_id, b"")) >= 50_000, ack=False)
        stopping = asyncio.create_task(running.shutdown(grace_seconds=90))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        client.h2.increment_flow_control_window(1 << 20)
        client.h2.increment_flow_control_window(1 << 20, stream_id)
        await client.flush()
        assert await client.status(stream_id) == "14"
        assert time.monotonic() - started < streaming.PATIENCE_SECONDS / 2
        assert client.data[stream_id] == chunk
        assert client.trailers[stream_id]["resume-uuid"] == "u-1"
        await stopping


async def test_new_call_during_the_shutdown_is_refused_as_unavailable() -> None:
    read, answer = asyncio.Event(), asyncio.Event()

    async def slow(_call: streaming.Call, request: bytes) -> bytes:
        read.set()
        await answer.wait()
        return request

    async with (
        transport.serving({"/test.Test/Call": methods.unary(slow)}) as (running, port),
        transport.channel(port) as channel,
    ):
        running.set_serving(serving=True)
        first = asyncio.ensure_future(channel.unary_unary("/test.Test/Call")(b"1"))
        await read.wait()
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Call")(b"2")
        answer.set()
        assert await first == b"1"
        await stopping
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "shutting down")


async def test_health_watch_ends_with_the_service() -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(wait_at_the_head)}) as (running, port),
        transport.channel(port) as channel,
    ):
        running.set_serving(serving=True)
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert await watch.read() == b"\x08\x01"
        stopping = asyncio.create_task(running.shutdown(grace_seconds=5))
        assert await asyncio.wait_for(watch.code(), 20) == grpc.StatusCode.UNAVAILABLE
        await stopping


async def test_call_ended_from_outside_carries_the_reason_and_leaves_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[streaming.Call] = []
    closed: list[str] = []

    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        calls.append(call)
        try:
            await wait_at_the_head(call, b"")
        finally:
            closed.append(call.peer_address)

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(subscribe)}) as (running, port),
        transport.channel(port) as channel,
    ):
        older = asyncio.create_task(status_of(channel.unary_stream("/test.Test/Call")(b"")))
        await transport.becomes_true(lambda: len(calls) == 1)
        newer = channel.unary_stream("/test.Test/Call")(b"")
        await transport.becomes_true(lambda: len(calls) == 2)
        await transport.becomes_true(lambda: calls[0].resume_uuid == "u-1")
        calls[0].end(lambda: errors.TakenOver("agent"))
        calls[0].end(lambda: errors.DataLoss(1))
        code, details, trailers = await asyncio.wait_for(older, 20)
        assert (code, trailers) == (
            grpc.StatusCode.CANCELLED,
            {"ledger-reason": "takeover", "resume-uuid": "u-1"},
        )
        assert "subscribed again" in details
        assert (running.open_calls, closed) == (1, ["127.0.0.1"])
        newer.cancel()
    assert transport.error_lines(caplog.records) == []


async def test_end_that_crosses_the_handler_s_own_does_not_lose_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse_while_being_ended(call: streaming.Call, _request: bytes) -> None:
        call.end(errors.ShuttingDown)
        raise streaming.CallError(Status.NOT_FOUND, "no such job")

    send = http2.Stream.send_headers

    async def send_on_a_busy_connection(self: http2.Stream, headers: Any, **end: Any) -> None:
        await asyncio.sleep(0)
        await send(self, headers, **end)

    monkeypatch.setattr(http2.Stream, "send_headers", send_on_a_busy_connection)
    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(refuse_while_being_ended)}) as (_, port),
        transport.channel(port) as channel,
    ):
        code, details, _ = await status_of(channel.unary_stream("/test.Test/Call")(b""))
    assert (code, details) == (grpc.StatusCode.NOT_FOUND, "no such job")
