"""A crowd: many who wait for the same thing, each no longer than it likes, at the price of a future each."""

from __future__ import annotations

import asyncio


class Crowd:
    """Who waits, in the order in which they came; those who wait equally long share one timer."""

    def __init__(self) -> None:
        self._ranks: dict[float, _Rank] = {}

    async def wait(self, *, timeout_seconds: float) -> bool:
        """Whether it happened within the time. Safe to cancel."""
        rank = self._ranks.get(timeout_seconds)
        if rank is None:
            rank = self._ranks[timeout_seconds] = _Rank(timeout_seconds)
        return await rank.wait()

    def wake(self) -> None:
        """It happened: let all of them go on."""
        for rank in self._ranks.values():
            rank.wake()


class _Rank:
    """Those who wait equally long: whoever came first gives up first."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._waiting: dict[asyncio.Future[bool], float] = {}
        """Each with the loop's time at which it gives up."""

        self._timed = False

    async def wait(self) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[waiter] = gives_up = loop.time() + self._patience_seconds
        if not self._timed:
            self._timed = True
            loop.call_at(gives_up, self._look)
        try:
            return await waiter
        finally:
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(True)

    def _look(self) -> None:
        """Send those away whose time is over; look again when that of the next one is."""
        self._timed = False
        loop = asyncio.get_running_loop()
        now = loop.time()
        for waiter, gives_up in self._waiting.items():
            if gives_up > now:
                self._timed = True
                loop.call_at(gives_up, self._look)
                return
            if not waiter.done():
                waiter.set_result(False)
