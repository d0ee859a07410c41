"""grpclib's connection and stream for many that wait: what an idle one keeps, and how one writes.

Each of grpclib's events and queues holds a deque of 760 bytes: ten of them a subscriber, 76 MB of 10,000, of
which an idle one needs none. And what can be written at once needs no timer, and one system call however many
frames it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from functools import cached_property
from typing import Any, Final

from grpclib import config, protocol
from h2.connection import H2Connection

from jobledger.rpc import wholecalls


class Gate:
    """An ``asyncio.Event`` that costs next to nothing while nobody waits for it."""

    __slots__ = ("_open", "_waiting")

    def __init__(self, *, is_open: bool = False) -> None:
        self._open = is_open
        self._waiting: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        """Whether it is open."""
        return self._open

    def set(self) -> None:
        """Open it, and let all in who wait."""
        self._open = True
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def clear(self) -> None:
        """Close it."""
        self._open = False

    async def wait(self) -> None:
        """Until it was opened. Safe to cancel."""
        if self._open:
            return
        opened = asyncio.get_running_loop().create_future()
        self._waiting.append(opened)
        try:
            await opened
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):  # it was opened meanwhile
                self._waiting.remove(opened)
            raise


NOBODY_WAITS: Any = Gate()
"""For what only a client's stream is told: the answer's headers and trailers."""


def _nothing() -> protocol.Buffer:
    spent = protocol.Buffer(lambda _size: None)
    spent.eof()
    return spent


NOTHING: Final = _nothing()
"""A request of which all was read."""


class Whole:
    """A request that came whole, as grpclib's ``Buffer``, whose two queues cost more than to read it."""

    __slots__ = ("_at", "_data", "_h2", "_owed")

    def __init__(self, data: bytes, h2: wholecalls.H2Connection) -> None:
        self._data = data
        self._at = 0
        self._owed = len(data)
        self._h2 = h2

    async def read(self, size: int) -> bytes:
        """The next bytes, b"" at the end; an AssertionError if there are fewer."""
        return self.take(size)

    def take(self, size: int) -> bytes:
        """As :meth:`read`: there is nothing to wait for."""
        if self._owed:
            # Said with what is written next, the answer at the latest: half the window is left until then.
            self._h2.give_back(self.unacked_size())
        piece = self._data[self._at : self._at + size]
        if piece and len(piece) < size:
            raise AssertionError
        self._at += size
        return piece

    def unread(self) -> bytes:
        """What is left; it stays there."""
        return self._data[self._at :]

    def unacked_size(self) -> int:
        """Bytes of the client's window that it is owed, for the one who asks to give back."""
        owed, self._owed = self._owed, 0
        return owed


class Connection(protocol.Connection):
    """The state of a client's connection."""

    def __init__(
        self, h2_connection: H2Connection, transport: asyncio.Transport, *, config: config.Configuration
    ) -> None:
        super().__init__(h2_connection, transport, config=config)
        self.h2 = h2_connection
        self.transport = transport
        self.write_ready: Any = Gate(is_open=True)
        self.stream_close_waiter: Any = NOBODY_WAITS

    @cached_property
    def peer_address(self) -> str:
        """The client's IP address without port or zone; an IPv4 address is written as one."""
        address = self.get_peer().addr()
        if not address:
            return "local"
        host = address[0].partition("%")[0]
        with contextlib.suppress(ValueError):
            ip = ipaddress.ip_address(host)
            return str(getattr(ip, "ipv4_mapped", None) or ip)
        return host

    def create_stream(self, *, stream_id: int | None = None, wrapper: Any = None) -> Stream:
        """A call's stream, as its first frame comes."""
        del wrapper
        assert stream_id is not None  # noqa: S101 - only a client makes streams without
        stream = Stream(self, self.h2, self.transport, stream_id)
        stream.init_stream(stream_id, self)
        return stream

    def whole_stream(self, stream_id: int, body: bytes) -> Stream:
        """A call's stream, of which all has come."""
        assert isinstance(self.h2, wholecalls.H2Connection)  # noqa: S101 - no other takes calls whole
        stream = Stream(self, self.h2, self.transport, stream_id)
        stream.came_whole(Whole(body, self.h2))
        return stream


class Stream(protocol.Stream):
    """A call's stream."""

    connection: Connection
    headers_received = trailers_received = NOBODY_WAITS

    def __init__(
        self,
        connection: Connection,
        h2_connection: H2Connection,
        transport: asyncio.Transport,
        stream_id: int,
    ) -> None:
        # As grpclib's, which would make three events and a request's two queues to throw them away.
        self.connection = connection
        self._h2_connection = h2_connection
        self._transport = transport
        self.wrapper = None
        self.id = stream_id
        self.buffer: Any = NOTHING
        self.window_updated: Any = Gate()
        self.headers = self.trailers = None
        self._request_came = False
        self.gone = False
        """The client reset the call, or left."""

        self.opened = False
        """The answer was begun."""

        self.answered = False
        """It was ended."""

    def __ended__(self) -> None:
        super().__ended__()
        self._request_came = True

    def __terminated__(self, reason: str) -> None:
        self.gone = True

    def came_whole(self, request: Whole) -> None:
        """Take all of the request."""
        self.buffer = request
        self._request_came = True

    async def send_headers(self, headers: list[tuple[str, str]], end_stream: bool = False) -> None:  # noqa: FBT001, FBT002 - grpclib's
        """Begin the answer, or end it."""
        await super().send_headers(headers, end_stream=end_stream)
        self.opened = True
        self.answered = end_stream

    def answers_at_once(self, framed: bytes) -> bool:
        """Send all of an answer of one message if nothing must be waited for, in one go; whether it did."""
        connection = self.connection
        if (
            not isinstance(connection.h2, wholecalls.H2Connection)
            or not connection.write_ready.is_set()
            or not connection.h2.answer(self._number, framed)
        ):
            return False
        connection.transport.write(connection.h2.data_to_send())
        connection.data_send_process()
        self.opened = self.answered = True
        return True

    def forget_request(self) -> None:
        """Keep nothing of a request that came to its end; whoever reads on is told that this was all."""
        if self._request_came:
            self.connection.ack(self._number, self.buffer.unacked_size())
            self.buffer = NOTHING

    def sends_at_once(self, data: bytes) -> bool:
        """Write all of it if nothing must be waited for, in one go; whether it did.

        Raises:
            h2.exceptions.StreamClosedError: The call is over.
        """
        connection = self.connection
        sending = connection.h2
        if not connection.write_ready.is_set() or sending.local_flow_control_window(self._number) < len(data):
            return False
        most = sending.max_outbound_frame_size
        for at in range(0, len(data), most):
            sending.send_data(self._number, data[at : at + most])
        connection.transport.write(sending.data_to_send())
        connection.data_send_process()
        return True

    @property
    def _number(self) -> int:
        assert self.id is not None  # noqa: S101 - a stream that was opened has its number
        return self.id
