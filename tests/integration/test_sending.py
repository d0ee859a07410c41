"""What the appender asks of its driver beside statements: that Postgres gets a batch in one go."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from typing import Final

import pytest

from jobledger import errors
from jobledger.store import engine

LARGE: Final = 64 * 1024 * 1024
"""More than any system takes of a socket's at once."""

STATEMENT: Final = "select octet_length($1::bytea)"


@pytest.fixture
async def writing(database: str) -> AsyncIterator[engine.Own]:
    connected = await engine.connect_for_writing(database)
    yield connected
    await connected.close()


async def test_what_the_kernel_does_not_take_is_seen_until_it_is_sent(writing: engine.Own) -> None:
    await writing.execute(STATEMENT, b"")  # from now on it is prepared: the next one is sent at once
    assert engine.unsent_bytes(writing) == 0
    running = asyncio.create_task(writing.execute(STATEMENT, bytes(LARGE)))
    await asyncio.sleep(0)
    assert 0 < engine.unsent_bytes(writing) < LARGE
    await running
    assert engine.unsent_bytes(writing) == 0


async def test_connection_that_is_lost_as_it_is_made_is_postgres_being_away(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: engine.Own) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(engine, "_send_much_at_once", lost)
    with pytest.raises(errors.DatabaseUnavailable):
        await engine.connect_for_writing(database)


async def test_unix_socket_takes_more_than_the_system_has_it_take(writing: engine.Own) -> None:
    transport = engine._transport(writing)
    assert transport is not None
    used: socket.socket = transport.get_extra_info("socket")
    with socket.socket(socket.AF_UNIX) as plain:
        default = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert used.family is socket.AF_UNIX
    assert used.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > default
