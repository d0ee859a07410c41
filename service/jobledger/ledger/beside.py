"""Work on large texts goes beside the loop, into a thread, so that nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

INLINE_CHARACTERS: Final = 64 * 1024
"""Texts up to which work is done on the loop, where it takes a few milliseconds and a thread's turn no less.
Masking a job of 5,000 pods takes up to a second."""

T = TypeVar("T")


async def the_loop(work: Callable[[], T], characters: int) -> T:
    """What the work gives, on texts of so many characters; whatever it raises comes out.

    Safe to cancel: the work then ends for nobody.
    """
    return work() if characters <= INLINE_CHARACTERS else await asyncio.to_thread(work)
