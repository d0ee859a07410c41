"""Connections under clients that send what well-behaved ones do not; a normal call still works after it."""

from __future__ import annotations

import asyncio
import time

import hyperframe.frame
import pytest

from jobledger.rpc import connection, methods, server, streaming
from tests.support import transport


async def echo(_call: streaming.Call, request: bytes) -> bytes:
    return request


SERVICE = {"/test.Test/Call": methods.unary(echo)}


async def normal_call_works(client: transport.RawClient, request: bytes = b"normal") -> None:
    stream_id = client.call("/test.Test/Call", request)
    await client.flush()
    assert await client.status(stream_id) == "0"
    assert client.data[stream_id] == streaming.frame(request)


async def test_no_frame_is_written_out_in_hexadecimal(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_out(_data: bytes) -> str:
        raise AssertionError

    monkeypatch.setattr(hyperframe.frame, "_raw_data_repr", write_out)
    async with (
        transport.serving(SERVICE) as (_, port),
        transport.RawClient.connected(port) as client,
    ):
        await normal_call_works(client, bytes(10_000))


async def test_calls_fed_and_reset_in_one_read_give_their_window_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = connection.Options(connection_window_bytes=1 << 18)
    async with (
        transport.serving(SERVICE, options=options) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        for _ in range(100):
            stream_id = client.open("/test.Test/Call")
            client.h2.send_data(stream_id, bytes(10_000))
            client.h2.reset_stream(stream_id)
            await client.flush()
            await client.until(lambda: client.h2.outbound_flow_control_window > 100_000)
        await normal_call_works(client)
        assert running.open_calls == 0
    assert transport.error_lines(caplog.records) == []


async def test_20_000_invalid_calls_leave_the_connection_usable(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        transport.serving(SERVICE) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        for batch in range(200):
            opened = [client.call("/test.Test/Missing") for _ in range(50)]
            opened += [client.open("/test.Test/Call", end=True) for _ in range(50)]
            await client.flush()
            await client.until(lambda opened=opened: client.ended.issuperset(opened))
            if batch == 0:
                assert {client.trailers[stream_id]["grpc-status"] for stream_id in opened} == {"12", "3"}
        await normal_call_works(client)
        assert running.open_calls == 0
    assert transport.error_lines(caplog.records) == []


async def test_20_000_opened_and_reset_calls_leave_the_connection_usable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        transport.serving(SERVICE) as (running, port),
        transport.RawClient.connected(port) as client,
    ):
        for batch in range(200):
            opened = [client.open("/test.Test/Call") for _ in range(100)]
            if batch % 2:
                await client.flush()  # so that the resets arrive in a read of their own
                await asyncio.sleep(0)
            for stream_id in opened:
                client.h2.reset_stream(stream_id)
            await client.flush()
        await normal_call_works(client)
        assert running.open_calls == 0
    assert transport.error_lines(caplog.records) == []


async def test_request_is_refused_by_its_length_before_its_body_is_sent() -> None:
    async with transport.serving(SERVICE) as (_, port), transport.RawClient.connected(port) as client:
        stream_id = client.open("/test.Test/Call")
        client.h2.send_data(stream_id, streaming.PREFIX.pack(0, 256 << 20))
        await client.flush()
        assert await client.status(stream_id) == "8"
        await normal_call_works(client)


async def test_request_cut_off_in_a_message_is_an_invalid_argument(caplog: pytest.LogCaptureFixture) -> None:
    async with transport.serving(SERVICE) as (_, port), transport.RawClient.connected(port) as client:
        for part in (b"\0\0", streaming.PREFIX.pack(0, 100) + b"only this"):
            stream_id = client.open("/test.Test/Call")
            client.h2.send_data(stream_id, part, end_stream=True)
            await client.flush()
            assert await client.status(stream_id) == "3"
    assert transport.error_lines(caplog.records) == []


async def test_request_in_many_frames_with_empty_ones_between_is_one_request() -> None:
    async with transport.serving(SERVICE) as (_, port), transport.RawClient.connected(port) as client:
        stream_id = client.open("/test.Test/Call")
        for byte in streaming.frame(b"request"):
            client.h2.send_data(stream_id, bytes([byte]))
            client.h2.send_data(stream_id, b"")
        client.h2.end_stream(stream_id)
        await client.flush()
        assert await client.status(stream_id) == "0"
        assert client.data[stream_id] == streaming.frame(b"request")


async def test_odd_headers_get_an_answer_and_hurt_no_other_call(caplog: pytest.LogCaptureFixture) -> None:
    async with transport.serving(SERVICE) as (_, port), transport.RawClient.connected(port) as client:
        odd = {
            ("x-name", "训练"): "0",
            ("x-name-bin", "%%%~"): "0",
            ("x-name-bin", "AAAAA"): "3",
            ("grpc-timeout", "soon"): "3",
            ("grpc-timeout", "1n"): "4",
            ("grpc-timeout", "5S"): "0",
        }
        for header, status in odd.items():
            stream_id = client.open("/test.Test/Call", header)
            client.h2.send_data(stream_id, streaming.frame(b""), end_stream=True)
            await client.flush()
            assert await client.status(stream_id) == status, header
        client.h2.config.validate_outbound_headers = False
        without_path = client.h2.get_next_available_stream_id()
        client.h2.send_headers(without_path, [(":method", "POST")], end_stream=True)
        await client.flush()
        assert await client.status(without_path) == "reset"
        await normal_call_works(client)
    assert transport.error_lines(caplog.records) == []


async def test_frame_of_an_unknown_type_is_ignored() -> None:
    async with transport.serving(SERVICE) as (_, port), transport.RawClient.connected(port) as client:
        client.writer.write(b"\0\0\6\xee\0\0\0\0\0future")
        await normal_call_works(client)


async def test_calls_answered_before_their_request_ended_do_not_pile_up() -> None:
    async def at_once(call: streaming.Call) -> None:
        await call.send(b"done")

    service = {**SERVICE, "/test.Test/AtOnce": methods.bidirectional(at_once)}
    options = connection.Options(max_concurrent_streams=2)
    async with (
        transport.serving(service, options=options) as (_, port),
        transport.RawClient.connected(port) as client,
    ):
        for _ in range(5):
            stream_id = client.open("/test.Test/AtOnce")
            await client.flush()
            assert await client.status(stream_id) == "0"
        await normal_call_works(client)


async def test_stalled_publisher_leaves_window_for_other_calls_of_its_connection() -> None:
    async def never_reads(_call: streaming.Call) -> None:
        await asyncio.Event().wait()

    service = {**SERVICE, "/test.Test/Stalled": methods.bidirectional(never_reads)}
    async with (
        transport.serving(service) as (_, port),
        transport.RawClient.connected(port) as client,
    ):
        stalled = client.open("/test.Test/Stalled")
        while client.h2.local_flow_control_window(stalled):
            size = min(16_384, client.h2.local_flow_control_window(stalled))
            client.h2.send_data(stalled, bytes(size))
            await client.flush()
        await normal_call_works(client, bytes(16_000))


async def test_connection_announces_its_limits_in_its_first_frame() -> None:
    async with transport.serving(SERVICE) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        head = await reader.readexactly(9)
        settings = await reader.readexactly(int.from_bytes(head[:3], "big"))
        writer.close()
    announced = {settings[at : at + 2]: settings[at + 2 : at + 6] for at in range(0, len(settings), 6)}
    assert head[3] == 4
    assert int.from_bytes(announced[b"\0\3"], "big") == 20_000
    assert int.from_bytes(announced[b"\0\4"], "big") == 1 << 20


async def test_taken_port_is_an_error_and_a_free_one_is_told() -> None:
    started = time.monotonic()
    async with transport.serving(SERVICE) as (running, port):
        assert port > 0
        assert isinstance(running, server.ServiceServer)
        with pytest.raises(OSError, match="in use"):
            await running.start("127.0.0.1", port)
    assert time.monotonic() - started < 5
