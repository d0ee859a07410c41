"""grpclib's connection and stream for many that wait: what an idle one keeps, and how one writes.

Each of grpclib's events and queues holds a deque of 760 bytes: ten of them a subscriber, 76 MB of 10,000, of
which an idle one needs none. And what can be written at once needs no timer, and one system call however many
frames it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

from grpclib import config, protocol
from h2.connection import H2Connection

from jobledger.rpc import frames


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


class Request:
    """What came of a request, as grpclib's ``Buffer``, whose queue costs more than to read it.

    Its bytes count against the client's window until somebody wants them.
    """

    __slots__ = ("_acknowledge", "_ended", "_held", "_more", "_pulled", "_unread")

    def __init__(self, acknowledge: Callable[[int], None]) -> None:
        self._acknowledge = acknowledge
        self._unread: deque[tuple[bytes, int]] = deque()
        """Pieces, and as how many bytes each counts."""

        self._pulled: list[bytes] = []
        """Pieces that count no more."""

        self._held = 0
        """Their bytes."""

        self._ended = False
        self._more = Gate()

    def add(self, data: bytes, size: int) -> None:
        """Take what came, and counts as so many bytes."""
        self._unread.append((data, size))
        self._more.set()

    def eof(self) -> None:
        """The client has sent its last."""
        self._ended = True
        self._more.set()

    async def read(self, size: int) -> bytes:
        """The next bytes, b"" at the end; an AssertionError if there are fewer."""
        while self._held < size:
            if self._unread:
                self._pull()
            elif self._ended:
                break
            else:
                self._more.clear()
                await self._more.wait()
        data = b"".join(self._pulled)
        if data and len(data) < size:
            raise AssertionError
        self._pulled = [data[size:]]
        self._held = max(len(data) - size, 0)
        return data[:size]

    def all_at_once(self) -> bytes | None:
        """All of the request if it came in one piece, of which nothing was read; None if not."""
        if self._ended and len(self._unread) == 1 and not self._held:
            return self._unread[0][0]
        return None

    def unacked_size(self) -> int:
        """Bytes of the client's window that it is owed, for the one who asks to give back."""
        owed = sum(size for _, size in self._unread)
        self._unread.clear()
        return owed

    def _pull(self) -> None:
        data, size = self._unread.popleft()
        self._pulled.append(data)
        self._held += len(data)
        self._acknowledge(size)


def _nothing() -> Request:
    spent = Request(lambda _size: None)
    spent.eof()
    return spent


NOTHING: Final = _nothing()
"""A request of which all was read."""


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
        return Stream(self, self.h2, self.transport, stream_id)

    def whole_stream(self, stream_id: int, body: bytes) -> Stream:
        """A call's stream, of which all has come."""
        stream = self.create_stream(stream_id=stream_id)
        stream.buffer.add(body, len(body))
        stream.__ended__()
        return stream

    def ack(self, stream_id: int, size: int) -> None:
        """Let the client send so much more."""
        if not isinstance(self.h2, frames.H2Connection):
            super().ack(stream_id, size)
        elif size and self.h2.give_back(stream_id, size):
            self.flush()


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
        # As grpclib's, which would make three events to throw them away, and another buffer.
        self.connection = connection
        self._h2_connection = h2_connection
        self._transport = transport
        self.wrapper = None
        self.id = stream_id
        self.buffer: Any = Request(partial(connection.ack, stream_id))
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

    async def send_headers(self, headers: list[tuple[str, str]], end_stream: bool = False) -> None:  # noqa: FBT001, FBT002 - grpclib's
        """Begin the answer, or end it."""
        await super().send_headers(headers, end_stream=end_stream)
        self.opened = True
        self.answered = end_stream

    def answers_at_once(self, framed: bytes) -> bool:
        """Send all of an answer of one message if nothing must be waited for, in one go; whether it did."""
        connection = self.connection
        if (
            not isinstance(connection.h2, frames.H2Connection)
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
        if not connection.write_ready.is_set():
            return False
        if not (isinstance(sending, frames.H2Connection) and sending.send(self._number, data)):
            if sending.local_flow_control_window(self._number) < len(data):
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
