"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

POLL_SECONDS = 0.02
"""Between two tries: below what a person notices, above what keeps a core busy."""


@overload
async def eventually(assertion: Callable[[], Awaitable[T]], within_seconds: float = ...) -> T: ...


@overload
async def eventually(assertion: Callable[[], T], within_seconds: float = ...) -> T: ...


async def eventually(assertion: Callable[[], object], within_seconds: float = 60.0) -> object:
    """What the assertion returns once it no longer raises AssertionError; its last error after that time.

    The assertion may be a plain function or a coroutine function.
    """
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            result = assertion()
            return await result if inspect.isawaitable(result) else result
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(POLL_SECONDS)
