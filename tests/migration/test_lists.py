"""Migration 0004 fills what lists filter and sort by as the appender would have."""

from __future__ import annotations

import asyncpg

from tests.support import events, ledgers, migrations

AS_BEFORE = """
    update jobs set finish_time = null, live = true, shown_name = '', shown_status = '', train_frame = '',
        queue_id = '', resource_group_id = ''
"""


async def test_rows_that_were_there_are_filled_as_new_ones_are(
    database: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    described = {"name": "训练-🚀", "queueID": "q", "resourceGroupID": "g", "trainFrame": "Pytorch"}
    finished = {"status": "Succeeded", "finishTime": "2023-10-13 11:22:01"}
    async with ledgers.running(database) as ledger:
        await ledger.receipts(
            events.submission("plain"),
            events.submission("described", detail=described),
            events.submission("own-word", detail={"status": "排队"}),
            events.submission("finished", job_status="complete", detail=finished),
            events.submission("failed", job_status="failed", delete_time="1700000009"),
            events.submission("ended"),
            events.deletion("ended"),
        )
    right = await connection.fetch("select * from jobs order by job_id")
    assert {row["live"] for row in right} == {True, False}
    await connection.execute(AS_BEFORE)
    assert await connection.fetch("select * from jobs order by job_id") != right

    # A moment without an offset would be another one in each of these.
    await connection.execute("set timezone = 'Asia/Kolkata'")
    [filling] = [each for each in migrations.statements("0004") if each.lstrip().startswith("UPDATE")]
    await connection.execute(filling)

    assert await connection.fetch("select * from jobs order by job_id") == right
