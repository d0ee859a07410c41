"""How a service declares its methods: a mapping from path to :class:`Method`, all in raw bytes.

A service decodes and encodes with ``wire`` and raises from ``errors``; it never meets grpclib::

    def methods(self) -> Mapping[str, methods.Method]:
        return {
            "/job.Job/Register": methods.unary(self.register),
            "/job.Job/SubscribeJobSummarySignal": methods.server_stream(self.subscribe),
            "/jobledger.v1.Ledger/AppendStream": methods.bidirectional(self.append_stream),
        }
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from grpclib import const, server

from jobledger.rpc import internals, streaming

GrpclibHandler = Callable[[server.Stream[Any, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a service."""

    serve: Callable[[streaming.Call], Awaitable[None]]
    """Serves one call, from the first request to the last answer."""

    cardinality: const.Cardinality


def unary(handler: Callable[[streaming.Call, bytes], Awaitable[bytes]]) -> Method:
    """One request, one answer: the handler takes the one and returns the other."""

    async def serve(call: streaming.Call) -> None:
        await call.answer(await handler(call, await call.receive_one()))

    return Method(serve=serve, cardinality=const.Cardinality.UNARY_UNARY)


def server_stream(handler: Callable[[streaming.Call, bytes], Awaitable[None]]) -> Method:
    """One request, many answers: the handler sends them with ``call.send_chunk`` and returns at the end.

    It may be cancelled wherever it waits, whether its client goes or :meth:`streaming.Call.end` is called.
    """

    async def serve(call: streaming.Call) -> None:
        request = await call.receive_one()
        call.forget_request()
        await handler(call, request)

    return Method(serve=serve, cardinality=const.Cardinality.UNARY_STREAM)


def bidirectional(handler: Callable[[streaming.Call], Awaitable[None]]) -> Method:
    """Requests and answers in turn: the handler loops over ``call.receive`` until None and sends.

    :meth:`streaming.Call.end` takes effect in ``receive`` only, so that what was read is answered.
    """
    return Method(serve=handler, cardinality=const.Cardinality.STREAM_STREAM)


def foreign(
    handler: GrpclibHandler, cardinality: const.Cardinality, request_type: type, reply_type: type
) -> Method:
    """A method of a service written for grpclib, such as health or reflection: a ``const.Handler``."""

    async def serve(call: streaming.Call) -> None:
        await handler(
            internals.grpclib_stream(call.stream, call.method, cardinality, request_type, reply_type)
        )

    return Method(serve=serve, cardinality=cardinality)
