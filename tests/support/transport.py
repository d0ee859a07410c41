"""A server of test methods, and a raw HTTP/2 client that does what no well-behaved client would."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

import grpc.aio
import h2.events
from google.protobuf import descriptor_pool
from grpclib.const import Status
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from h2.stream import StreamState

from jobledger import errors
from jobledger.rpc import connection, frames, methods, server, streaming
from tests.support import polling

LARGEST_WINDOW = 2**31 - 1

Events = list[h2.events.Event]


def explain(error: Exception, _call: streaming.Call) -> streaming.CallError | None:
    """What rpc.status does, for the errors that these tests raise."""
    if isinstance(error, errors.SlowReader):
        return streaming.CallError(Status.RESOURCE_EXHAUSTED, str(error), {"ledger-reason": error.reason})
    if isinstance(error, errors.StreamEnd):
        status = Status.CANCELLED if isinstance(error, errors.TakenOver) else Status.UNAVAILABLE
        return streaming.CallError(status, str(error), {"ledger-reason": error.reason})
    return None


@contextlib.asynccontextmanager
async def serving(
    service: Mapping[str, methods.Method],
    *,
    options: connection.Options | None = None,
    request_limit_bytes: int = 16 << 20,
    send_timeout_seconds: float = 900.0,
    host: str = "127.0.0.1",
) -> AsyncGenerator[tuple[server.ServiceServer, int]]:
    """A running server and its port; shut down at the end unless the test did."""
    running = server.ServiceServer(
        [service],
        explain=explain,
        pool=descriptor_pool.DescriptorPool(),
        options=options,
        request_limit_bytes=request_limit_bytes,
        send_timeout_seconds=send_timeout_seconds,
    )
    port = await running.start(host, 0)
    try:
        yield running, port
    finally:
        await running.shutdown(grace_seconds=0.1)


@contextlib.asynccontextmanager
async def channel(port: int, *options: tuple[str, int]) -> AsyncGenerator[Any]:
    """A connection of its own, as another process would have; its methods take and give bytes."""
    own = ("grpc.use_local_subchannel_pool", 1)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[own, *options]) as opened:
        yield opened


async def becomes_true(condition: Callable[[], bool], *, within_seconds: float = 5.0) -> None:
    """Waits for it; fails the test if it takes longer."""

    def assertion() -> None:
        assert condition()

    await polling.eventually(assertion, within_seconds)


def error_lines(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR]


def greedy_request(path: str) -> bytes:
    """The bytes of a whole client that makes one call and grants it all the window that HTTP/2 has."""
    client = H2Connection(H2Configuration(client_side=True))
    client.local_settings.update({SettingCodes.INITIAL_WINDOW_SIZE: LARGEST_WINDOW})
    client.local_settings.acknowledge()
    client.initiate_connection()
    client.increment_flow_control_window(LARGEST_WINDOW - 65_535)
    client.send_headers(1, request_headers(path))
    client.send_data(1, streaming.frame(b""), end_stream=True)
    return client.data_to_send()


def request_headers(path: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """The headers of a gRPC call."""
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "test"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]


def flattened(found: Events) -> Iterator[object]:
    """What comes to a server, whether its connection says it of each frame or of a whole call."""
    for each in found:
        match each:
            case frames.WholeCall():
                yield each.stream_id, [*each.headers]
                yield each.stream_id, each.body
                yield each.stream_id, "ended"
            case h2.events.RequestReceived():
                yield each.stream_id, each.headers
            case frames.Piece() | h2.events.DataReceived():
                yield each.stream_id, each.data
            case h2.events.StreamEnded():
                yield each.stream_id, "ended"
            case h2.events.UnknownFrameReceived():
                yield type(each)
            case _:
                yield repr(each)


def inbound_window(server: H2Connection, stream_id: int) -> int | None:
    """Bytes that may still come of a stream; None if its client has sent its last."""
    is_open = server.streams[stream_id].state_machine.state is StreamState.OPEN
    return server.remote_flow_control_window(stream_id) if is_open else None


class RawClient:
    """One HTTP/2 connection, frame by frame. Frames are gathered and written by :meth:`flush`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.data: dict[int, bytearray] = {}
        self.trailers: dict[int, dict[str, str]] = {}
        self.ended: set[int] = set()
        self.seen: Events = []

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, port: int) -> AsyncGenerator[RawClient]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = cls(reader, writer)
        await client.flush()
        await client.until(lambda: any(isinstance(e, h2.events.RemoteSettingsChanged) for e in client.seen))
        try:
            yield client
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def open(self, path: str, *more: tuple[str, str], end: bool = False) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, request_headers(path, *more), end_stream=end)
        return stream_id

    def call(self, path: str, request: bytes = b"") -> int:
        """Opens a call and sends its one request."""
        stream_id = self.open(path)
        self.h2.send_data(stream_id, streaming.frame(request), end_stream=True)
        return stream_id

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def until(
        self, done: Callable[[], bool], *, within_seconds: float = 20.0, ack: bool = True
    ) -> None:
        """Reads until it holds; ``ack`` gives the window back for what was read."""
        async with asyncio.timeout(within_seconds):
            while not done():
                received = await self._reader.read(1 << 16)
                assert received, "the server closed the connection"
                for event in self.h2.receive_data(received):
                    self._take(event, ack=ack)
                await self.flush()

    async def closed_by_server(self) -> None:
        """Reads, and answers nothing, until the server closes the connection."""
        while await self._reader.read(1 << 16):
            pass

    async def status(self, stream_id: int) -> str:
        """Reads until the call ended; its grpc-status, or ``reset``."""
        await self.until(lambda: stream_id in self.ended)
        return self.trailers.get(stream_id, {}).get("grpc-status", "reset")

    def _take(self, event: h2.events.Event, *, ack: bool) -> None:
        self.seen.append(event)
        if isinstance(event, h2.events.DataReceived):
            self.data.setdefault(event.stream_id, bytearray()).extend(event.data)
            if ack and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            headers = {str(name): str(value) for name, value in event.headers}
            self.trailers.setdefault(event.stream_id, {}).update(headers)
        elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
            self.ended.add(event.stream_id)
