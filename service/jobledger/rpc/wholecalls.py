"""Unary calls that come whole in one read, and answers that leave in one write, past most of h2.

h2 makes an object of every frame and an event of each of those: 160 µs for a call's two frames and 115 for
the three of its answer. Nearly all unary calls look alike, so what h2 keeps of them is set by hand::

    HEADERS (END_HEADERS) · DATA (END_STREAM)   ──▶  WholeCall
    HEADERS · DATA · HEADERS (END_STREAM)       ◀──  answer

Everything else is h2's, before, between and after. What is set is private to h2 and hpack: :func:`difference`
compares with what h2 does by itself, at every start.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

import hpack
from h2 import connection, events, exceptions, stream
from h2.config import H2Configuration

from jobledger.rpc.opening import CONTENT_TYPE, Headers

_FRAME: Final = struct.Struct(">BHBBI")
"""A frame's head: its length as one byte and two, its type, its flags, its stream (RFC 9113, 4.1)."""

_DATA: Final = 0
_HEADERS: Final = 1
_WINDOW_UPDATE: Final = 8
_END_STREAM: Final = 1
_END_HEADERS: Final = 4

# Without a place in any table, so that they are the same in every answer: `:status: 200` is the 8th of the
# static one, content-type has the 31st's name.
_HEAD: Final = b"\x88\x0f\x10\x16application/grpc+proto"
_TRAILERS: Final = b"\0\x0bgrpc-status\x010"

_FEW_STREAMS: Final = 64
"""So many that are over may be kept, of 500 bytes each."""

_LEFT_OPEN: Final = 1
"""The first of the calls of :func:`difference` is never answered."""


@dataclass(slots=True)
class WholeCall(events.Event):
    """A call of which all has come."""

    stream_id: int
    headers: Headers
    body: bytes


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
    """h2's connection of a server, which takes and answers whole calls at once."""

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self._decoder = self.decoder = Decoder(self.decoder.max_header_list_size)
        self._taken: tuple[object, Headers] = (None, Headers())
        """A call's headers that h2 once took, as the decoder keeps them and as text."""

        self._uncounted = 0
        """With fewer streams than that, nobody counts those that are open."""

    def receive_data(self, data: bytes) -> list[events.Event]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As h2's; a call that is whole in ``data`` is one event.

        Raises:
            h2.exceptions.ProtocolError: The connection is over.
        """
        found: list[events.Event] = []
        at = 0
        try:
            while (end := self._end_of_call(data, at)) is not None:
                found.append(self._take(data, at))
                at = end
        except exceptions.ProtocolError as error:
            self._terminate_connection(error.error_code)
            raise
        if at < len(data):
            found += super().receive_data(data[at:] if at else data)
        return found

    def answer(self, stream_id: int, framed: bytes) -> bool:
        """Answer a call, of which nothing was sent, with all of it; whether that was possible."""
        called = self.streams.get(stream_id)
        size = len(framed)
        if (
            called is None
            or called.state_machine.state is not stream.StreamState.HALF_CLOSED_REMOTE
            or called.state_machine.headers_sent
            or self.state_machine.state is not connection.ConnectionState.SERVER_OPEN
            or self.encoder.header_table.resized  # the next block must say so first
            or size > self.outbound_flow_control_window
            or size > called.outbound_flow_control_window
            or size > self.max_outbound_frame_size
        ):
            return False
        del self.streams[stream_id]
        self._closed_streams[stream_id] = stream.StreamClosedBy.SEND_END_STREAM
        self.outbound_flow_control_window -= size
        high, low = divmod(size, 1 << 16)
        self._data_to_send += b"".join(
            (
                _FRAME.pack(0, len(_HEAD), _HEADERS, _END_HEADERS, stream_id),
                _HEAD,
                _FRAME.pack(high, low, _DATA, 0, stream_id),
                framed,
                _FRAME.pack(0, len(_TRAILERS), _HEADERS, _END_HEADERS | _END_STREAM, stream_id),
                _TRAILERS,
            )
        )
        return True

    def give_back(self, size: int) -> None:
        """Let the client send so much more; not on the stream of its call, on which it has sent its last."""
        increment = self._inbound_flow_control_window_manager.process_bytes(size)
        if increment:
            self._data_to_send += _FRAME.pack(0, 4, _WINDOW_UPDATE, 0, 0) + increment.to_bytes(4, "big")

    def _end_of_call(self, data: bytes, at: int) -> int | None:
        """Where the call ends that starts here; None if it is not one, or not one that can be taken."""
        if len(data) < at + 2 * _FRAME.size:
            return None
        high, size, kind, flags, number = _FRAME.unpack_from(data, at)
        body = at + _FRAME.size + size + _FRAME.size
        if kind != _HEADERS or flags != _END_HEADERS or high or len(data) < body:
            return None
        high, length, kind, flags, same = _FRAME.unpack_from(data, body - _FRAME.size)
        end = body + length
        if (
            kind != _DATA
            or flags != _END_STREAM
            or high
            or same != number
            or not 0 < length <= self.local_settings.initial_window_size
            or max(size, length) > self.max_inbound_frame_size
            or len(data) < end
            or not self._opens(number)
        ):
            return None
        return end

    def _opens(self, number: int) -> bool:
        """Whether a stream may be opened now, and a frame begins where the last read ended."""
        return (
            self.state_machine.state is connection.ConnectionState.SERVER_OPEN
            and not self.incoming_buffer._data  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            and not self.incoming_buffer._headers_buffer  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            and self.highest_inbound_stream_id < number < 1 << 31
            and number % 2 == 1
            and self._has_room()
        )

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


def difference() -> str | None:
    """In what this h2 is not as :class:`H2Connection` sets it by hand; None if in nothing."""
    try:
        by_h2, by_hand = (_seen_of(kind) for kind in (connection.H2Connection, H2Connection))
    except Exception as error:  # noqa: BLE001 - whatever it is, h2 can do without us
        return f"{type(error).__name__}: {error}"
    unlike = [name for name, value in by_h2.items() if by_hand[name] != value]
    return f"not the same: {', '.join(unlike)}" if unlike else None


def _seen_of(kind: type[connection.H2Connection]) -> dict[str, object]:
    """What a connection and its client know of five calls, the first of which is still open."""
    served = kind(H2Configuration(client_side=False, header_encoding="latin-1"))
    client = connection.H2Connection(H2Configuration(client_side=True))
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a/b"),
        (":authority", "c"),
        ("d", "e" * 99),
    ]
    message = b"\0\0\0\0\3abc"
    served.initiate_connection()
    client.initiate_connection()
    client.receive_data(served.data_to_send())
    came: list[object] = []
    answers: list[object] = []
    for number in (1, 3, 5, 7, 9):
        client.send_headers(number, headers)
        client.send_data(number, message, end_stream=True)
        came += _flat(served.receive_data(client.data_to_send()))
        if number > _LEFT_OPEN:
            _answer(served, number, message)
            answers += map(repr, client.receive_data(served.data_to_send()))
    return {
        "what comes": came,
        "answers": answers,
        "streams": (served.open_inbound_streams, client.open_outbound_streams),
        "windows": (
            served.outbound_flow_control_window,
            served.inbound_flow_control_window,
            client.outbound_flow_control_window,
        ),
    }


def _flat(found: list[events.Event]) -> list[object]:
    flat: list[object] = []
    for each in found:
        match each:
            case WholeCall():
                flat += (each.stream_id, [*each.headers], each.body)
            case events.RequestReceived():
                flat += (each.stream_id, each.headers)
            case events.DataReceived():
                flat.append(each.data)
            case _:
                pass
    return flat


def _answer(served: connection.H2Connection, number: int, message: bytes) -> None:
    if isinstance(served, H2Connection):
        if not served.answer(number, message):
            raise RuntimeError
        return
    served.send_headers(number, [(":status", "200"), CONTENT_TYPE])
    served.send_data(number, message)
    served.send_headers(number, [("grpc-status", "0")], end_stream=True)
