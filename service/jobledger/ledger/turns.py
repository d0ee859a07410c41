"""Turns: however many streams have something to send, whoever waits for one answer hardly notices.

asyncio runs everything that is ready before it looks at the sockets again, and a call takes a dozen such
passes: its bytes, its handler, what Postgres answers. So chunks are written in one pass and then give way,
until nobody else has anything to do or their patience is over::

    passes of the loop    CHUNKS_A_PASS chunks │ calls │ calls │ … nothing to do │ CHUNKS_A_PASS chunks │ …
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Generator
from typing import Final

CHUNKS_A_PASS: Final = 4
"""A chunk of 64 KiB takes 0.1 to 0.2 ms to write; the passes in between cost a tenth of four."""

CHUNKS_BESIDE_CALLS: Final = 1
"""The same while somebody waits for an answer: it may come from Postgres meanwhile."""

PIECE_BYTES: Final = 64 * 1024
"""Of a longer chunk as much is written in a turn: 4 MiB would hold up everybody for 10 ms."""

PATIENCE_SECONDS: Final = 0.001
"""Processor time for which chunks give way to others who always have something to do."""

ARRIVAL_SECONDS: Final = 0.008
"""How long a new connection gives way to calls: to open a stream takes 2 ms. So all that the kernel keeps
waiting are taken within eight seconds, before their clients give up."""


class Turns:
    """Who may write a chunk now, in the order in which they asked. A turn is taken, never held."""

    def __init__(self) -> None:
        self._writing = True
        """Whether this pass is one for chunks."""

        self._most = self._left = CHUNKS_A_PASS
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arriving: deque[asyncio.Future[None]] = deque()
        self._arrivals_pause = False
        self._gave_way_at = 0.0
        self._counting = False
        self._calls = 0

    @contextlib.contextmanager
    def calling(self) -> Generator[None]:
        """While somebody waits for an answer."""
        self._calls += 1
        try:
            yield
        finally:
            self._answered()

    @contextlib.contextmanager
    def following(self) -> Generator[None]:
        """While what was taken for a call is a stream."""
        self._answered()
        try:
            yield
        finally:
            self._calls += 1

    async def take(self) -> None:
        """Wait for a turn; at once if few want one. Safe to cancel."""
        await self._turn(self._waiting, at_once=True)

    async def arrive(self) -> None:
        """Wait for the turn of a new connection: before all chunks, behind calls. Safe to cancel."""
        await self._turn(self._arriving, at_once=not self._calls)

    async def _turn(self, line: deque[asyncio.Future[None]], *, at_once: bool) -> None:
        self._count()
        if at_once and self._left > 0:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        await turn

    def _answered(self) -> None:
        self._calls -= 1
        if not self._calls and self._arriving:
            self._count()

    def _count(self) -> None:
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._counting = False
        if not self._writing:
            if not _others_are_ready() or time.thread_time() - self._gave_way_at >= PATIENCE_SECONDS:
                self._hand_out()
        elif self._left < self._most or self._may_arrive():
            self._writing, self._left = False, 0
            self._gave_way_at = time.thread_time()
        else:
            return
        self._count()

    def _hand_out(self) -> None:
        self._writing = True
        self._most = self._left = CHUNKS_BESIDE_CALLS if self._calls else CHUNKS_A_PASS
        if self._may_arrive() and self._give(self._arriving) and self._calls:
            self._arrivals_pause = True
            asyncio.get_running_loop().call_later(ARRIVAL_SECONDS, self._resume_arrivals)
        while self._left and self._give(self._waiting):
            pass

    def _may_arrive(self) -> bool:
        return bool(self._arriving) and (not self._calls or not self._arrivals_pause)

    def _resume_arrivals(self) -> None:
        self._arrivals_pause = False
        self._count()

    def _give(self, line: deque[asyncio.Future[None]]) -> bool:
        """Give a turn to the first in a line; whether there was anybody."""
        while line:
            turn = line.popleft()
            if not turn.done():  # else whoever waited was cancelled
                turn.set_result(None)
                self._left -= 1
                return True
        return False


def _others_are_ready() -> bool:
    """Whether the loop has something else to run.

    asyncio's own list, which it does not promise to keep: without it chunks give way for one pass.
    """
    return bool(getattr(asyncio.get_running_loop(), "_ready", ()))
