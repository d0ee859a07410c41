"""What nearly all frames are, past most of h2: unary calls that come whole, and data that goes to and fro.

h2 makes an object of every frame and an event of each of those: 160 µs for a call's two frames, 115 for the
three of its answer, 100 for a request of a stream and its answer. Nearly all look alike, so what h2 keeps of
them is set by hand::

    HEADERS (END_HEADERS) · DATA (END_STREAM)   ──▶  WholeCall
    DATA, of a stream that is open              ──▶  Piece
    HEADERS · DATA · HEADERS (END_STREAM)       ◀──  answer
    DATA · DATA ...                             ◀──  send

Everything else is h2's, before, between and after, a frame at a time. What is set is private to h2 and hpack:
:mod:`jobledger.rpc.comparison` compares with what h2 does by itself, at every start.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import hpack
from h2 import connection, events, exceptions, stream
from h2.config import H2Configuration

from jobledger.rpc.opening import Headers

_FRAME: Final = struct.Struct(">BHBBI")
"""A frame's head: its length as one byte and two, its type, its flags, its stream (RFC 9113, 4.1)."""

_DATA: Final = 0
_HEADERS: Final = 1
_RESET: Final = 3
_SETTINGS: Final = 4
_PING: Final = 6
_WINDOW_UPDATE: Final = 8
_OF_A_STREAM: Final = frozenset({_DATA, _HEADERS, _RESET, _WINDOW_UPDATE})
_OF_NO_STREAM: Final = frozenset({_SETTINGS, _PING, _WINDOW_UPDATE})
_STREAM: Final = (1 << 31) - 1
"""Without the reserved bit."""

_END_STREAM: Final = 1
_END_HEADERS: Final = 4

# Without a place in any table, so that they are the same in every answer: `:status: 200` is the 8th of the
# static one, content-type has the 31st's name.
_HEAD: Final = b"\x88\x0f\x10\x16application/grpc+proto"
_TRAILERS: Final = b"\0\x0bgrpc-status\x010"

_MAY_SEND: Final = (stream.StreamState.OPEN, stream.StreamState.HALF_CLOSED_REMOTE)

_FEW_STREAMS: Final = 64
"""So many that are over may be kept, of 500 bytes each."""


@dataclass(slots=True)
class WholeCall(events.Event):
    """A call of which all has come."""

    stream_id: int
    headers: Headers
    body: bytes


@dataclass(slots=True)
class Piece(events.Event):
    """Some of a request, as many bytes of the client's window."""

    stream_id: int
    data: bytes


class Decoder(hpack.Decoder):
    """hpack's, which need not decode again what it just did: a client's calls differ in their body alone.

    What a block says depends on the table, so that only one is kept that left it as it was, and no longer
    than until another does not.
    """

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size)
        self._block = b""
        self.kept: Iterable[hpack.HeaderTuple] | None = None
        """What a block said that came twice in a row: a connection with one call need not hold it."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[hpack.HeaderTuple]:  # noqa: FBT001, FBT002 - hpack's
        """As hpack's; the same object for the same block."""
        came_again = data == self._block
        if came_again and self.kept is not None:
            return self.kept
        table = self.header_table
        before = (*table.dynamic_entries, table.maxsize)
        headers = super().decode(data, raw)
        unchanged = before == (*table.dynamic_entries, table.maxsize)
        self._block = data if unchanged else b""
        self.kept = headers if came_again and unchanged else None
        return headers


class H2Connection(connection.H2Connection):
    """h2's connection of a server, for which most frames are set by hand."""

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self._decoder = self.decoder = Decoder(self.decoder.max_header_list_size)
        self._taken: tuple[object, Headers] = (None, Headers())
        """A call's headers that h2 once took, as the decoder keeps them and as text."""

        self._uncounted = 0
        """With fewer streams than that, nobody counts those that are open."""

        self._begun = b""
        """Of a frame that has not come to its end."""

    def receive_data(self, data: bytes) -> list[events.Event]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As h2's; a call that is whole in ``data``, or plain data of a stream, is one event.

        Raises:
            h2.exceptions.ProtocolError: The connection is over.
        """
        if self._begun:
            data, self._begun = self._begun + data, b""
        found: list[events.Event] = []
        at = 0
        while self._is_between_frames() and (end := self._end_of_frame(data, at)):
            if end > len(data):
                self._begun = data[at:]
                return found
            taken, end = self._taken_by_hand(data, at, end)
            if taken is None:
                found += super().receive_data(data[at:end])
            else:
                found.append(taken)
            at = end
        if at < len(data):
            found += super().receive_data(data[at:])
        return found

    def answer(self, stream_id: int, framed: bytes) -> bool:
        """Answer a call, of which nothing was sent, with all of it; whether that was possible."""
        called = self.streams.get(stream_id)
        size = len(framed)
        if (
            called is None
            or called.state_machine.state is not stream.StreamState.HALF_CLOSED_REMOTE
            or called.state_machine.headers_sent
            or self.encoder.header_table.resized  # the next block must say so first
            or size > self.max_outbound_frame_size
            or not self._may_carry(size, stream_id)
        ):
            return False
        del self.streams[stream_id]
        self._closed_streams[stream_id] = stream.StreamClosedBy.SEND_END_STREAM
        self.outbound_flow_control_window -= size
        self._data_to_send += b"".join(
            (
                _head(len(_HEAD), _HEADERS, _END_HEADERS, stream_id),
                _HEAD,
                _head(size, _DATA, 0, stream_id),
                framed,
                _head(len(_TRAILERS), _HEADERS, _END_HEADERS | _END_STREAM, stream_id),
                _TRAILERS,
            )
        )
        return True

    def send(self, stream_id: int, data: bytes) -> bool:
        """Send data on a stream whose answer is begun, if the windows have room; whether it was sent."""
        called = self.streams.get(stream_id)
        size = len(data)
        if (
            called is None
            or called.state_machine.state not in _MAY_SEND
            or not called.state_machine.headers_sent
            or not self._may_carry(size, stream_id)
        ):
            return False
        self.outbound_flow_control_window -= size
        called.outbound_flow_control_window -= size
        most = self.max_outbound_frame_size
        for at in range(0, size, most):
            self._data_to_send += _head(min(most, size - at), _DATA, 0, stream_id)
            self._data_to_send += data[at : at + most] if size > most else data
        return True

    def give_back(self, stream_id: int, size: int) -> bool:
        """Let the client send so much more; whether there is something to tell it now."""
        increment = self._inbound_flow_control_window_manager.process_bytes(size)
        if increment:
            self._data_to_send += _window_update(0, increment)
        called = self.streams.get(stream_id)
        if called is None or not called.open:
            return bool(increment)
        more = called._inbound_window_manager.process_bytes(size)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if more:
            self._data_to_send += _window_update(stream_id, more)
        return bool(increment or more)

    def _may_carry(self, size: int, stream_id: int) -> bool:
        """Whether the connection is open, and both windows have room for so much data of a stream."""
        is_open = self.state_machine.state is connection.ConnectionState.SERVER_OPEN
        return is_open and size <= self.local_flow_control_window(stream_id)

    def _is_between_frames(self) -> bool:
        """Whether the connection is open, and h2 neither keeps a part of a frame nor waits for headers."""
        return (
            self.state_machine.state is connection.ConnectionState.SERVER_OPEN
            and not self.incoming_buffer._data  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            and not self.incoming_buffer._headers_buffer  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        )

    def _end_of_frame(self, data: bytes, at: int) -> int:
        """Where the frame ends that starts here, past the data if some of it is to come; 0 for h2 to say."""
        if len(data) < at + _FRAME.size:
            return at + _FRAME.size if at < len(data) else 0
        high, low, kind, _, number = _FRAME.unpack_from(data, at)
        size = (high << 16) + low
        end = at + _FRAME.size + size
        # h2 refuses some by their head alone.
        may_wait = kind in (_OF_A_STREAM if number & _STREAM else _OF_NO_STREAM)
        return end if size <= self.max_inbound_frame_size and (may_wait or end <= len(data)) else 0

    def _taken_by_hand(self, data: bytes, at: int, end: int) -> tuple[WholeCall | Piece | None, int]:
        """What starts here if it is one of those, else None, and where that ends.

        Raises:
            h2.exceptions.ProtocolError: The connection is over.
        """
        _, _, kind, flags, number = _FRAME.unpack_from(data, at)
        if kind == _DATA and not flags and self._count_plain(number, end - at - _FRAME.size):
            return Piece(number, data[at + _FRAME.size : end]), end
        if kind == _HEADERS and flags == _END_HEADERS and self._opens(number):
            end_of_call = self._end_of_body(data, end, number)
            if end_of_call:
                try:
                    return self._take(data, at), end_of_call
                except exceptions.ProtocolError as error:
                    self._terminate_connection(error.error_code)
                    raise
        return None, end

    def _count_plain(self, number: int, size: int) -> bool:
        """Count so much data of a stream against both windows; False if h2 has something to say to it."""
        called = self.streams.get(number)
        if called is None or called.state_machine.state is not stream.StreamState.OPEN:
            return False
        ours = self._inbound_flow_control_window_manager
        its = called._inbound_window_manager  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        if (
            not 0 < size <= min(ours.current_window_size, its.current_window_size)
            or called._expected_content_length is not None  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        ):
            return False
        ours.current_window_size -= size
        its.current_window_size -= size
        return True

    def _end_of_body(self, data: bytes, at: int, number: int) -> int:
        """Where the data ends that starts here and is all of a call's; 0 if it is not, or has not come."""
        if len(data) < at + _FRAME.size:
            return 0
        high, length, kind, flags, same = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + length
        is_all = kind == _DATA and flags == _END_STREAM and not high and same == number and end <= len(data)
        most = min(self.local_settings.initial_window_size, self.max_inbound_frame_size)
        return end if is_all and 0 < length <= most else 0

    def _opens(self, number: int) -> bool:
        """Whether a stream may be opened now."""
        return self.highest_inbound_stream_id < number < 1 << 31 and number % 2 == 1 and self._has_room()

    def _has_room(self) -> bool:
        """Whether one more stream may be open.

        h2's own count looks at each and forgets those that are over: asked once they are twice as many.
        """
        if len(self.streams) < self._uncounted:
            return True
        count, most = self.open_inbound_streams, self.local_settings.max_concurrent_streams
        self._uncounted = min(2 * count + _FEW_STREAMS, most)
        return count < most

    def _take(self, data: bytes, at: int) -> WholeCall:
        _, size, _, _, number = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        block = data[at : at + size]
        _, length, _, _, _ = _FRAME.unpack_from(data, at + size)
        at += size + _FRAME.size
        body = data[at : at + length]
        raw = connection._decode_headers(self.decoder, block)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        opened = self._begin_new_stream(number, connection.AllowedStreamIDs.ODD)
        taken, headers = self._taken
        if raw is taken:
            self._inbound_flow_control_window_manager.window_consumed(length)
            opened.state_machine.client = False
            opened.state_machine.headers_received = True
            opened.state_machine.state = stream.StreamState.HALF_CLOSED_REMOTE
        else:
            headers = self._taken_by_h2(opened, raw, body)
        return WholeCall(number, headers, body)

    def _taken_by_h2(self, opened: stream.H2Stream, raw: Any, body: bytes) -> Headers:
        encoding = self.config.header_encoding
        _, came = opened.receive_headers(raw, end_stream=False, header_encoding=encoding)
        self._inbound_flow_control_window_manager.window_consumed(len(body))
        opened.receive_data(body, end_stream=True, flow_control_len=len(body))
        headers = Headers(cast("list[tuple[str, str]]", cast("events.RequestReceived", came[0]).headers))
        if raw is self._decoder.kept and not any(name == "content-length" for name, _ in headers):
            self._taken = (raw, headers)
        return headers


def _window_update(stream_id: int, increment: int) -> bytes:
    return _head(4, _WINDOW_UPDATE, 0, stream_id) + increment.to_bytes(4, "big")


def _head(size: int, kind: int, flags: int, stream_id: int) -> bytes:
    return _FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id)
