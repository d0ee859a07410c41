"""Callers that ask a server again as soon as it answered, and cost less than any server; and aiohttp's hello.

Plain bytes over 64 connections: over HTTP/1.1, and unary gRPC calls over HTTP/2.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import struct
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Final

import harness
import reader
from aiohttp import web

CONNECTIONS: Final = 64
PAUSE_SECONDS: Final = 0.005
"""Between two requests of :func:`delays`."""


class Caller(asyncio.Protocol):
    """Sends a request as soon as the last one is answered, on one connection, over HTTP/1.1."""

    def __init__(self, request: Callable[[int], bytes], number: int, ends: float) -> None:
        self._request = request
        self._number = number
        self._ends = ends
        self._missing = 0
        self._transport: asyncio.Transport | None = None
        self._asked = 0.0
        self.answers = 0
        self.delays: list[float] = []
        """Seconds that each answer took."""
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP has no other
        self._transport = transport
        self.write(transport)

    def write(self, transport: asyncio.Transport) -> None:
        """Send the next request; no two of all connections have the same number."""
        self._asked = time.perf_counter()
        transport.write(self._request(self._number + self.answers * CONNECTIONS))

    def data_received(self, data: bytes) -> None:
        """Go on when the answer is whole; heads come in one piece here."""
        if self._missing:
            self._missing -= len(data)
        else:
            head, _, body = data.partition(b"\r\n\r\n")
            _, _, length = head.partition(b"Content-Length: ")
            self._missing = int(length.partition(b"\r\n")[0] or 0) - len(body)
        if not self._missing:
            self.answered()

    def answered(self) -> None:
        """Count, and ask again while there is time."""
        assert self._transport is not None  # noqa: S101 - it is connected
        self.answers += 1
        now = time.perf_counter()
        self.delays.append(now - self._asked)
        if now < self._ends:
            self.write(self._transport)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self.closed.set_result(exc)


class GrpcCaller(Caller):
    """The same with unary calls of one method, each on the next stream of its connection."""

    METHOD = "/jobledger.v1.Ledger/Append"

    def __init__(self, request: Callable[[int], bytes], number: int, ends: float) -> None:
        super().__init__(request, number, ends)
        self._frames = reader.Frames()

    def write(self, transport: asyncio.Transport) -> None:
        """Send the next call; the service grants far more window than a run needs."""
        self._asked = time.perf_counter()
        stream = 2 * self.answers + 1
        message = self._request(self._number + self.answers * CONNECTIONS)
        data = b"\0" + struct.pack(">I", len(message)) + message
        opening = b"" if self.answers else reader.grpc_opening()
        headers = reader.grpc_headers(stream, self.METHOD)
        transport.write(opening + headers + reader.frame(reader.DATA, reader.END_STREAM, stream, data))

    def data_received(self, data: bytes) -> None:
        """Go on when the trailers came."""
        over = False
        for kind, flags, _, payload in self._frames.of(data):
            over = over or (kind == reader.HEADERS and bool(flags & reader.END_STREAM))
            owed = reader.acknowledgement(kind, flags, payload)
            if owed and self._transport is not None:
                self._transport.write(owed)
        if over:
            self.answered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What a server did, and what that took."""

    answers: int
    each_second: float
    server_microseconds: float
    """Of its processor time, an answer."""

    postgres_microseconds: float
    """0 for a server without."""

    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A server."""

    port: int | str
    pid: int
    postgres_pid: int

    @classmethod
    def http(cls, service: harness.Service) -> Asked:
        """The service, through REST."""
        return cls(port=service.http_port, pid=service.pid, postgres_pid=service.postgres_pid)

    @classmethod
    def grpc(cls, service: harness.Service) -> Asked:
        """The service, through gRPC."""
        return cls(port=service.grpc_port, pid=service.pid, postgres_pid=service.postgres_pid)


async def rate(
    server: Asked, request: Callable[[int], bytes], seconds: float, caller: type[Caller] = Caller
) -> Rate:
    """Ask a server over keep-alive connections."""
    ends = time.perf_counter() + seconds
    before = _processor_seconds(server)
    callers = [caller(request, number, ends) for number in range(CONNECTIONS)]
    loop = asyncio.get_running_loop()
    for each in callers:
        await loop.create_connection(lambda each=each: each, "127.0.0.1", int(server.port))
    for each in callers:
        if error := await each.closed:
            raise error
    answers = sum(each.answers for each in callers)
    service, postgres = (
        (after - earlier) / answers * 1e6
        for after, earlier in zip(_processor_seconds(server), before, strict=True)
    )
    return Rate(
        answers=answers,
        each_second=answers / seconds,
        server_microseconds=service,
        postgres_microseconds=postgres,
        p99_ms=harness.percentile([delay for each in callers for delay in each.delays], 99) * 1000,
    )


def _processor_seconds(server: Asked) -> tuple[float, float]:
    postgres = harness.children_seconds(server.postgres_pid) if server.postgres_pid else 0
    return harness.processor_seconds(server.pid), postgres


async def delays(port: int | str, request: Callable[[int], bytes], until: Callable[[], bool]) -> list[float]:
    """Seconds that single requests take, one after the other with pauses: how long a user waits."""
    coming, going = await asyncio.open_connection("127.0.0.1", int(port))
    taken: list[float] = []
    while not until() or not taken:
        began = time.perf_counter()
        going.write(request(len(taken)))
        head = await coming.readuntil(b"\r\n\r\n")
        _, _, length = head.partition(b"Content-Length: ")
        await coming.readexactly(int(length.partition(b"\r\n")[0] or 0))
        if b" 200 " not in head[:16]:
            raise SystemExit(f"instead of an answer: {head.decode()}")
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_SECONDS)
    going.close()
    return taken


def get(target: str, headers: str = "") -> bytes:
    """A request as bytes."""
    return f"GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


@contextlib.asynccontextmanager
async def hello() -> AsyncGenerator[Asked]:
    """The hello of aiohttp's own documentation, in a process of its own as the service is."""
    told: multiprocessing.Queue[int] = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=_serve_hello, args=(told,), daemon=True)
    process.start()
    assert process.pid is not None  # noqa: S101 - it runs
    try:
        yield Asked(port=await asyncio.to_thread(told.get), pid=process.pid, postgres_pid=0)
    finally:
        process.kill()
        process.join()


def _serve_hello(told: multiprocessing.Queue[int]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def run() -> None:
        application = web.Application()
        application.router.add_get("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        told.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())
