"""What decides about jobs, looked up for all callers that ask in the same moment with one statement.

::

    asks ─▶ waiting ids ──(a statement is under way)──▶ next statement: job_id = any (…)
"""

from __future__ import annotations

import asyncio
from typing import Final

from jobledger import errors
from jobledger.store import engine, jobs

MOST_WAITING: Final = 10_000
"""Callers that may wait; a second's worth at full rate. More are told to come back."""

LANES: Final = 2
"""Statements at a time: one is on its way while the next one's callers gather."""


class Lookups:
    """Shares statements between callers."""

    def __init__(self, pool: engine.ReadPool) -> None:
        self._pool = pool
        self._waiting: dict[str, asyncio.Future[jobs.Head | None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def find(self, job_id: str) -> jobs.Head | None:
        """What is known of a job; None for an unknown id. Safe to cancel.

        Raises:
            errors.Overloaded: Too many wait, or no connection could be had in time.
            errors.DatabaseUnavailable: Postgres is away.
        """
        waiting = self._waiting.get(job_id)
        if waiting is None:
            if len(self._waiting) >= MOST_WAITING:
                raise errors.Overloaded(f"{MOST_WAITING} reads are waiting")
            waiting = self._waiting[job_id] = asyncio.get_running_loop().create_future()
            waiting.add_done_callback(_retrieved)
            if len(self._running) < LANES:
                lane = asyncio.create_task(self._run())
                self._running.add(lane)
        return await asyncio.shield(waiting)

    async def _run(self) -> None:
        try:
            await self._answer()
        finally:
            # In the same step as the last look at who waits: a callback comes later, and whoever asked in
            # between took this lane for a running one and waited until somebody else asked.
            lane = asyncio.current_task()
            assert lane is not None  # noqa: S101 - a coroutine runs in a task
            self._running.discard(lane)

    async def _answer(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            try:
                async with self._pool.connection(
                    patience_seconds=engine.CALLER_PATIENCE_SECONDS
                ) as connection:
                    found = await jobs.heads(connection, asked)
            except BaseException as error:
                for waiting in asked.values():
                    waiting.set_exception(
                        error if isinstance(error, Exception) else errors.Unavailable("try again")
                    )
                if not isinstance(error, Exception):
                    raise
            else:
                for job_id, waiting in asked.items():
                    waiting.set_result(found.get(job_id))


def _retrieved(waiting: asyncio.Future[jobs.Head | None]) -> None:
    """Mark an error as seen: its callers got it, and if all were cancelled nobody needs it."""
    if not waiting.cancelled():
        waiting.exception()
