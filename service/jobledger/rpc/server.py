"""The gRPC server: services, health and reflection on one port, and a shutdown that every client hears of.

Shutdown, in order: no new connection and no new call; each open stream ends with its own status, calls that
were read are answered; after the grace time the rest is cut short; only then the connections close. grpclib's
own ``close()`` cancels the handlers and sends nothing: clients would hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import grpclib
from google.protobuf import descriptor_pool
from grpclib import const
from grpclib.health.check import ServiceStatus
from grpclib.health.service import Health
from grpclib.health.v1 import health_pb2
from grpclib.reflection.service import ServerReflection
from h2.errors import ErrorCodes

from jobledger import errors, logs, ports
from jobledger.ledger import turns
from jobledger.rpc import connection, http2, internals, methods, opening, streaming

logger = logging.getLogger(__name__)

FORCE_SECONDS: Final = 1.0
"""How long calls have, once cut short at the end of the grace time, to send their status."""

GOODBYE_SECONDS: Final = 0.5
"""How long clients have to close their connection once told to."""

Explain = Callable[[Exception, streaming.Call], streaming.CallError | None]
"""What an exception is to the client; None if it is not one that is meant for clients."""


class ServiceServer:
    """Serves services on one port, with their health and their descriptors."""

    def __init__(
        self,
        services: Iterable[Mapping[str, methods.Method]],
        *,
        explain: Explain,
        pool: descriptor_pool.DescriptorPool,
        options: connection.Options | None = None,
        request_limit_bytes: int = 16 << 20,
        send_timeout_seconds: float = 900.0,
        sending: turns.Turns | None = None,
    ) -> None:
        """``sending`` gives the turns if others in this process send streams too."""
        self._explain = explain
        self._options = options or connection.Options()
        self._request_limit_bytes = request_limit_bytes
        self._send_timeout_seconds = send_timeout_seconds
        self._status = ServiceStatus()
        own = [_Service(service) for service in services]
        health = Health({service: [self._status] for service in own})
        pool.AddSerializedFile(health_pb2.DESCRIPTOR.serialized_pb)
        servable = ServerReflection.extend([*own, health], pool=pool)
        self._mapping = {
            path: method
            for service in servable
            for path, method in (
                service.methods if isinstance(service, _Service) else _foreign(service.__mapping__())
            ).items()
        }
        self._by_hand = False
        self._sending = sending or turns.Turns()
        self._closing = False
        self._calls: set[streaming.Call] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._connections: set[connection.Connection] = set()
        self._listener: asyncio.Task[None] | None = None

    @property
    def open_calls(self) -> int:
        """Calls that are being served, health watches included."""
        return len(self._calls)

    def set_serving(self, *, serving: bool) -> None:
        """What ``grpc.health.v1`` answers from now on; nothing was said yet at the start."""
        self._status.set(serving)

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listens; the answer is the port, a free one for 0; see :func:`ports.listening`.

        Raises:
            OSError: the port is taken or the address is not ours.
            RuntimeError: the installed grpclib will not do.
        """
        self._by_hand = internals.verify()
        sock = await ports.listening(host, port, shared=shared)
        bound: int = sock.getsockname()[1]
        self._listener = ports.accepting(sock, self._connection, turn=self._sending.arrive)
        return bound

    async def shutdown(self, *, grace_seconds: float) -> None:
        """Ends everything, in the order that this module's docstring gives. Not safe to cancel."""
        self._closing = True
        self.set_serving(serving=False)
        if self._listener is not None:
            self._listener.cancel()
        for call in list(self._calls):
            call.end(lambda call=call: errors.ShuttingDown(call.resume_uuid))
        if not await self._settled(grace_seconds):
            logger.warning("%d calls are cut short after %g s of grace", len(self._calls), grace_seconds)
            for call in list(self._calls):
                call.force()
            await self._settled(FORCE_SECONDS)
        await self._close_connections()
        if self._listener is not None:
            await asyncio.wait([self._listener])

    async def _settled(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _close_connections(self) -> None:
        open_ones = list(self._connections)
        for one in open_ones:
            one.say_goodbye()
        if open_ones:
            await asyncio.wait([one.closed for one in open_ones], timeout=GOODBYE_SECONDS)
        for one in open_ones:
            one.abort()
        if open_ones:
            await asyncio.wait([one.closed for one in open_ones])

    def _connection(self) -> connection.Connection:
        return connection.Connection(
            serve=self._serve, options=self._options, opened=self._admit, by_hand=self._by_hand
        )

    def _admit(self, opened: connection.Connection) -> None:
        self._connections.add(opened)
        opened.closed.add_done_callback(lambda _: self._connections.discard(opened))

    async def _serve(self, stream: http2.Stream, headers: connection.Headers) -> None:
        asked = opening.read(headers, self._mapping)
        refusal = asked.refusal
        if self._closing:
            refusal = opening.refused(const.Status.UNAVAILABLE, str(errors.ShuttingDown()))
        if refusal:
            await stream.send_headers(refusal, end_stream=True)
            return
        if refusal is not None:
            stream.reset_nowait(ErrorCodes.PROTOCOL_ERROR)
            return
        method = self._mapping[asked.path]
        call = streaming.Call(
            stream,
            headers,
            method=asked.path,
            cardinality=method.cardinality,
            request_limit_bytes=self._request_limit_bytes,
            send_timeout_seconds=self._send_timeout_seconds,
            sending=self._sending,
        )
        if asked.timeout_seconds is not None:
            call.ends_in(asked.timeout_seconds)
        self._calls.add(call)
        self._idle.clear()
        try:
            with logs.request(method=asked.path, peer=call.peer_address):
                await self._run(call, method)
        finally:
            call.forget_task()
            self._calls.discard(call)
            if not self._calls:
                self._idle.set()

    async def _run(self, call: streaming.Call, method: methods.Method) -> None:
        failure: Exception | str = "its client left"
        try:
            raised = await call.run(method.serve)
            failure = raised or "nothing was left to send"
            if raised is None:
                await call.succeed()
            else:
                await call.fail(self._explained(raised, call))
        finally:
            if call.streamed:
                logger.info("stream ended, last uuid %s: %s", call.resume_uuid or "none", failure)

    def _explained(self, failure: Exception, call: streaming.Call) -> streaming.CallError:
        if isinstance(failure, streaming.CallError):
            return failure
        if isinstance(failure, grpclib.GRPCError):
            return streaming.CallError(failure.status, failure.message or "")
        explained = self._explain(failure, call)
        if explained is not None:
            return explained
        request_id = logs.request_id()
        logger.error("request %s: %s failed", request_id, call.method, exc_info=failure)
        return streaming.CallError(
            const.Status.INTERNAL, f"internal error; the server's log has it under request id {request_id}"
        )


class _Service:
    """One service as grpclib's health and reflection want to see it: named by its paths."""

    def __init__(self, service: Mapping[str, methods.Method]) -> None:
        self.methods = service

    def __mapping__(self) -> Mapping[str, Any]:
        return self.methods


def _foreign(mapping: Mapping[str, Any]) -> dict[str, methods.Method]:
    return {path: methods.foreign(*handler) for path, handler in mapping.items()}
