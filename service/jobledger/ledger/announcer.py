"""Tells other processes of commits: after the commit, debounced, the position alone.

NOTIFY inside the append transaction takes a lock that all commits of the cluster wait for; a hundred
listeners cut throughput by five. A process that is alone tells nobody: for a lone publisher that would cost a
quarter of the service's time, at the moment when its next event comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from jobledger import errors
from jobledger.store import engine, listener

DEBOUNCE_SECONDS: Final = 0.005
"""Between two notifications: a subscriber at another process waits this much longer at most."""

_log = logging.getLogger(__name__)


class Announcer:
    """Sends the newest position that this process committed, unless it is ``alone``."""

    def __init__(self, pool: engine.ReadPool, *, alone: Callable[[], bool]) -> None:
        self._pool = pool
        self._alone = alone
        self._head = 0
        self._sent = True
        self._committed = asyncio.Event()

    def committed(self, head: int) -> None:
        """A commit of this process moved the head."""
        self._head = head
        self._committed.set()

    async def run(self) -> None:
        """Announce for ever; wakes on a commit. One that cannot be sent is not missed: others poll."""
        while True:
            await self._committed.wait()
            self._committed.clear()
            if self._alone():
                continue
            try:
                async with self._pool.connection() as connection:
                    self._note(await listener.notify(connection, listener.HEAD_CHANNEL, str(self._head)))
            except errors.Unavailable as error:
                _log.debug("position %d was not announced: %s", self._head, error)
            await asyncio.sleep(DEBOUNCE_SECONDS)

    def _note(self, sent: bool) -> None:  # noqa: FBT001 - what happened, not how to do it
        if self._sent and not sent:
            _log.warning(
                "Postgres' NOTIFY queue is full, other processes see events with their next poll; look in "
                "pg_stat_activity for a session that is idle in a transaction"
            )
        elif sent and not self._sent:
            _log.info("Postgres' NOTIFY queue takes notifications again")
        self._sent = sent
