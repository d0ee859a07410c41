"""Turns: however many streams have something to send, single calls wait for a few chunks and not for all.

asyncio runs everything that is ready before it looks at the sockets again. A thousand streams that come back
at once are a thousand chunks in each pass, and a call that needs five passes waits for five thousand.

::

    pass of the loop    sockets │ calls │ CHUNKS_A_PASS chunks │ sockets │ calls │ CHUNKS_A_PASS chunks │ …
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

CHUNKS_A_PASS: Final = 4
"""A chunk of 64 KiB takes 0.1 to 0.2 ms to write; looking at the sockets costs a tenth of four."""

PIECE_BYTES: Final = 64 * 1024
"""Of a longer chunk as much is written in a turn: 4 MiB would hold up everybody for 10 ms."""


class Turns:
    """Who may write a chunk now, in the order in which they asked. A turn is taken, never held."""

    def __init__(self) -> None:
        self._left = CHUNKS_A_PASS
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def take(self) -> None:
        """Wait for a turn; at once if few want one. Safe to cancel."""
        self._count()
        if self._left > 0:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _count(self) -> None:
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._counting = False
        self._left = CHUNKS_A_PASS
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its stream was cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < CHUNKS_A_PASS:
            self._count()
