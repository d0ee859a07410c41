"""All benchmarks, each beside its peer in the same run: ``make bench`` writes results.md and results.svg.

``FULL=1`` takes a log of ten million events and ten thousand subscribers; ``BENCH_SCALE=0.1`` a tenth of
each count, to see that it runs. What is printed last is what was written.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import append
import growth
import harness
import idle
import live
import replay
import rest

# The extra `bench` brings it; types are checked without.
mpl: Any = importlib.import_module("matplotlib")
pyplot: Any = importlib.import_module("matplotlib.pyplot")

HERE = Path(__file__).parent
PACKAGES = ("grpcio", "aiohttp", "nats-py", "asyncpg", "grpclib")

Tables = Mapping[str, Sequence[harness.Row]]


async def measure(scale: float, *, full: bool) -> Tables:
    """One table after the other: each has the machine for itself."""

    def scaled(count: int) -> int:
        return max(int(count * scale), 1000)

    tables: dict[str, Sequence[harness.Row]] = {}
    for title, work in (
        ("Appends, beside pgbench", append.measure),
        ("Replay and fan-out, beside NATS JetStream", lambda: replay.measure(scaled(100_000))),
        ("Live delay", lambda: live.measure(max(int(20 * scale), 3))),
        ("Idle subscribers", lambda: idle.measure(scaled(10_000 if full else 5_000))),
        ("REST, beside aiohttp's hello", lambda: rest.measure(scaled(1_000_000))),
        ("A large log", lambda: growth.measure(scaled(10_000_000 if full else 1_000_000))),
    ):
        print(f"{title} ...", file=sys.stderr, flush=True)
        tables[title] = await work()
    return tables


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
        lines += ["", f"## {title}", "", harness.HEAD, *map(str, rows)]
    return "\n".join(lines) + "\n"


def plot(tables: Tables, path: Path) -> None:
    """Every ratio as a bar, beside the peer's 1."""
    rows = [row for table in tables.values() for row in table if row.ratio is not None]
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
    """Measure, write, show."""
    tables = await measure(float(os.environ.get("BENCH_SCALE", "1")), full=os.environ.get("FULL") == "1")
    text = written(tables)
    (HERE / "results.md").write_text(text, encoding="utf-8")
    plot(tables, HERE / "results.svg")
    print(text)


if __name__ == "__main__":
    asyncio.run(main())
