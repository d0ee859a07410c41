"""A TCP relay that can cut what goes through it, as a crash or a pulled cable does: without a word."""

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

    def cut(self) -> None:
        """Ends every connection now; new ones are taken as before."""
        for writer in self._open:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until either end is gone."""
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._open |= {writer, there}
        await asyncio.gather(_pump(reader, there), _pump(there_reader, writer))
        self._open -= {writer, there}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
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
