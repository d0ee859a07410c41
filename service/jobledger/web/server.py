"""The REST server: a port, and connections on which even what the parser refuses is answered in the envelope.

aiohttp's low-level server, since its application answers some failures as text before any of our code runs.

Shutdown, in order: health says no; no new connection; requests that were read are answered, each with the
end of its connection; after the grace time the rest is cut short.
"""

from __future__ import annotations

import asyncio
import socket
from datetime import tzinfo
from typing import Final

from aiohttp import StreamReader, http_exceptions, web

from jobledger import errors
from jobledger.ledger import appender, tail
from jobledger.store import engine
from jobledger.web import envelope, health, jobs, routes

BACKLOG: Final = 1024
"""Connections waiting to be accepted."""

KEEP_ALIVE_SECONDS: Final = 75.0
"""How long an idle connection stays open: longer than the proxies before us keep theirs."""

LINE_LIMIT_BYTES: Final = 8190
"""The longest URL and the longest header; an id of 256 characters takes at most 3 KiB of it."""


class WebServer:
    """Serves the REST API and health on one port."""

    def __init__(
        self,
        *,
        appender: appender.Appender,
        pool: engine.ReadPool,
        tail: tail.Tail,
        identify: jobs.Identify,
        zone: tzinfo,
        request_limit_bytes: int,
    ) -> None:
        self._health = health.Health(tail)
        self._router = routes.Router(
            jobs.Jobs(
                appender=appender,
                pool=pool,
                identify=identify,
                zone=zone,
                request_limit_bytes=request_limit_bytes,
            ),
            self._health,
        )
        self._server: _Server | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; the answer is the port, a free one for 0. A name is resolved to its first address.

        Raises:
            OSError: the port is taken or the address is not ours.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        sock = socket.create_server(
            address[:2],
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=family is socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6(),
        )
        self._server = _Server(self._answer)
        self._listener = await loop.create_server(self._server, sock=sock, backlog=BACKLOG)
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
        if self._server is not None:
            self._server.pre_shutdown()
            # It waits this long for the handlers, and once more for what it cut short.
            await self._server.shutdown(grace_seconds / 2)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.watch(request.content)
        response = await self._router.answer(request)
        if self._health.draining or (isinstance(connection, Connection) and connection.broken):
            response.force_close()
        return response


class _Server(web.Server):
    """Makes our connections instead of aiohttp's."""

    def __call__(self) -> Connection:
        return Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,  # pyright: ignore[reportArgumentType] - None is looked for, and means none
            max_line_size=LINE_LIMIT_BYTES,
            max_field_size=LINE_LIMIT_BYTES,
            auto_decompress=False,
        )


class Connection(web.RequestHandler):
    """One client's connection."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportArgumentType] - handed through
        self._body: StreamReader | None = None
        self.broken = False
        """What came is not HTTP any more; nothing after it can be understood."""

    def watch(self, body: StreamReader) -> None:
        """Take care that whoever reads this body hears of its end, whatever comes."""
        self._body = body
        self._end_broken_body()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        super().data_received(data)
        self._end_broken_body()

    def _end_broken_body(self) -> None:
        """End a body that cannot go on.

        aiohttp queues a parser error as the next message and leaves the body before it waiting for ever.
        No message but an error can follow a body that is not complete.
        """
        if self._body is not None and not self._body.is_eof() and self._messages:
            self.broken = True
            self._body.set_exception(
                errors.InvalidRequest("the body's chunks are not well-formed; send it again")
            )
            self._body.feed_eof()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what the parser refused; its message would show the client's bytes, secrets too."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun; only the end of the connection can tell")
        if isinstance(exc, http_exceptions.HttpProcessingError):
            response = envelope.failure(errors.InvalidRequest(_refusal(exc)))
        else:
            response = envelope.failure(
                exc if isinstance(exc, Exception) else RuntimeError(f"status {status}")
            )
        response.force_close()
        return response


def _refusal(error: http_exceptions.HttpProcessingError) -> str:
    match error:
        case http_exceptions.LineTooLong():
            return f"the URL or a header is longer than {LINE_LIMIT_BYTES} bytes; shorten it"
        case http_exceptions.InvalidURLError():
            return "the URL is malformed; percent-encode everything but ASCII in it"
        case http_exceptions.BadHttpMethod():
            return "the method is none of HTTP's; use GET, POST or DELETE"
        case _:
            return "the request is not well-formed HTTP"
