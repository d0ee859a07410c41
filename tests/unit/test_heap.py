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


def _faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", CHURN, how], check=True, capture_output=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_that_is_freed_is_not_faulted_in_again() -> None:
    assert _faults("keep") < 3 * PAGES_A_ROUND < ROUNDS * PAGES_A_ROUND / 2 < _faults("give back")
