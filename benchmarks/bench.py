"""All benchmarks, each beside its peer in the same run: ``make bench`` writes results.md and results.svg.

``FULL=1`` takes a log of ten million events; ``BENCH_SCALE=0.1`` a tenth of each count, to see that it runs.
What is printed last is what was written. A table that fails stands there with its reason, beside the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import append
import growth
import harness
import idle
import large
import live
import processes
import ranktables
import replay
import rest
import returning
import single

# The extra `bench` brings it; types are checked without.
mpl: Any = importlib.import_module("matplotlib")
pyplot: Any = importlib.import_module("matplotlib.pyplot")

HERE = Path(__file__).parent
PACKAGES = ("grpcio", "aiohttp", "nats-py", "asyncpg", "grpclib")

SECTION_MINUTES = 20
"""The most that a table may take, unless ``FULL`` is set; a whole run takes about half an hour."""

Tables = Mapping[str, Sequence[harness.Row] | str]
"""By title; a text says why there is no table."""


async def measure(scale: float, *, full: bool) -> AsyncGenerator[Tables]:
    """One table after the other, each with the machine for itself; what there is after each of them."""

    def scaled(count: int) -> int:
        return max(int(count * scale), 1000)

    seconds = max(10 * scale, 2)
    tables: dict[str, Sequence[harness.Row] | str] = {}
    for title, work in (
        ("Appends, beside pgbench", append.measure),
        ("One event a call, beside aiohttp's hello", lambda: single.measure(seconds / 2)),
        ("Rank tables of 20 KB", lambda: ranktables.measure(scaled(10_000))),
        ("Two processes on one Postgres, beside one", lambda: processes.measure(seconds / 2)),
        ("Replay and fan-out, beside NATS JetStream", lambda: replay.measure(scaled(100_000))),
        ("Everybody back at once", lambda: returning.measure(scaled(100_000))),
        ("Live delay", lambda: live.measure(max(int(20 * scale), 3))),
        ("Idle subscribers", lambda: idle.measure(scaled(10_000))),
        ("REST, beside aiohttp's hello", lambda: rest.measure(scaled(100_000))),
        ("A small job beside a large one", lambda: large.measure(seconds)),
        ("A large log", lambda: growth.measure(scaled(10_000_000 if full else 1_000_000))),
    ):
        print(f"{title} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            async with asyncio.timeout(None if full else SECTION_MINUTES * 60):
                tables[title] = await work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the others' results must not be lost
            tables[title] = f"Failed: {type(error).__name__}: {error}"
        print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        yield tables


def written(tables: Tables) -> str:
    """The tables as Markdown, with the machine and every version."""
    nats = subprocess.run(["/usr/sbin/nats-server", "-v"], capture_output=True, text=True, check=True).stdout
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    load = os.getloadavg()[2]
    told = (
        f"By `make bench`, {dt.datetime.now(dt.UTC):%Y-%m-%d}. {harness.machine()}. {nats.strip()}; "
        f"{', '.join(versions)}. Load over 15 minutes: {load:.1f}; beside other work, only ratios count."
    )
    lines = ["# Measured", "", told, "", "![Ratios](results.svg)"]
    for title, rows in tables.items():
        table = [rows] if isinstance(rows, str) else [harness.HEAD, *map(str, rows)]
        lines += ["", f"## {title}", "", *table]
    return "\n".join(lines) + "\n"


def plot(tables: Tables, path: Path) -> None:
    """Every ratio as a bar, beside the peer's 1."""
    measured = [table for table in tables.values() if not isinstance(table, str)]
    rows = [row for table in measured for row in table if row.ratio is not None]
    # So that the same figures make the same file.
    mpl.rcParams["svg.hashsalt"] = "jobledger"
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(rows) + 1))
    colours = ["#999999" if row.ratio == 1 else "#2a6f97" for row in rows]
    axes.barh([row.what for row in rows], [row.ratio or 0 for row in rows], color=colours)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("of the peer in the same run; grey is the peer")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


async def main() -> None:
    """Measure, write after each table, show; the exit status says whether all of them are there."""
    scale, full = float(os.environ.get("BENCH_SCALE", "1")), os.environ.get("FULL") == "1"
    text, failed = "", True
    async with contextlib.aclosing(measure(scale, full=full)) as growing:
        async for tables in growing:
            text = written(tables)
            (HERE / "results.md").write_text(text, encoding="utf-8")
            plot(tables, HERE / "results.svg")
            failed = any(isinstance(table, str) for table in tables.values())
    print(text)
    sys.exit(failed)


if __name__ == "__main__":
    asyncio.run(main())
