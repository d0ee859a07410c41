"""Memory that is freed stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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

CROWD = """
import ctypes, sys, threading
from jobledger import heap
if sys.argv[1] == "keep":
    heap.keep()
together = threading.Barrier(6)
def work():
    together.wait()
    bytes(1_000_000)
    together.wait()
threads = [threading.Thread(target=work) for _ in range(together.parties)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def _said(program: str, how: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program, how], check=True, capture_output=True, text=True
    ).stdout


def _faults(how: str) -> int:
    return int(_said(CHURN, how))


@needs_glibc
def test_many_threads_keep_no_more_than_one() -> None:
    assert _said(CROWD, "keep").count("<heap ") == 1


@needs_glibc
def test_memory_that_is_freed_is_not_faulted_in_again() -> None:
    assert _faults("keep") < 3 * PAGES_A_ROUND < ROUNDS * PAGES_A_ROUND / 2 < _faults("give back")
