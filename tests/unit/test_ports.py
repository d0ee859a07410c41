"""Ports: however many connect at once, each is accepted in its turn, and a failure is not the last."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator

import pytest

from jobledger import ports
from tests.support import polling

CLIENTS = 20


class _Clients:
    """Connections that are wanted, and those that were made."""

    def __init__(self, listener: socket.socket) -> None:
        self.made: list[asyncio.BaseTransport] = []
        self.turns = asyncio.Semaphore(0)
        self._address = listener.getsockname()
        self.accepting = ports.accepting(listener, self._protocol, turn=self._turn)
        self.sockets: list[socket.socket] = []

    def connect(self, count: int) -> None:
        self.sockets += [socket.create_connection(self._address) for _ in range(count)]

    async def made_are(self, count: int) -> None:
        def as_many() -> None:
            assert len(self.made) == count

        await polling.eventually(as_many)

    async def _turn(self) -> None:
        await self.turns.acquire()

    def _protocol(self) -> asyncio.Protocol:
        made = self.made

        class Noting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(transport)

        return Noting()


@contextlib.asynccontextmanager
async def clients() -> AsyncGenerator[_Clients]:
    client = _Clients(await ports.listening("127.0.0.1", 0))
    try:
        yield client
    finally:
        client.accepting.cancel()
        await asyncio.wait([client.accepting])
        for transport in client.made:
            transport.close()
        for each in client.sockets:
            each.close()


async def test_connections_are_accepted_each_in_its_turn() -> None:
    async with clients() as client:
        client.connect(CLIENTS)
        for turn in range(CLIENTS):
            assert len(client.made) == turn
            client.turns.release()
            await client.made_are(turn + 1)


async def test_nobody_listens_any_more_once_accepting_was_cancelled() -> None:
    async with clients() as client:
        client.connect(1)
        await asyncio.sleep(0)
        client.accepting.cancel()
        await asyncio.wait([client.accepting])

        with pytest.raises(ConnectionRefusedError):
            client.connect(1)
        assert not client.made


async def test_connections_are_accepted_again_after_descriptors_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    accept, failed = loop.sock_accept, list[OSError]()

    async def failing(listener: socket.socket) -> object:
        if not failed:
            failed.append(OSError(errno.EMFILE, "too many open files"))
            raise failed[0]
        return await accept(listener)

    monkeypatch.setattr(ports, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "sock_accept", failing)
    async with clients() as client:
        client.turns.release()
        client.connect(1)
        await client.made_are(1)

    assert failed


async def test_connection_that_cannot_be_served_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async with clients() as client:
        with monkeypatch.context() as patch:
            loop, failed = asyncio.get_running_loop(), asyncio.Event()

            async def failing(*_: object) -> None:
                failed.set()
                raise RuntimeError

            patch.setattr(loop, "connect_accepted_socket", failing)
            client.turns.release()
            client.connect(1)
            await failed.wait()
        client.turns.release()
        client.connect(1)
        await client.made_are(1)
