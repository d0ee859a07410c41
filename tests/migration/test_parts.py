"""Migration 0005 makes rows right that were folded as if every signal were whole."""

from __future__ import annotations

from pathlib import Path

import asyncpg

from tests.support import events, ledgers

FILE = Path(__file__).parents[2] / "migrations" / "versions" / "0005_parts" / "parts.sql"

# What the fold before made of jobs whose newest add is a part.
AS_BEFORE = """
    update jobs set arriving = null, signal_positions = array[newest.position],
        hccl_digest = sha256(convert_to(newest.hccl, 'UTF8'))
    from (
        select distinct on (job_id) job_id, position, hccl from job_events
        where operator = 'add' order by job_id, position desc
    ) as newest
    where newest.job_id = jobs.job_id and jobs.arriving is not null
"""


async def test_jobs_whose_newest_add_is_a_part_are_made_right(
    database: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.part(1, "10.0.0.1", job_id="waits"))
        await ledger.receipts(*(events.part(n, f"10.0.0.{n}", job_id="complete") for n in (1, 0)))
        await ledger.receipts(*(events.part(n, f"10.0.0.{n}", job_id="goes-on") for n in (0, 1, 1)))
        await ledger.receipts(
            events.submission("after-whole"), events.part(0, "10.0.0.1", job_id="after-whole")
        )
        await ledger.receipts(events.part(0, "10.0.0.1", job_id="nowhere", cm_index=""))
        await ledger.receipts(events.part(0, "10.0.0.1", job_id="ended"), events.deletion("ended"))
        await ledger.receipts(events.submission("whole"), events.submission("total", total="3"))
    right = await connection.fetch("select * from jobs order by job_id")
    assert await connection.execute(AS_BEFORE) == "UPDATE 6"

    made = await connection.execute(FILE.read_text().split("\n----\n")[-1])

    assert made == "UPDATE 6"
    assert await connection.fetch("select * from jobs order by job_id") == right
