"""Calls as our services see them: bytes in, bytes out, an end that the client hears of.

grpclib's HTTP/2 stream is used underneath, its call is not. What that would do instead, each kept by a test:

- read a request of any size into memory, and answer a missing one with an assertion;
- send for as long as the window is open without letting anybody else run;
- wait for ever for a reader that reads nothing;
- end calls that are cancelled from inside, at shutdown for one, with silence;
- answer an unexpected exception with UNKNOWN, or log a client that went away as an error.

A call ends in one of four ways: its handler returns (OK), its handler raises (what ``explain`` makes of
it, else INTERNAL), somebody calls :meth:`Call.end` or its deadline passes (the same, with that reason), or
its client goes: then the handler sees CancelledError, nothing is sent, and nothing is logged as an error.
In all four the handler's ``finally`` and ``aclosing`` run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import h2.exceptions
from grpclib import const, metadata

from jobledger import errors
from jobledger.ledger import turns
from jobledger.rpc import http2, opening

logger = logging.getLogger(__name__)

PREFIX: Final = struct.Struct(">BI")
"""What stands before each message: the compressed flag and the length (gRPC, PROTOCOL-HTTP2)."""

PATIENCE_SECONDS: Final = 0.5
"""How long an end waits for a chunk that is being written: half a message before the trailers would look
to the client like a broken server."""

TRAILERS_SECONDS: Final = 5.0
"""How long the trailers may wait for a connection that accepts no bytes; then the call is reset."""

_OPENING: Final = [(":status", "200"), opening.CONTENT_TYPE]

MESSAGE_LIMIT_BYTES: Final = 1024
"""Longest status message in UTF-8. Percent-encoding triples it, and clients refuse more than 8 KiB of
trailers."""


class CallError(Exception):
    """A call ends with this status, message and trailing metadata."""

    def __init__(self, status: const.Status, message: str, trailers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.trailers = dict(trailers or {})


Reason = Callable[[], Exception]
"""Makes the exception with which a call is ended, when it is ended: by then more may have been sent."""


class Call:
    """One call of a client, in the hands of its handler."""

    def __init__(
        self,
        stream: http2.Stream,
        headers: list[tuple[str, str]],
        *,
        method: str,
        cardinality: const.Cardinality,
        request_limit_bytes: int,
        send_timeout_seconds: float,
        sending: turns.Turns,
    ) -> None:
        self.method = method
        """Its path, such as ``/job.Job/Register``."""

        self.resume_uuid = ""
        """The last uuid that was written completely; every abnormal end names it in ``resume-uuid``."""

        self.stream = stream
        """For handlers that were written for grpclib."""

        self._headers = headers
        self._request_limit_bytes = request_limit_bytes
        self._send_timeout_seconds = send_timeout_seconds
        self._sending = sending
        # Only a server stream may be interrupted anywhere. A request that was read is answered first.
        self._follows = cardinality is const.Cardinality.UNARY_STREAM
        self._interruptible = self._follows
        self._task = asyncio.current_task()
        self._reason: Reason | None = None
        self._interrupted = False
        self._finished = False
        self._late = False
        self._patience: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def peer_address(self) -> str:
        """The client's IP address without port or zone; an IPv4 address is written as one."""
        return self.stream.connection.peer_address

    @property
    def streamed(self) -> bool:
        """The answer of a server stream was opened."""
        return self._follows and self.stream.opened

    @property
    def client_gone(self) -> bool:
        """The client reset the call, left, or its deadline passed."""
        return self.stream.gone or self._late

    def header(self, name: str) -> str:
        """A value of the request's metadata by its lower-case name, ``""`` if it was not sent.

        Raises:
            CallError: it was sent twice, with different values.
        """
        values = {value for sent, value in self._headers if sent == name}
        if len(values) > 1:
            problem = f"metadata {name} has {len(values)} values; send one"
            raise CallError(const.Status.INVALID_ARGUMENT, problem)
        return values.pop() if values else ""

    async def send_initial_metadata(self, values: Mapping[str, str] | None = None) -> None:
        """Opens the answer, at most once; values are printable ASCII and not empty. Sending does it too."""
        await self.stream.send_headers([*_OPENING, *metadata.encode_metadata(values or {})])

    async def receive(self, limit_bytes: int | None = None) -> bytes | None:
        """The next request, or None when the client has sent its last. At its largest ``limit_bytes``.

        An end asked for from outside takes effect here, between two requests.

        Raises:
            CallError: it is too large, compressed, or cut off.
        """
        self._end_if_asked()
        limit = self._request_limit_bytes if limit_bytes is None else limit_bytes
        self._interruptible = True
        try:
            prefix = await self._read(PREFIX.size)
        finally:
            self._interruptible = self._follows
        if not prefix:
            return None
        compressed, size = PREFIX.unpack(prefix)
        if compressed:
            raise _compressed()
        if size > limit:
            raise _too_large(size, limit)
        body = await self._read(size)
        if len(body) < size:
            raise _cut_off()
        return body

    async def receive_one(self) -> bytes:
        """The request of a call that has exactly one.

        Raises:
            CallError: as :meth:`receive`, or there is none.
        """
        request = self._whole()
        if request is None:
            request = await self.receive()
        if request is None:
            raise CallError(const.Status.INVALID_ARGUMENT, "the call ended without a request; send one")
        return request

    def _whole(self) -> bytes | None:
        """All of the request, if that came at once and is one message as it should be."""
        data = self.stream.buffer.all_at_once()
        if data is None:
            return None
        self._end_if_asked()
        size = len(data) - PREFIX.size
        if size > self._request_limit_bytes or data[: PREFIX.size] != PREFIX.pack(0, max(size, 0)):
            return None
        self.forget_request()
        return data[PREFIX.size :]

    def forget_request(self) -> None:
        """Keeps nothing of a request that was read, once its client has sent its last."""
        self.stream.forget_request()

    async def send(self, message: bytes, *, resume_uuid: str = "") -> None:
        """Sends one message; as :meth:`send_chunk`."""
        await self.send_chunk(frame(message), resume_uuid=resume_uuid)

    async def answer(self, message: bytes) -> None:
        """Sends the one message of an answer, and its end at once if nothing must be waited for."""
        framed = frame(message)
        if self.stream.opened or not self.stream.answers_at_once(framed):
            await self.send_chunk(framed)

    async def send_chunk(self, framed: bytes, *, resume_uuid: str = "") -> None:
        """Sends many messages, each behind its five-byte prefix, in one go; then lets others run.

        Waits while the client's window is shut. Safe to cancel, but half a message may have been written:
        the call cannot go on. ``resume_uuid`` is taken over when all of it was written.

        Raises:
            errors.SlowReader: the client read too little for too long.
            Exception: the reason given to :meth:`end`, once the chunk was written.
        """
        if not self.stream.opened:
            await self.send_initial_metadata()
        if self._follows:
            await self._sending.take()
            self._end_if_asked()
        if not (0 < len(framed) <= turns.PIECE_BYTES and self.stream.sends_at_once(framed)):
            await self._send_in_time(framed)
        if resume_uuid:
            self.resume_uuid = resume_uuid
        if self._follows:
            self._end_if_asked()
        else:
            # A send does not yield while the window is open; streams that follow take turns.
            await asyncio.sleep(0)

    def end(self, reason: Reason) -> None:
        """Ends the call from outside: at shutdown, or when its client subscribed again.

        A server stream is cancelled where it waits, after the chunk that is being written if that takes no
        longer than half a second. Others end before their next request; one that was read is answered.
        The first reason counts.
        """
        if self._reason is not None or self._finished:
            return
        self._reason = reason
        if self._interruptible:
            self._interrupt()
        elif self._follows:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._interrupt)

    def force(self) -> None:
        """Cancels a call that :meth:`end` was told to end, and that takes too long."""
        if self._reason is not None:
            self._interrupt()

    def ends_in(self, seconds: float) -> None:
        """Ends the call as if its client had left, if it lasts so long: its deadline has passed then."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._late = True
        self._reason = self._reason or _deadline_passed
        self._interrupt()

    def forget_task(self) -> None:
        """Let go of the task, which has ended: it holds how it ended, which holds every frame, and they this.

        What goes in a circle stays until the collector comes: of a thousand calls whose clients left, it had
        50,000 objects to look at, in which time nobody was served.
        """
        self._task = None

    async def run(self, serve: Callable[[Call], Awaitable[None]]) -> Exception | None:
        """Runs the handler; what it raised, or was ended with. CancelledError when the client is gone."""
        failure: Exception | None = None
        try:
            await serve(self)
        except asyncio.CancelledError:
            if not self._interrupted or self.stream.gone or self._reason is None:
                raise
            failure = self._reason()
        except Exception as error:  # noqa: BLE001 - the outermost loop of a call
            failure = error
        finally:
            self._finished = True
            for timer in (self._patience, self._deadline):
                if timer is not None:
                    timer.cancel()
        await self._absorb_interrupt()
        if self.client_gone:
            if failure is not None and not isinstance(failure, errors.LedgerError | CallError):
                logger.warning("%s failed after its client had gone", self.method, exc_info=failure)
                failure = _deadline_passed()
            if self.stream.gone:
                raise asyncio.CancelledError
        return failure

    async def succeed(self) -> None:
        """Sends the trailers of a call that did not fail, if they were not sent."""
        if not self.stream.answered:
            await self._send_trailers(
                [("grpc-status", str(const.Status.OK.value))], seconds=self._send_timeout_seconds
            )

    async def fail(self, failure: CallError) -> None:
        """Sends the trailers of a call that failed."""
        trailers = {"resume-uuid": self.resume_uuid, **failure.trailers}
        await self._send_trailers(
            [
                ("grpc-status", str(failure.status.value)),
                ("grpc-message", metadata.encode_grpc_message(_clipped(failure.message))),
                *metadata.encode_metadata({name: value for name, value in trailers.items() if value}),
            ],
            seconds=TRAILERS_SECONDS,
        )

    async def _send_trailers(self, trailers: list[tuple[str, str]], *, seconds: float) -> None:
        opened = [] if self.stream.opened else _OPENING
        try:
            async with asyncio.timeout(seconds):
                await self.stream.send_headers([*opened, *trailers], end_stream=True)
        except h2.exceptions.StreamClosedError:
            raise asyncio.CancelledError from None
        except TimeoutError:
            self.stream.reset_nowait()
            raise asyncio.CancelledError from None

    async def _read(self, size: int) -> bytes:
        try:
            return await self.stream.recv_data(size)
        except AssertionError:  # grpclib's way to say that the request ended early
            raise _cut_off() from None

    async def _send_in_time(self, framed: bytes) -> None:
        self._interruptible = False
        try:
            async with asyncio.timeout(self._send_timeout_seconds):
                await self._send_in_pieces(framed)
        except TimeoutError:
            raise errors.SlowReader(self._send_timeout_seconds) from None
        finally:
            self._interruptible = self._follows

    async def _send_in_pieces(self, framed: bytes) -> None:
        for at in range(0, len(framed) or 1, turns.PIECE_BYTES):
            if at:
                await self._sending.take()
            await self.stream.send_data(framed[at : at + turns.PIECE_BYTES])

    def _end_if_asked(self) -> None:
        if self._reason is not None:
            raise self._reason()

    def _interrupt(self) -> None:
        if not self._finished and not self._interrupted and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    async def _absorb_interrupt(self) -> None:
        """Takes a cancellation of ours that the handler did not wait for; it would hit the trailers."""
        if self._interrupted and self._task is not None and self._task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            self._task.uncancel()


def frame(message: bytes) -> bytes:
    """A message behind its prefix, uncompressed."""
    return PREFIX.pack(0, len(message)) + message


def _deadline_passed() -> CallError:
    return CallError(const.Status.DEADLINE_EXCEEDED, "the deadline passed before the answer")


def _compressed() -> CallError:
    return CallError(
        const.Status.UNIMPLEMENTED, "compressed requests are not supported; send without compression"
    )


def _too_large(size: int, limit: int) -> CallError:
    return CallError(
        const.Status.RESOURCE_EXHAUSTED,
        f"a request of {size} bytes exceeds the limit of {limit} bytes; send less at once",
    )


def _cut_off() -> CallError:
    return CallError(const.Status.INVALID_ARGUMENT, "the request ended in the middle of a message")


def _clipped(message: str) -> str:
    encoded = message.encode("utf-8", "backslashreplace")
    if len(encoded) <= MESSAGE_LIMIT_BYTES:
        return encoded.decode()
    return encoded[: MESSAGE_LIMIT_BYTES - 3].decode("utf-8", "ignore") + "…"
