"""Memory that is freed stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from jobledger import heap

PAGES_A_ROUND = 4_000
ROUNDS = 20

CHURN = f"""
import resource, sys
from jobledger import heap
if sys.argv[1] == "keep":
    heap.keep()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    blocks = [bytes(50_000) for _ in range({PAGES_A_ROUND} * 4096 // 50_000)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

THREADS = 6
BYTES_A_THREAD = 48 * 1024 * 1024

CROWD = f"""
import os, pathlib, threading
from concurrent.futures import ThreadPoolExecutor
from jobledger import heap
heap.keep()
together = threading.Barrier({THREADS})
def work(_):
    together.wait()
    blocks = [b"x" * 1_000_000 for _ in range({BYTES_A_THREAD} // 1_000_000)]
    together.wait()
with ThreadPoolExecutor({THREADS}) as threads:
    list(threads.map(work, range({THREADS})))
    print(int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def _said(program: str, *arguments: str) -> int:
    return int(
        subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True).stdout
    )


def _faults(how: str) -> int:
    return _said(CHURN, how)


@needs_glibc
def test_many_threads_keep_no_more_than_one() -> None:
    assert _said(CROWD) < heap.KEPT_BYTES + BYTES_A_THREAD < THREADS * BYTES_A_THREAD


@needs_glibc
def test_memory_that_is_freed_is_not_faulted_in_again() -> None:
    assert _faults("keep") < 3 * PAGES_A_ROUND < ROUNDS * PAGES_A_ROUND / 2 < _faults("give back")
