"""What an auditor has: psql's rows, an outsider's verifier, and a real trace recorded as it happened."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeAlias, TypedDict
from zoneinfo import ZoneInfo

import asyncpg

from jobledger.ledger import admission, batch
from jobledger.model import chain, event
from jobledger.store import engine, eventlog
from jobledger.trace import events as trace_events
from jobledger.trace import generated, pods

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

VERIFIER = Path(__file__).parents[2] / "docs" / "verify.js"
PUBLISHER = "trace"
BATCH = 1_000
DOOR = admission.Admission(zone=ZoneInfo("Asia/Shanghai"), detail_limit_bytes=4 << 20)

Timed: TypeAlias = tuple[datetime, event.Submission]
"""An event and the moment at which it happened."""


class Verdict(TypedDict):
    """What the outsider's program prints."""

    ok: bool
    checked: int
    first_bad: int | None
    reason: str | None
    head: str


def node() -> str | None:
    """The program that runs the outsider's verifier; None if this machine has none."""
    return shutil.which("node")


async def outsider(connection: Connection, *arguments: str, first: int = 1) -> Verdict:
    """What docs/verify.js says of the rows, handed over as psql prints them."""
    rows = await connection.fetch(
        "select row_to_json(e)::text from public.job_events e where position >= $1 order by position", first
    )
    program = await asyncio.create_subprocess_exec(
        node() or "node", VERIFIER, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate("".join(row[0] + "\n" for row in rows).encode())
    verdict: Verdict = json.loads(printed)
    assert program.returncode == (0 if verdict["ok"] else 1)
    return verdict


async def spoil(connection: Connection, statement: str) -> None:
    """Change history as only the database's superuser can."""
    await connection.execute("alter table job_events disable trigger job_events_append_only")
    await connection.execute(statement)
    await connection.execute("alter table job_events enable always trigger job_events_append_only")


def trace() -> tuple[Sequence[Timed], bool]:
    """The trace's events by time, and whether it is the real one, which lies where TRACE says."""
    given = os.environ.get("JOBLEDGER_TRACE") or os.environ.get("TRACE")
    found = pods.read(Path(given)) if given else generated.generate(1_500, seed=1)
    timed = sorted((each for pod in found for each in trace_events._life(pod)), key=lambda each: each[0])
    return [
        (chain.EPOCH + timedelta(seconds=trace_events.EPOCH + at), event.Submission(signal=said))
        for at, said in timed
    ], bool(given)


async def record_as_it_happened(dsn: str, timed: Sequence[Timed]) -> None:
    """Record a trace with recorded_at as the trace has it: every row, and so every hash, is always the same.

    The appender's own steps, with another clock than Postgres'.
    """
    connection = await engine.connect_for_writing(dsn)
    try:
        for at in range(0, len(timed), BATCH):
            await eventlog.begin(connection)
            await _record(connection, timed[at : at + BATCH])
            await eventlog.commit(connection)
    finally:
        await connection.close()


async def _record(connection: engine.Own, timed: Sequence[Timed]) -> None:
    recording = batch.Batch(batch.Rules(default_region="default", event_limit_bytes=4_194_304))
    drafts = [DOOR.admit(submission, publisher=PUBLISHER) for _, submission in timed]
    await recording.ask(connection, drafts)
    for (moment, _), draft in zip(timed, drafts, strict=True):
        outcome = recording.record(draft, moment)
        assert isinstance(outcome, event.Receipt), outcome
    await recording.write(connection)
