"""Wake-ups between processes: NOTIFY after a commit, LISTEN on a connection that does nothing else.

A notification is only a hint: correctness rests on the poll (ledger.tail). Nothing may run on the
listening connection but LISTEN and its probe: it goes silent after a bare ``prepare()``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import asyncpg

from jobledger import errors
from jobledger.store import engine

HEAD_CHANNEL = "jobledger_head"
"""Payload: the last committed position."""

STREAM_CHANNEL = "jobledger_stream"
"""Payload: client id, a space, the id of its running stream."""

PROBE_SECONDS = 12.0
"""How often the connection is tried: a dead peer is not noticed otherwise."""

RETRY_SECONDS = (0.1, 5.0)
"""First and longest pause before connecting again."""

_log = logging.getLogger(__name__)


async def notify(connection: engine.Connection, channel: str, payload: str) -> bool:
    """Tell every listening process; outside of the append's transaction, whose commit it would slow.

    False if Postgres' queue is full, because some session that listens never ends its transaction. That must
    stop nothing: who is not told finds out with the next poll.
    """
    try:
        await connection.execute("select pg_notify($1, $2)", channel, payload)
    except asyncpg.ProgramLimitExceededError:
        return False
    return True


async def listen(
    dsn: str,
    *,
    on_head: Callable[[int], None],
    on_stream: Callable[[str, str], None],
    on_connected: Callable[[], None],
) -> None:
    """Listen for ever, over every loss of the connection; ends only by cancellation.

    ``on_connected`` runs after LISTEN took effect: what came before it must be read, not waited for.
    """
    pause, longest = RETRY_SECONDS
    while True:
        try:
            await _listen_once(dsn, on_head=on_head, on_stream=on_stream, on_connected=on_connected)
        except errors.DatabaseUnavailable as error:
            _log.warning("wake-ups between processes are interrupted, polling goes on: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
        else:
            pause = RETRY_SECONDS[0]


async def _listen_once(
    dsn: str,
    *,
    on_head: Callable[[int], None],
    on_stream: Callable[[str, str], None],
    on_connected: Callable[[], None],
) -> None:
    """Listen until the connection is lost, then return."""
    lost = asyncio.Event()

    def head(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        # Anybody in the database may notify; a payload that is none of ours is only a wake-up.
        on_head(int(text) if (text := str(payload)).isdecimal() else 0)

    def stream(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        client_id, _, stream_id = str(payload).rpartition(" ")
        on_stream(client_id, stream_id)

    connection = await engine.connect(dsn)
    try:
        connection.add_termination_listener(lambda _: lost.set())
        with engine.translated():
            await connection.add_listener(HEAD_CHANNEL, head)
            await connection.add_listener(STREAM_CHANNEL, stream)
            on_connected()
            while not lost.is_set():
                try:
                    async with asyncio.timeout(PROBE_SECONDS):
                        await lost.wait()
                except TimeoutError:
                    await connection.execute("select")
        _log.info("the listening connection was closed by the server")
    finally:
        connection.terminate()
