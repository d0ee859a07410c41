"""job.Job: what an existing ClusterD client dials. Nothing that it does not expect may be sent here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial

from jobledger import logs
from jobledger.ledger import clients, page, snapshot, subscription
from jobledger.model import selection
from jobledger.model.principal import Scope
from jobledger.rpc import methods, streaming, subscribing
from jobledger.wire import requests

REGISTERED = 200
FULL = 429
"""Codes of Register's answer; the gRPC status is OK for both."""


class JobService:
    """ClusterD's job service over the ledger."""

    def __init__(self, common: subscribing.Subscribing, identify: subscribing.Identify) -> None:
        self._common = common
        self._identify = identify

    def methods(self) -> Mapping[str, methods.Method]:
        """Its methods by path."""
        return {
            "/job.Job/Register": methods.unary(self.register),
            "/job.Job/SubscribeJobSummarySignal": methods.server_stream(
                partial(self.subscribe, kind=page.Kind.SIGNAL)
            ),
            "/job.Job/SubscribeJobSummarySignalList": methods.server_stream(
                partial(self.subscribe, kind=page.Kind.LIST)
            ),
        }

    async def register(self, call: streaming.Call, data: bytes) -> bytes:
        """Hand out a client id; the request's own is ignored."""
        self._identify(call).require(Scope.SUBSCRIBE)
        request = requests.decode_client_info(data)
        async with self._common.unhurried_refusals():
            client_id = await self._common.clients.register(request.role)
        if client_id is None:
            info = "the limit of registered clients is reached, please retry later"
            return requests.encode_status(code=FULL, info=info, client_id="")
        return requests.encode_status(code=REGISTERED, info="registration successful", client_id=client_id)

    async def subscribe(self, call: streaming.Call, data: bytes, *, kind: page.Kind) -> None:
        """Deliver from the start that the request names, then live, until somebody ends it."""
        self._identify(call).require(Scope.SUBSCRIBE)
        request = subscribing.with_metadata(call, requests.decode_client_info(data))
        async with self._common.unhurried_refusals():
            await self._common.clients.check(request)
            logs.belongs_to(request.client_id)
            found = await self._common.find_start(call, request)
        stream = clients.Stream(
            client_id=request.client_id, role=request.role, end=lambda reason: call.end(lambda: reason)
        )
        async with self._common.clients.running(stream):
            await subscribing.announce(call, found, request.filter)
            await self._deliver(call, found, request.filter, kind)

    async def _deliver(
        self, call: streaming.Call, found: subscription.Start, wanted: selection.Filter, kind: page.Kind
    ) -> None:
        steps = subscription.follow(self._common.reader, found, quiet_seconds=self._common.quiet_seconds)
        async with contextlib.aclosing(steps):
            async for step in steps:
                for chunk in self._chunks(step, wanted, kind):
                    await call.send_chunk(chunk.data, resume_uuid=str(chunk.last_uuid))

    def _chunks(
        self, step: subscription.Step, wanted: selection.Filter, kind: page.Kind
    ) -> Iterator[page.Chunk]:
        match step:
            case subscription.Events():
                yield from step.page.chunks(kind, step.start, wanted)
            case subscription.SnapshotEvents() if kind is page.Kind.LIST:
                yield from snapshot.lists(step.page, step.snapshot, limit_bytes=self._common.list_limit_bytes)
            case subscription.SnapshotEvents():
                yield from step.page.chunks(kind, 0, selection.EVERYTHING)
            case subscription.CaughtUp() | subscription.Quiet():
                return
