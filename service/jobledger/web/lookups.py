"""What is known of jobs, looked up for all callers that ask in the same moment with one statement.

::

    asks ─▶ waiting ids ──(a lane's statement is under way)──▶ its next one: job_id = any (…)

A lane keeps its connection for a moment if others can have one: to borrow one takes longer than to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from jobledger import errors
from jobledger.store import engine

MOST_WAITING: Final = 10_000
"""Callers that may wait; a second's worth at full rate. More are told to come back."""

TOGETHER: Final = 100
"""Ids of one statement. Few enough that an answer of small jobs is read in milliseconds; what waits beyond
is for a second lane."""

LANES: Final = 2
"""Statements at a time. One for as long as it can take all who wait: the fuller, the less each costs."""

LINGER_SECONDS: Final = 0.02
"""How long a lane waits for the next who asks before it gives its connection back."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Statement(Protocol[T_co]):
    """What finds jobs by their ids; it leaves out those that it does not find."""

    async def __call__(
        self, connection: engine.Connection, job_ids: Collection[str], /
    ) -> Mapping[str, T_co]:
        """What was found, by id."""
        ...


class Lookups(Generic[T]):
    """Shares a statement between callers."""

    def __init__(self, pool: engine.ReadPool, statement: Statement[T]) -> None:
        self._pool = pool
        self._statement = statement
        self._waiting: list[tuple[str, asyncio.Future[T | None]]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._connected = 0
        self._asked = asyncio.Event()

    async def find(self, job_id: str) -> T | None:
        """What the statement finds of a job; None if nothing. Safe to cancel.

        Raises:
            errors.Overloaded: Too many wait, or no connection could be had in time.
            errors.DatabaseUnavailable: Postgres is away.
        """
        if len(self._waiting) >= MOST_WAITING:
            raise errors.Overloaded(f"{MOST_WAITING} reads are waiting")
        found: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((job_id, found))
        self._asked.set()
        if len(self._running) < LANES and len(self._waiting) > len(self._running) * TOGETHER:
            self._running.add(asyncio.create_task(self._run()))
        return await found

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._answer()
        finally:
            # In the same step as the last look at who waits: a callback comes later, and whoever asked in
            # between took this lane for a running one and waited until somebody else asked.
            lane = asyncio.current_task()
            assert lane is not None  # noqa: S101 - a coroutine runs in a task
            self._running.discard(lane)

    async def _answer(self) -> None:
        """Answer until nobody asks any more, on one connection; what fails is told to those it was for."""
        asked: Sequence[tuple[str, asyncio.Future[T | None]]] = ()
        try:
            async with self._pool.connection(patience_seconds=engine.CALLER_PATIENCE_SECONDS) as connection:
                self._connected += 1
                try:
                    while await self._somebody_asks() and not connection.is_closed():
                        asked = self._next()
                        found = await self._statement(connection, {job_id for job_id, _ in asked})
                        for job_id, waiting in asked:
                            # A caller that went has cancelled it.
                            if not waiting.done():
                                waiting.set_result(found.get(job_id))
                finally:
                    self._connected -= 1
        except BaseException as error:
            told = error if isinstance(error, Exception) else errors.Unavailable("try again")
            if not asked and not self._connected:
                # No connection was to be had, for nobody: all who wait hear it, not a hundred a second.
                asked, self._waiting = self._waiting, []
            for _, waiting in asked or self._next():
                if not waiting.done():
                    waiting.set_exception(told)
            if not isinstance(error, Exception):
                raise

    async def _somebody_asks(self) -> bool:
        """Whether somebody waits, now or in a moment."""
        if not self._waiting and self._pool.has_more:
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._asked.wait()
        return bool(self._waiting)

    def _next(self) -> Sequence[tuple[str, asyncio.Future[T | None]]]:
        asked, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
        return asked
