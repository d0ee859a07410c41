"""The host's time zone reaches no byte of an answer or of the log."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support import rendering


def rendered(host_zone: str) -> tuple[str, str]:
    """What a process in this zone calls its zone, and what it stores and answers."""
    environment = {**os.environ, "TZ": host_zone}
    program = [sys.executable, rendering.__file__]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=60)
    name, rest = done.stdout.split("\n", 1)
    return name, rest


def test_hosts_zone_changes_neither_answer_nor_log() -> None:
    zones = [rendered(zone) for zone in ("Asia/Kolkata", "UTC", "America/New_York")]

    assert len({name for name, _ in zones}) == 3
    assert len({rest for _, rest in zones}) == 1
    assert '"createTime":"2023-11-05 01:30:00","finishTime":"2023-11-05 14:30:00"' in zones[0][1]
