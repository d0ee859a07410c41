"""Freed memory is kept for what comes next, instead of given back to the kernel between two batches.

A batch of rank tables is megabytes, several times over: as received, as text, as the driver sends it. glibc
gives such blocks back as soon as they are free, and the next batch's pages are faulted in and cleared anew,
at a quarter of the time that an event of 20 KB takes.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Free memory at the end of the heap that a process keeps: eight batches of the appender's."""

MAPPED_BYTES: Final = 32 * 1024 * 1024
"""Size from which a block is a mapping of its own, which goes back when it is freed; glibc takes no more."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""As in glibc's malloc.h."""


def keep() -> bool:
    """Keep it from now on, for the whole process; False where the C library is another than glibc.

    Call it before there are threads: else each has a heap of its own, and keeps as much.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, MAPPED_BYTES), (_TRIM_THRESHOLD, KEPT_BYTES))
    return all(mallopt(*each) for each in wanted)
