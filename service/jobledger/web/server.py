"""The REST server: one port, from the first connection to an orderly end.

aiohttp's low-level server, since its application answers some failures as text before any of our code runs.

Shutdown, in order: health says no; no new connection; requests that were read are answered, each with the
end of its connection; after the grace time the rest is cut short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import tzinfo
from typing import Final

from aiohttp import web

from jobledger import logs, ports
from jobledger.ledger import appender, start, subscription, tail
from jobledger.store import engine
from jobledger.web import connection, dressing, events, health, identity, jobs, lists, metrics, reads, routes

KEEP_ALIVE_SECONDS: Final = 75.0
"""How long an idle connection stays open: longer than the proxies before us keep theirs."""


class WebServer:
    """Serves the REST API and health on one port."""

    def __init__(
        self,
        *,
        appender: appender.Appender,
        pool: engine.ReadPool,
        tail: tail.Tail,
        identify: identity.Identify,
        zone: tzinfo,
        request_limit_bytes: int,
        reader: subscription.Reader,
        starts: start.Starts,
        cors_origins: Collection[str] = (),
        grpc_streams: Callable[[], int],
        hears: Callable[[], bool],
    ) -> None:
        self._sending = reader.sending
        self._dressing = dressing.Dressing(cors_origins)
        self._health = health.Health(tail)
        self._events = events.Events(
            reader=reader, starts=starts, identify=identify, dress=self._dressing.dress
        )
        self._router = routes.Router(
            job=jobs.Jobs(
                appender=appender,
                pool=pool,
                identify=identify,
                request_limit_bytes=request_limit_bytes,
            ),
            read=reads.Reads(pool=pool, identify=identify, zone=zone),
            listed=lists.Lists(pool=pool, identify=identify, zone=zone),
            stream=self._events,
            state=self._health,
            measured=metrics.Metrics(
                metrics.Ledger(
                    appending=appender,
                    following=tail,
                    streams=lambda: self._events.streams,
                    grpc_streams=grpc_streams,
                    hears=hears,
                )
            ),
        )
        self._server: _Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int, *, shared: bool = False) -> int:
        """Listens; the answer is the port, a free one for 0; see :func:`ports.listening`.

        Raises:
            OSError: the port is taken or the address is not ours.
        """
        sock = await ports.listening(host, port, shared=shared)
        loop = asyncio.get_running_loop()
        self._server = _Server(self._answer)
        self._listener = await loop.create_server(self._server, sock=sock, backlog=ports.BACKLOG)
        bound: int = sock.getsockname()[1]
        return bound

    def set_draining(self) -> None:
        """Health and readiness say no from now on; requests are still answered."""
        self._health.draining = True

    async def stop(self, *, grace_seconds: float) -> None:
        """Stop listening, answer what was read, and end every connection within the grace time."""
        self.set_draining()
        if self._listener is not None:
            self._listener.close()
        self._events.close()
        if self._server is not None:
            self._server.pre_shutdown()
            # It waits this long for the handlers, and once more for what it cut short.
            await self._server.shutdown(grace_seconds / 2)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        client = request.protocol
        if isinstance(client, connection.Connection):
            client.watch(request.content)
        with logs.request(peer=request.remote or "local"):
            with self._sending.calling():
                response = await self._router.answer(request)
            if not response.prepared:
                self._dressing.dress(request, response)
        if self._health.draining or (isinstance(client, connection.Connection) and client.broken):
            response.force_close()
        return response


class _Server(web.Server):
    """Makes our connections instead of aiohttp's."""

    def __call__(self) -> connection.Connection:
        return connection.Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,  # pyright: ignore[reportArgumentType] - None is looked for, and means none
            max_line_size=connection.LINE_LIMIT_BYTES,
            max_field_size=connection.LINE_LIMIT_BYTES,
            auto_decompress=False,
        )
