"""A TCP relay that cuts what goes through it, or swallows it, as a crash or a pulled cable does: silently."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

READ_BYTES = 64 * 1024


class Relay:
    """Listens on a port of its own and hands everything on to another."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._open: set[asyncio.StreamWriter] = set()
        self._forwards = _Forwarding()

    def cut(self) -> None:
        """Ends every connection now; new ones are taken as before."""
        for writer in self._open:
            writer.transport.abort()

    def swallow(self) -> None:
        """Hands nothing on any more of the connections that are open, and closes none; new ones work."""
        self._forwards.stopped = True
        self._forwards = _Forwarding()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until either end is gone."""
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._open |= {writer, there}
        await asyncio.gather(
            _pump(reader, there, self._forwards), _pump(there_reader, writer, self._forwards)
        )
        self._open -= {writer, there}


class _Forwarding:
    stopped = False


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forwarding: _Forwarding) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            if not forwarding.stopped:
                writer.write(data)
                await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def running(to_port: int) -> AsyncGenerator[Relay]:
    """A relay for as long as the block lasts."""
    relay = Relay(to_port)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
