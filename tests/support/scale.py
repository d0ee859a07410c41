"""How much of something a test takes: a little as a rule, all of it where somebody asks."""

from __future__ import annotations

import os


def count(name: str, usual: int) -> int:
    """``JOBLEDGER_TEST_<name>``, else what is usual."""
    return int(os.environ.get(f"JOBLEDGER_TEST_{name}", usual))
