"""Wake-ups between processes: NOTIFY after a commit, LISTEN on a connection that does nothing else.

A notification is only a hint: correctness rests on the poll (ledger.tail). Nothing may run on the
listening connection but LISTEN and its probe: it goes silent after a bare ``prepare()``.

That LISTEN succeeded proves nothing. A pooler in transaction mode answers it, gives the session away, and
drops what comes for it; what one sends to oneself arrives even so. So another connection sends the probe.

The probes also tell who else listens. While that is nobody, nobody needs to be told of a commit.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

import asyncpg

from jobledger import errors
from jobledger.store import engine

HEAD_CHANNEL = "jobledger_head"
"""Payload: the last committed position."""

STREAM_CHANNEL = "jobledger_stream"
"""Payload: client id, a space, the id of its running stream."""

PROBE_CHANNEL = "jobledger_probe"
"""Payload: a word of the connection that it is for, to hear whether it arrives."""

PROBE_SECONDS = 12.0
"""How often the connection is tried: a dead peer is not noticed otherwise."""

ARRIVAL_SECONDS = 5.0
"""How long a notification may take; on a busy machine it takes milliseconds."""

GONE_SECONDS = 3 * PROBE_SECONDS
"""A process whose probe was not heard for so long is no more."""

RETRY_SECONDS = (0.1, 5.0)
"""First and longest pause before connecting again."""

_POOLED: Final = (
    "Is a pooler in transaction mode between, as pgbouncer? Name Postgres itself in JOBLEDGER_DATABASE_URL"
)
_QUEUE_FULL: Final = (
    "Postgres' NOTIFY queue is full: look in pg_stat_activity for a session that is idle in a transaction"
)

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


class Listener:
    """Hears what other processes notify.

    ``on_connected`` runs after LISTEN took effect: what came before it must be read, not waited for.
    ``pool`` sends the probes.
    """

    def __init__(
        self,
        dsn: str,
        pool: engine.ReadPool,
        *,
        on_head: Callable[[int], None],
        on_stream: Callable[[str, str], None],
        on_connected: Callable[[], None],
    ) -> None:
        self._dsn = dsn
        self._pool = pool
        self._on_head = on_head
        self._on_stream = on_stream
        self._on_connected = on_connected
        self.hears: bool | None = None
        """Whether the last probe arrived, False meaning that this process polls; None while not connected."""

        self._word = ""
        self._arrived = asyncio.Event()
        self._sent = True
        self._newcomer = asyncio.Event()
        self._connected_at = 0.0
        self._others: Mapping[str, float] = {}

    @property
    def alone(self) -> bool:
        """Whether surely no other process listens; not known before the others had time to answer."""
        now = asyncio.get_running_loop().time()
        heard_at = max(self._others.values(), default=-math.inf)
        settled = now > self._connected_at + ARRIVAL_SECONDS and now > heard_at + GONE_SECONDS
        return self.hears is True and settled

    async def run(self) -> None:
        """Listen for ever, over every loss of the connection; ends only by cancellation."""
        pause, longest = RETRY_SECONDS
        while True:
            try:
                await self._listen()
            except errors.Unavailable as error:
                _log.warning("wake-ups between processes are interrupted, polling goes on: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, longest)
            else:
                pause = RETRY_SECONDS[0]

    async def _listen(self) -> None:
        """Listen until the connection is lost, then return."""
        lost = asyncio.Event()
        # A new one each time: it may have missed the others for so long that they must answer, as a newcomer.
        self._word = uuid4().hex
        connection = await engine.connect(self._dsn)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            with engine.translated():
                await connection.add_listener(HEAD_CHANNEL, self._head)
                await connection.add_listener(STREAM_CHANNEL, self._stream)
                await connection.add_listener(PROBE_CHANNEL, self._probe)
                self._connected_at = asyncio.get_running_loop().time()
                self._on_connected()
                while not lost.is_set():
                    self._newcomer.clear()
                    self._note(await self._probed(lost))
                    # Who is new must hear of this process: the next probe is for it.
                    await _first_of(PROBE_SECONDS, lost, self._newcomer)
                    if not lost.is_set():
                        # Once more changes nothing, but finds out whether the peer is there.
                        await connection.execute(f"listen {PROBE_CHANNEL}")
            _log.info("the listening connection was closed by the server")
        finally:
            self.hears = None
            connection.terminate()

    async def _probed(self, lost: asyncio.Event) -> bool:
        """Whether a notification of another connection arrives."""
        self._arrived.clear()
        async with self._pool.connection() as connection:
            self._sent = await notify(connection, PROBE_CHANNEL, self._word)
        await _first_of(ARRIVAL_SECONDS, self._arrived, lost)
        return self._arrived.is_set()

    def _note(self, hears: bool) -> None:  # noqa: FBT001 - what was found, not how to do it
        if not hears and self.hears is not False:
            _log.warning(
                "poll-only: notifications of other processes do not arrive, their events are seen with the "
                "next poll. %s",
                _POOLED if self._sent else _QUEUE_FULL,
            )
        elif hears and self.hears is False:
            _log.info("notifications of other processes arrive again")
        self.hears = hears

    def _head(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        # Anybody in the database may notify; a payload that is none of ours is only a wake-up.
        self._on_head(int(text) if (text := str(payload)).isdecimal() else 0)

    def _stream(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        client_id, _, stream_id = str(payload).rpartition(" ")
        self._on_stream(client_id, stream_id)

    def _probe(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        word, now = str(payload), asyncio.get_running_loop().time()
        if word == self._word:
            self._arrived.set()
            return
        if word not in self._others:
            self._newcomer.set()
        still = {other: at for other, at in self._others.items() if at + GONE_SECONDS > now}
        self._others = {**still, word: now}


async def _first_of(seconds: float, *happenings: asyncio.Event) -> None:
    """Wait until one of them is set, or for so many seconds."""
    waiting = [asyncio.create_task(each.wait()) for each in happenings]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
