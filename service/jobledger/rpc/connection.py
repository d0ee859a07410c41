"""One client's HTTP/2 connection, hardened: it stays usable whatever its client does, and dead ones go.

What grpclib 0.4.9 and h2 would do instead, each kept by a test:

- announce 100 streams, of which the 101st waits for ever;
- lose connection window for good when a call is opened, fed and reset in one read (grpclib issue 217);
- take an empty DATA frame for the end of the request;
- fail on a frame type or a header byte that they do not know;
- notice a dead peer after two hours;
- write out each frame in hexadecimal, for a log that is off: of 20 KB, 70 µs.

A GOAWAY is sent only when nothing is left to say: h2 can send nothing after it, and a grpclib client drops
every stream when it sees one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import h2.events
import hyperframe.frame
from grpclib import protocol
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes, Settings

from jobledger.rpc import frames, http2, internals

hyperframe.frame.Frame.__repr__ = object.__repr__

Headers = list[tuple[str, str]]
Serve = Callable[[http2.Stream, Headers], Coroutine[Any, Any, None]]

DEFAULT_WINDOW_BYTES = 65_535
"""The window of a new connection, by RFC 9113."""

MAX_HEADER_LIST_BYTES = 65_536
"""Headers of one call, decoded; h2's own default against header bombs."""

_H2_CONFIG = H2Configuration(
    client_side=False,
    # Every byte decodes: as ASCII, one odd header byte is a traceback and ends all calls of its connection.
    header_encoding="latin-1",
    validate_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a connection grants its client."""

    max_concurrent_streams: int = 20_000
    """Calls open at once. A call above it waits in the client without a word, so it is not the limit that
    admits subscribers: those are the service's, and they answer."""

    stream_window_bytes: int = 1 << 20
    """Unread request bytes of one call."""

    connection_window_bytes: int = 16 << 20
    """Unread request bytes of all calls of a connection; far above a call's, so that stalled ones leave
    room for others."""

    keepalive_seconds: float = 30.0
    """Time between two pings of a client."""

    keepalive_timeout_seconds: float = 20.0
    """How long an answer may take; then the connection closes. With the above, a dead client is noticed in
    less than a minute."""


class Tasks(protocol.AbstractHandler):
    """The calls of one connection, a task each, cancelled when their client goes."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._tasks: dict[protocol.Stream, asyncio.Task[None]] = {}

    def accept(self, stream: protocol.Stream, headers: Headers, release_stream: Callable[[], None]) -> None:
        """Starts a call."""

        def ended(_task: asyncio.Task[None]) -> None:
            # A task cancelled before its first step runs no `finally`: only here does every call end.
            self._tasks.pop(stream, None)
            release_stream()
            # An answer may be complete while the request is not: without this such calls pile up.
            if not stream.connection.is_closing() and stream.closable:
                stream.reset_nowait()

        assert isinstance(stream, http2.Stream)  # noqa: S101 - our connection makes no other
        task = asyncio.get_running_loop().create_task(self._serve(stream, headers))
        self._tasks[stream] = task
        task.add_done_callback(ended)

    def cancel(self, stream: protocol.Stream) -> None:
        """The client reset a call."""
        task = self._tasks.get(stream)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """The connection is gone, and all its calls with it."""
        for task in self._tasks.values():
            task.cancel()


class _Events(protocol.EventsProcessor):
    def process(self, event: h2.events.Event) -> None:
        match event:
            case frames.Piece():
                self._take_piece(event)
            case frames.WholeCall():
                self._take_call(event)
            case h2.events.UnknownFrameReceived() | h2.events.AlternativeServiceAvailable():
                # grpclib raises on what it does not know, which asyncio takes for the end of the connection.
                pass
            case _:
                super().process(event)

    def process_data_received(self, event: h2.events.DataReceived) -> None:
        if event.flow_controlled_length:
            super().process_data_received(event)

    def _take_piece(self, piece: frames.Piece) -> None:
        stream = self.streams.get(piece.stream_id)
        if stream is None:
            self.connection.ack(piece.stream_id, len(piece.data))
        else:
            stream.buffer.add(piece.data, len(piece.data))

    def _take_call(self, call: frames.WholeCall) -> None:
        assert isinstance(self.connection, http2.Connection)  # noqa: S101 - it is made below
        stream = self.connection.whole_stream(call.stream_id, call.body)
        self.handler.accept(stream, call.headers, self.register(stream))


class Connection(protocol.H2Protocol):
    """A client's connection, from accept to loss. ``closed`` is done when it is gone."""

    def __init__(
        self, *, serve: Serve, options: Options, opened: Callable[[Connection], None], by_hand: bool
    ) -> None:
        self._options = options
        self._h2_connection = frames.H2Connection if by_hand else H2Connection
        self._opened = opened
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        grpclib_config = internals.configuration(
            keepalive_seconds=options.keepalive_seconds,
            keepalive_timeout_seconds=options.keepalive_timeout_seconds,
        )
        super().__init__(Tasks(serve), grpclib_config, _H2_CONFIG)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Announces our limits, in the first SETTINGS frame, so that they hold from the first call."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - asyncio's promise to a Protocol
        options = self._options
        self._set_socket_options(transport)
        self._transport = transport
        self._h2 = h2_connection = self._h2_connection(_H2_CONFIG)
        h2_connection.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: options.max_concurrent_streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
                SettingCodes.INITIAL_WINDOW_SIZE: options.stream_window_bytes,
            },
        )
        h2_connection.initiate_connection()
        h2_connection.increment_flow_control_window(options.connection_window_bytes - DEFAULT_WINDOW_BYTES)
        self.connection = http2.Connection(h2_connection, transport, config=self.config)
        self.connection.flush()
        self.connection.initialize()
        self.processor = _Events(self.handler, self.connection)
        self._opened(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancels the calls that were open."""
        super().connection_lost(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def say_goodbye(self) -> None:
        """Tells the client to go elsewhere; it closes the connection. Call it when no call is open."""
        if not self.connection.is_closing():
            self._h2.close_connection(ErrorCodes.NO_ERROR)
            self.connection.flush()

    def abort(self) -> None:
        """Closes at once, whatever is unsent."""
        self._transport.abort()

    def _set_socket_options(self, transport: asyncio.Transport) -> None:
        """Sends small frames at once, and lets the kernel give up on a peer that acknowledges nothing."""
        sock = transport.get_extra_info("socket")
        if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
            return
        # asyncio and grpclib set it only on sockets that name their protocol, which accepted ones of
        # socket.create_server do not: each call took 44 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            # Closing after an unanswered ping wants to flush first; to a dead peer that takes the kernel's
            # 15 minutes of retransmission, with the calls still open.
            patience = self._options.keepalive_seconds + self._options.keepalive_timeout_seconds
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
