"""Rebuild makes the view what the log says, also while appends run."""

from __future__ import annotations

import asyncio
import random

import pytest

from jobledger.ledger import rebuild, verify
from jobledger.store import engine
from tests.integration import test_verify
from tests.support import auditing, events, ledgers

Connection = auditing.Connection


async def rebuilt(database: str) -> rebuild.Report:
    connection = await engine.connect(database)
    try:
        return await rebuild.run(connection, on_progress=lambda _: None)
    finally:
        await connection.close()


async def finding(database: str) -> verify.Finding | None:
    return (await test_verify.verified(database)).finding


async def test_right_view_stays_as_it_is(ledger: ledgers.Ledger, database: str) -> None:
    await test_verify.fill(ledger)

    assert await rebuilt(database) == rebuild.Report(jobs=3, differed=0)


async def test_every_wrong_row_is_replaced_and_counted(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await ledger.receipts(*(events.submission(f"job-{n:03}") for n in range(450)))
    await connection.execute("update jobs set sid = 'wrong' where job_id like '%7'")
    await connection.execute("delete from jobs where job_id = 'job-003'")
    await connection.execute("update jobs set job_id = 'stranger' where job_id = 'job-004'")

    report = await rebuilt(database)

    assert report == rebuild.Report(jobs=450, differed=45 + 3)
    assert await finding(database) is None
    assert await rebuilt(database) == rebuild.Report(jobs=450, differed=0)


async def test_view_is_made_from_nothing(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await test_verify.fill(ledger)
    before = await connection.fetch("select * from jobs order by job_id")
    await connection.execute("delete from jobs")

    await rebuilt(database)

    assert await connection.fetch("select * from jobs order by job_id") == before


async def test_rebuild_twice_under_load_is_equal_to_the_fold(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    chance = random.Random(3)  # noqa: S311 - a test's choice
    await ledger.receipts(*(events.submission(f"job-{n}") for n in range(600)))
    stop = asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            name = f"job-{chance.randrange(700)}"
            said = events.deletion(name) if chance.random() < 0.2 else events.submission(name)
            await ledger.receipts(said)

    publishing = [asyncio.create_task(publish()) for _ in range(4)]
    try:
        for _ in range(2):
            # Under the append lock: else the hand's rows and a batch's could wait for each other.
            await connection.execute(
                "begin; select pg_advisory_xact_lock(19020, 1);"
                " update jobs set shared_tor_ip = 'wrong', version = version + 7; commit"
            )
            report = await rebuilt(database)
            assert report.differed >= 400
    finally:
        stop.set()
        await asyncio.gather(*publishing)

    assert await finding(database) is None


async def test_row_that_was_spoiled_does_not_stop_a_rebuild(
    ledger: ledgers.Ledger, database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await test_verify.fill(ledger)
    await auditing.spoil(connection, "update job_events set signal = '\\xff' where position = 10")
    await auditing.spoil(connection, "update job_events set detail = 'x' where position = 8")
    await auditing.spoil(connection, "update job_events set recorded_at = 'infinity' where position = 6")
    await connection.execute("delete from jobs")

    report = await rebuilt(database)

    assert report.differed >= 2
    for position in (6, 8, 10):
        assert f"position {position} " in caplog.text
