"""jobledger.v1.Ledger: publishing, and a stream with markers for our own client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from uuid import UUID

from jobledger.ledger import appender, page, subscription
from jobledger.model import event, selection
from jobledger.model.principal import Scope
from jobledger.rpc import methods, streaming, subscribing
from jobledger.wire import delivery, requests


class LedgerService:
    """Our own service over the ledger."""

    def __init__(
        self,
        common: subscribing.Subscribing,
        appender: appender.Appender,
        identify: subscribing.Identify,
    ) -> None:
        self._common = common
        self._appender = appender
        self._identify = identify

    def methods(self) -> Mapping[str, methods.Method]:
        """Its methods by path."""
        return {
            "/jobledger.v1.Ledger/Append": methods.unary(self.append),
            "/jobledger.v1.Ledger/AppendStream": methods.bidirectional(self.append_stream),
            "/jobledger.v1.Ledger/Subscribe": methods.server_stream(self.subscribe),
        }

    async def append(self, call: streaming.Call, data: bytes) -> bytes:
        """Record a request's events: a receipt or an error each."""
        principal = self._identify(call)
        principal.require(Scope.PUBLISH)
        outcomes = await self._appender.append(requests.decode_append(data), principal)
        return requests.encode_receipts(outcomes)

    async def append_stream(self, call: streaming.Call) -> None:
        """Record request after request: the next is read when the last one is answered.

        So a request that fails as a whole has no successor in the log, and the publisher's order holds.
        """
        while (data := await call.receive()) is not None:
            await call.send(await self.append(call, data))

    async def subscribe(self, call: streaming.Call, data: bytes) -> None:
        """Deliver from the start that the request names, then live, with markers."""
        self._identify(call).require(Scope.SUBSCRIBE)
        request = subscribing.with_metadata(call, requests.decode_subscribe(data))
        async with self._common.unhurried_refusals():
            found = await self._common.find_start(call, request)
        await subscribing.announce(call, found, request.filter)
        await _Delivery(call, request.filter, self._common).run(found)


class _Delivery:
    """One stream with markers: it is never silent for long."""

    def __init__(
        self, call: streaming.Call, wanted: selection.Filter, common: subscribing.Subscribing
    ) -> None:
        self._call = call
        self._wanted = wanted
        self._common = common
        self._spoke_at = time.monotonic()

    async def run(self, found: subscription.Start) -> None:
        steps = subscription.follow(self._common.reader, found, quiet_seconds=self._common.quiet_seconds)
        async with contextlib.aclosing(steps):
            async for step in steps:
                await self._take(step)

    async def _take(self, step: subscription.Step) -> None:
        match step:
            case subscription.Events():
                await self._send_events(step.page, step.start, self._wanted)
                last = step.page.entries[-1]
                await self._beat(last.position, last.uuid)
            case subscription.SnapshotEvents():
                await self._send_events(step.page, 0, selection.EVERYTHING)
            case subscription.CaughtUp():
                await self._send(delivery.ledger_caught_up(step.position))
            case subscription.Quiet():
                await self._beat(step.position, step.uuid)

    async def _send_events(self, shown: page.Page, start: int, wanted: selection.Filter) -> None:
        for chunk in shown.chunks(page.Kind.LEDGER, start, wanted):
            await self._call.send_chunk(chunk.data, resume_uuid=str(chunk.last_uuid))
            self._spoke_at = time.monotonic()

    async def _beat(self, position: event.Position, uuid: UUID | None) -> None:
        """Say how far the stream has looked, if it has said nothing for a while."""
        if time.monotonic() - self._spoke_at >= self._common.quiet_seconds:
            cursor = str(uuid or "")
            self._call.resume_uuid = cursor or self._call.resume_uuid
            await self._send(delivery.ledger_heartbeat(position, cursor, self._common.reader.tail.head))

    async def _send(self, message: bytes) -> None:
        await self._call.send(message)
        self._spoke_at = time.monotonic()
