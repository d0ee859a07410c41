"""grpclib's connection and stream for many that wait: what an idle one keeps, and how one writes.

Each of grpclib's events and queues holds a deque of 760 bytes: ten of them a subscriber, 76 MB of 10,000, of
which an idle one needs none. And what can be written at once needs no timer, and one system call however many
frames it takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from grpclib import config, protocol
from h2.connection import H2Connection


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

    def create_stream(self, *, stream_id: int | None = None, wrapper: Any = None) -> Stream:
        """A call's stream, as its first frame comes."""
        return Stream(self, self.h2, self.transport, stream_id=stream_id, wrapper=wrapper)


class Stream(protocol.Stream):
    """A call's stream."""

    connection: Connection
    headers_received = trailers_received = NOBODY_WAITS

    def __init__(
        self, connection: Connection, h2_connection: H2Connection, transport: asyncio.Transport, **more: Any
    ) -> None:
        super().__init__(connection, h2_connection, transport, **more)
        self.window_updated: Any = Gate()
        del self.headers_received, self.trailers_received
        self._request_came = False

    def __ended__(self) -> None:
        super().__ended__()
        self._request_came = True

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
