"""The cases whose figures are too large for CI, at those figures: ``make cases``; ``make soak`` ends with it.

    make cases                  all of them, one after the other
    make cases ARGS='19 21'     some, by number

They are tests of the suite, which take a little of each there. A case is passed when all of its tests ran and
passed; what else they said is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).parents[1]

LIMIT_SECONDS = 300
"""How long a test may take, of those that CI gives three minutes: a busy machine is no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case, and the test that tries it."""

    number: int
    what: str
    """With its figures."""

    test: str
    """Its file, and its function's name or the beginning of that."""

    scale: Mapping[str, int] = field(default_factory=dict[str, int])
    """What the test takes, by the names that it gives to ``tests.support.scale``; empty if CI takes all."""

    limit_seconds: int = LIMIT_SECONDS


CASES = (
    Case(
        number=2,
        what="32 writers that pause and roll back inside their transactions, 100,000 events",
        test="integration/test_reading.py::test_concurrent_writers_with_pauses_and_rollbacks",
        scale={"EVENTS_A_WRITER": 3_125},
        limit_seconds=3_600,
    ),
    Case(
        number=4,
        what="a write transaction that idles elsewhere for three minutes, each event in less than a second",
        test="integration/test_reading.py::test_idle_writer_in_another_database",
        scale={"HELD_SECONDS": 180, "DELAY_SECONDS": 1},
    ),
    Case(
        number=5,
        what="a slow and a fast append after a minute of silence",
        test="integration/test_reading.py::test_slow_and_fast_append_after_idleness",
        scale={"IDLE_SECONDS": 60},
    ),
    Case(
        number=16,
        what="a server stops: 1,000 streams hear of it within a second",
        test="acceptance/test_shutdown.py::test_sigterm_tells_1_000_streams",
        scale={"TOLD_SECONDS": 1},
    ),
    Case(
        number=18,
        what="a server stands still for 60 s",
        test="acceptance/test_shutdown.py::test_process_that_was_stopped",
        scale={"STOPPED_SECONDS": 60},
    ),
    Case(
        number=19,
        what="a subscriber sleeps ten minutes in mid-stream",
        test="acceptance/test_stalled_reader.py::test_stalled_readers",
        scale={"STALLED": 1, "ASLEEP_SECONDS": 600},
        limit_seconds=1_200,
    ),
    Case(
        number=20,
        what="the tail is behind by more than ten seconds",
        test="acceptance/test_stalled_reader.py::test_tail_that_falls_behind",
        scale={"BEHIND_SECONDS": 10},
    ),
    Case(
        number=21,
        what="500 stalled readers of 60 MB each",
        test="acceptance/test_stalled_reader.py::test_stalled_readers",
        scale={"STALLED": 500},
        limit_seconds=1_200,
    ),
    Case(
        number=21,
        what="1,000 subscribers return at once, by resume and by snapshot",
        test="acceptance/test_return_of_many.py::test_subscribers_that_return_at_once",
        scale={"SUBSCRIBERS": 1_000},
        limit_seconds=1_200,
    ),
    Case(
        number=22,
        what="20,000 invalid calls, and 20,000 opened and reset, on one connection",
        test="integration/test_rpc_transport_frames.py::test_20_000",
    ),
    Case(
        number=23,
        what="a client pings every 3 s for a minute",
        test="integration/test_rpc_transport_streams.py::test_client_that_half_closes_and_pings",
        scale={"PING_SECONDS": 3},
    ),
    Case(
        number=25,
        what="10,000 calls cancelled at random",
        test="acceptance/test_cancellation.py::test_calls_cancelled_at_random",
        scale={"CANCELLED": 10_000},
        limit_seconds=1_200,
    ),
    Case(
        number=27,
        what="sessions terminated at random for five minutes",
        test="acceptance/test_faults_postgres.py::test_sessions_terminated_at_random",
        scale={"TERMINATING_SECONDS": 300},
        limit_seconds=900,
    ),
    Case(
        number=30,
        what="the queue of notifications is full, all 8 GB of it",
        test="acceptance/test_faults_postgres.py::test_full_notify_queue",
        scale={"NOTIFY_PAGES": 1_048_576},
        limit_seconds=1_800,
    ),
)


def main(chosen: list[str]) -> None:
    """Run them, and tell of each."""
    cases = [case for case in CASES if not chosen or str(case.number) in chosen]
    print(f"{len(cases)} cases, each at its own figures:", flush=True)
    failed = 0
    for case in cases:
        print(f"case {case.number:2}: {case.what} ...", end=" ", flush=True)
        began = time.monotonic()
        said = _tried(case)
        if said is None:
            print(f"passed in {time.monotonic() - began:.0f} s", flush=True)
        else:
            failed += 1
            print(f"FAILED\n{said}", flush=True)
    if failed or not cases:
        raise SystemExit(f"{failed} of {len(cases)} cases failed")
    print(f"{len(cases)} of {len(cases)} passed")


def _tried(case: Case) -> str | None:
    """What pytest said, unless something ran and all of it passed."""
    path, _, name = case.test.partition("::")
    chosen = (f"tests/{path}", "-k", name, "-p", "no:cacheprovider", "--timeout", str(case.limit_seconds))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *chosen],
        cwd=TOP,
        env={**os.environ, **{f"JOBLEDGER_TEST_{key}": str(value) for key, value in case.scale.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    told = ran.stdout.splitlines()[-1] if ran.stdout else ""
    passed = ran.returncode == 0 and re.search(r"\d+ passed", told) and "skipped" not in told
    return None if passed else ran.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
