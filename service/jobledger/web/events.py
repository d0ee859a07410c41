"""The log as server-sent events: what a gRPC subscriber gets, from the same window and pages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from aiohttp import web

from jobledger import errors
from jobledger.ledger import page, start, subscription, turns
from jobledger.model import selection
from jobledger.model.principal import Scope
from jobledger.web import identity, parameters
from jobledger.wire import eventstream

HEARTBEAT_SECONDS: Final = 10.0
"""Silence after which a comment is sent: proxies cut what says nothing for half a minute."""

STALLED_SECONDS: Final = 900.0
"""How long a reader may take nothing before its stream ends; it costs no queue."""

MOST_STREAMS: Final = 10_000
"""Streams of a process; more are told to come back. A browser opens six to a host at most."""

Dress = Callable[[web.BaseRequest, web.StreamResponse], None]


class Events:
    """The handler of ``/v4/cwai/events``."""

    def __init__(
        self,
        *,
        reader: subscription.Reader,
        starts: start.Starts,
        identify: identity.Identify,
        dress: Dress,
    ) -> None:
        self._reader = reader
        self._starts = starts
        self._identify = identify
        self._dress = dress
        self._closing = asyncio.Event()
        self.streams = 0
        """How many are open."""

    def close(self) -> None:
        """End every stream; its reader may resume elsewhere."""
        self._closing.set()

    async def follow(self, request: web.BaseRequest, _path_id: str) -> web.StreamResponse:
        """GET: everything after the last id, or a snapshot and what follows; for ever."""
        self._identify(request).require(Scope.SUBSCRIBE)
        given = parameters.Parameters(request, "")
        if given.header("userID") or given.header("accountID"):
            raise errors.NotPermitted(
                "the stream is everybody's and cannot be narrowed by userID or accountID; list jobs instead"
            )
        if self._closing.is_set():
            raise errors.ShuttingDown
        if self.streams >= MOST_STREAMS:
            raise errors.Overloaded(f"{MOST_STREAMS} streams are open")
        # Counted from here on: those that come while it finds its start count it too.
        self.streams += 1
        try:
            return await self._stream(request, *await self._start(given))
        finally:
            self.streams -= 1

    async def _stream(
        self, request: web.BaseRequest, found: subscription.Start, reset: bytes
    ) -> web.StreamResponse:
        answer = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                # nginx would keep events back until its buffer is full.
                "X-Accel-Buffering": "no",
            }
        )
        self._dress(request, answer)
        try:
            await answer.prepare(request)
            if request.method != "HEAD":
                with self._reader.sending.following():
                    await self._send(answer, found, reset)
        except (ConnectionError, TimeoutError):
            # The reader left, or takes nothing any more.
            if request.transport is not None:
                request.transport.abort()
        return answer

    async def _start(self, given: parameters.Parameters) -> tuple[subscription.Start, bytes]:
        """Where to start, and what is said first."""
        after = given.header("Last-Event-ID") or given.query("lastEventID")
        word = given.query("startFrom") or selection.StartFrom.SNAPSHOT
        try:
            start_from = selection.StartFrom(word)
        except ValueError:
            allowed = ", ".join(selection.StartFrom)
            raise errors.InvalidRequest(
                f"startFrom {errors.shown(word)} is unknown; allowed are {allowed}"
            ) from None
        try:
            request = selection.StreamRequest(after=after, start_from=start_from)
            return await self._starts.find(request), b""
        except errors.CursorError as error:
            found = await self._starts.find(selection.StreamRequest(start_from=selection.StartFrom.SNAPSHOT))
            return found, eventstream.reset(reason=_reason(error), first=await self._starts.first_uuid())

    async def _send(self, answer: web.StreamResponse, found: subscription.Start, reset: bytes) -> None:
        await self._write(answer, reset or eventstream.comment(f"position {found.after}"))
        closing = asyncio.create_task(self._closing.wait())
        steps = subscription.follow(self._reader, found, quiet_seconds=HEARTBEAT_SECONDS)
        async with contextlib.aclosing(steps):
            try:
                while (step := await _next(steps, closing)) is not None:
                    await self._show(answer, step)
                await self._write(answer, eventstream.end(reason=errors.ShuttingDown.reason))
            except errors.DataLoss as loss:
                await self._write(answer, eventstream.end(reason=loss.reason))
            finally:
                closing.cancel()

    async def _show(self, answer: web.StreamResponse, step: subscription.Step) -> None:
        match step:
            case subscription.Events(shown, first):
                for chunk in shown.chunks(page.Kind.SERVER_SENT, first, selection.EVERYTHING):
                    await self._write(answer, chunk.data)
            case subscription.SnapshotEvents(shown):
                for chunk in shown.chunks(page.Kind.SERVER_SENT, 0, selection.EVERYTHING):
                    await self._write(answer, chunk.data)
            case subscription.CaughtUp(position):
                await self._write(answer, eventstream.comment(f"caught up at position {position}"))
            case subscription.Quiet(position):
                await self._write(answer, eventstream.comment(f"heartbeat at position {position}"))

    async def _write(self, answer: web.StreamResponse, data: bytes) -> None:
        """A piece a turn: aiohttp's write lets nobody else run while the reader takes all."""
        for at in range(0, len(data), turns.PIECE_BYTES):
            await self._reader.sending.take()
            async with asyncio.timeout(STALLED_SECONDS):
                await answer.write(data[at : at + turns.PIECE_BYTES])


async def _next(
    steps: AsyncGenerator[subscription.Step], closing: asyncio.Task[bool]
) -> subscription.Step | None:
    """The next step; None once the stream is to end."""
    step = asyncio.ensure_future(anext(steps))
    try:
        await asyncio.wait({step, closing}, return_when=asyncio.FIRST_COMPLETED)
        return step.result() if step.done() and not closing.done() else None
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait({step})


def _reason(error: errors.CursorError) -> str:
    return "malformed" if isinstance(error, errors.MalformedUuid) else error.reason
