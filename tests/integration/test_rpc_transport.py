"""What a foreign client sees of single calls: requests, metadata, statuses."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from grpclib import protocol
from grpclib.const import Status

from jobledger.rpc import frames, internals, methods, streaming
from tests.support import transport


async def echo(_call: streaming.Call, request: bytes) -> bytes:
    return request


def failing(failure: Exception) -> methods.Method:
    async def fail(_call: streaming.Call, _request: bytes) -> bytes:
        raise failure

    return methods.unary(fail)


async def refused(port: int, request: bytes = b"") -> grpc.aio.AioRpcError:
    async with transport.channel(port) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Call")(request, timeout=20)
    return caught.value


def trailers_of(error: grpc.aio.AioRpcError) -> dict[str, str]:
    return {key: str(value) for key, value in error.trailing_metadata() or ()}


async def test_request_bytes_reach_the_handler_and_its_bytes_come_back() -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (_, port),
        transport.channel(port) as channel,
    ):
        assert await channel.unary_unary("/test.Test/Call")(b"\0\xff\1") == b"\0\xff\1"
        assert await channel.unary_unary("/test.Test/Call")(b"") == b""


async def test_status_message_in_any_script_arrives_as_written() -> None:
    message = "作业 训练-𠮷 é 100% \n done"
    failure = streaming.CallError(Status.NOT_FOUND, message)
    async with transport.serving({"/test.Test/Call": failing(failure)}) as (_, port):
        error = await refused(port)
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, message)


async def test_status_message_with_lone_surrogate_arrives_escaped() -> None:
    failure = streaming.CallError(Status.INVALID_ARGUMENT, "job \ud800")
    async with transport.serving({"/test.Test/Call": failing(failure)}) as (_, port):
        error = await refused(port)
    assert error.details() == "job \\ud800"


async def test_long_status_message_is_cut_to_what_clients_accept() -> None:
    failure = streaming.CallError(Status.INVALID_ARGUMENT, "训" * 5000)
    async with transport.serving({"/test.Test/Call": failing(failure)}) as (_, port):
        error = await refused(port)
    details = error.details()
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert details is not None
    assert details.endswith("训…")
    assert len(details.encode()) <= streaming.MESSAGE_LIMIT_BYTES


async def test_failed_call_carries_its_trailers_and_where_to_resume() -> None:
    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        await call.send_chunk(streaming.frame(b"x"), resume_uuid="u-1")
        raise streaming.CallError(Status.OUT_OF_RANGE, "pruned", {"ledger-reason": "pruned"})

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(subscribe)}) as (_, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_stream("/test.Test/Call")(b"")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            assert [message async for message in call] == [b"x"]
    assert trailers_of(caught.value) == {"ledger-reason": "pruned", "resume-uuid": "u-1"}


async def test_initial_metadata_arrives_before_there_is_anything_to_send() -> None:
    async def subscribe(call: streaming.Call, _request: bytes) -> None:
        await call.send_initial_metadata({"ledger-head": "7"})
        await asyncio.Event().wait()

    async with (
        transport.serving({"/test.Test/Call": methods.server_stream(subscribe)}) as (_, port),
        transport.channel(port) as channel,
    ):
        call = channel.unary_stream("/test.Test/Call")(b"")
        metadata = await asyncio.wait_for(call.initial_metadata(), 5)
        assert dict(metadata) == {"ledger-head": "7"}  # pyright: ignore[reportArgumentType, reportCallIssue]
        call.cancel()


async def test_request_metadata_is_read_by_name_and_contradictions_are_refused() -> None:
    async def header(call: streaming.Call, _request: bytes) -> bytes:
        return call.header("last-seen-uuid").encode()

    async with (
        transport.serving({"/test.Test/Call": methods.unary(header)}) as (_, port),
        transport.channel(port) as channel,
    ):
        method = channel.unary_unary("/test.Test/Call")
        assert await method(b"", metadata=[("last-seen-uuid", "u")]) == b"u"
        assert await method(b"", metadata=[("last-seen-uuid", "u"), ("last-seen-uuid", "u")]) == b"u"
        assert await method(b"") == b""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"", metadata=[("last-seen-uuid", "u"), ("last-seen-uuid", "v")])
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "last-seen-uuid has 2 values" in (caught.value.details() or "")


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
async def test_peer_is_known_by_its_address_without_port(host: str) -> None:
    async def peer(call: streaming.Call, _request: bytes) -> bytes:
        return call.peer_address.encode()

    async with (
        transport.serving({"/test.Test/Call": methods.unary(peer)}, host=host) as (_, port),
        transport.channel(port) as channel,
    ):
        assert await channel.unary_unary("/test.Test/Call")(b"") == b"127.0.0.1"


async def test_request_at_the_limit_is_served_and_one_byte_more_refused_with_both_numbers() -> None:
    service = {"/test.Test/Call": methods.unary(echo)}
    async with transport.serving(service, request_limit_bytes=1000) as (_, port):
        async with transport.channel(port) as channel:
            assert len(await channel.unary_unary("/test.Test/Call")(bytes(1000))) == 1000
        error = await refused(port, bytes(1001))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "a request of 1001 bytes exceeds the limit of 1000 bytes; send less at once"


async def test_compressed_request_is_refused_as_unimplemented() -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (_, port),
        transport.channel(port) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Call")(bytes(10_000), compression=grpc.Compression.Gzip)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "without compression" in (caught.value.details() or "")


async def test_half_close_without_a_message_is_an_invalid_argument(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (_, port),
        transport.channel(port) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_unary("/test.Test/Call")(iter([]))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert transport.error_lines(caplog.records) == []


async def test_unexpected_exception_is_told_by_request_id_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with transport.serving({"/test.Test/Call": failing(ValueError("secret"))}) as (_, port):
        error = await refused(port)
    assert error.code() == grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")
    request_id = (error.details() or "").rpartition(" ")[2]
    (line,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert request_id in line.getMessage()
    assert line.exc_info is not None
    assert "secret" in str(line.exc_info[1])


@pytest.mark.parametrize("path", ["/test.Test/Missing", "/missing.Missing/Call"])
async def test_unknown_method_or_service_is_unimplemented(path: str) -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (_, port),
        transport.channel(port) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_bidirectional_call_answers_each_request_in_order_and_ends_with_the_client() -> None:
    async def double(call: streaming.Call) -> None:
        while (request := await call.receive()) is not None:
            await call.send(request * 2)

    async with (
        transport.serving({"/test.Test/Call": methods.bidirectional(double)}) as (_, port),
        transport.channel(port) as channel,
    ):
        requests = [bytes([n]) * n for n in range(100)]
        answers = [answer async for answer in channel.stream_stream("/test.Test/Call")(iter(requests))]
    assert answers == [request * 2 for request in requests]


async def test_passed_deadline_cancels_the_handler_and_is_no_error_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = asyncio.Event()

    async def wait(_call: streaming.Call, _request: bytes) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return b""

    async with (
        transport.serving({"/test.Test/Call": methods.unary(wait)}) as (_, port),
        transport.channel(port) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/test.Test/Call")(b"", timeout=0.1)
        await asyncio.wait_for(left.wait(), 10)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert transport.error_lines(caplog.records) == []


async def test_calls_get_the_same_answers_where_h2_must_be_left_to_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service = {"/test.Test/Call": methods.unary(echo), "/test.Test/Fail": failing(ValueError("no"))}
    large = bytes(100_000)

    async def answers() -> list[tuple[str, bytes]]:
        async with transport.serving(service) as (_, port), transport.RawClient.connected(port) as client:
            found: list[tuple[str, bytes]] = []
            for request in (b"", b"1", b"2", b"3", large, b"4"):
                calls = [
                    client.call(f"/test.Test/{method}", request[:9]) for method in ("Call", "Fail", "No")
                ]
                calls.append(client.open("/test.Test/Call"))
                await client.flush()
                for at in range(0, len(framed := streaming.frame(request)), 16_384):
                    client.h2.send_data(calls[-1], framed[at : at + 16_384])
                client.h2.end_stream(calls[-1])
                await client.flush()
                found += [(await client.status(call), bytes(client.data.get(call, b""))) for call in calls]
            return found

    expected = await answers()
    assert {status for status, _ in expected} == {"0", "12", "13"}
    monkeypatch.setattr(frames, "_TRAILERS", b"another h2")
    assert await answers() == expected
    assert "calls work, but slower" in caplog.text


async def test_service_does_not_start_on_a_grpclib_that_lacks_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(internals, "EXPECTED", ((protocol.Stream, "send_data_v2"),))
    with pytest.raises(RuntimeError, match=r"missing: Stream\.send_data_v2"):
        async with transport.serving({"/test.Test/Call": methods.unary(echo)}):
            pass


async def test_health_follows_what_the_service_says() -> None:
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (running, port),
        transport.channel(port) as channel,
    ):
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        running.set_serving(serving=True)
        assert await check(b"") == b"\x08\x01"
        assert await check(b"\n\x09test.Test") == b"\x08\x01"
        running.set_serving(serving=False)
        assert await check(b"\n\x09test.Test") == b"\x08\x02"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(b"\n\x07missing")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_the_services_and_describes_health(version: str) -> None:
    list_services, file_of_health = b"\x3a\x00", b"\x22\x15grpc.health.v1.Health"
    async with (
        transport.serving({"/test.Test/Call": methods.unary(echo)}) as (_, port),
        transport.channel(port) as channel,
    ):
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        call = channel.stream_stream(path)(iter([list_services, file_of_health]))
        names, file = [answer async for answer in call]
    assert b"test.Test" in names
    assert b"grpc.health.v1.Health" in names
    assert b"HealthCheckRequest" in file
