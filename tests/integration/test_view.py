"""The view is a fold of the log, done again here from the rows as SQL shows them."""

from __future__ import annotations

import random
from datetime import UTC
from typing import TypeAlias

import asyncpg

from jobledger.model import event, job
from jobledger.store import jobs
from jobledger.wire import signals
from tests.support import events, ledgers

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def folded(connection: Connection) -> dict[str, job.Job]:
    """Every job as the log alone makes it."""
    found: dict[str, job.Job] = {}
    for row in await connection.fetch("select * from job_events order by position"):
        recorded = event.RecordedEvent(
            position=row["position"],
            uuid=row["uuid"],
            signal=signals.read_signal(row["signal"], row["hccl"]),
            detail=row["detail"],
            region=row["region"],
            account_id=row["account_id"],
            user_id=row["user_id"],
            recorded_at=row["recorded_at"].astimezone(UTC),
        )
        evolved = job.evolve(found.get(row["job_id"]), recorded)
        if evolved is not None:
            found[row["job_id"]] = evolved
    return found


async def viewed(connection: Connection) -> dict[str, job.Job]:
    """Every job as the view has it."""
    ids = [row["job_id"] for row in await connection.fetch("select job_id from jobs")]
    return dict(await jobs.current(connection, ids))


async def test_view_equals_a_fold_of_the_log(ledger: ledgers.Ledger, connection: Connection) -> None:
    chance = random.Random(7)  # noqa: S311 - a test's choice
    for _ in range(60):
        await ledger.receipts(*(_anything(chance) for _ in range(10)))

    assert await viewed(connection) == await folded(connection)


def _anything(chance: random.Random) -> event.Submission:
    job_id = f"job-{chance.randrange(40)}"
    if chance.random() < 0.2:
        return events.deletion(job_id, delete_time=chance.choice(["", "1700000500"]))
    if chance.random() < 0.3:
        status = chance.choice(["", "failed"])
        return event.Submission(
            signal=events.Signal(job_id=job_id, operator="add", job_status=status),
            detail=chance.choice(
                [
                    '{"name":"n","status":"Sleeping"}' if status else '{"name":"n","replicas":3}',
                    '{"finishTime":"2023-10-13 11:22:13","pods":[{"name":"p"}]}',
                    '{"output":{"accessKeyID":"ABCDEFGHIJKLMNOP","accessKeySecret":"s3cret"}}',
                    '{"output":{"accessKeyID":"ABCD****NOP","accessKeySecret":"******"}}',
                ]
            ),
            completes_all=True,
        )
    return events.submission(
        job_id,
        job_status=chance.choice(["pending", "running", "complete", "failed"]),
        namespace=chance.choice(["a", "b", ""]),
        time=chance.choice(["", "1700000000"]),
        hccl_json=chance.choice(
            ["", events.INITIALIZING, events.rank_table("10.0.0.1"), events.rank_table("10.0.0.2")]
        ),
        detail=chance.choice([None, None, {"status": "Warming", "replicas": 9}]),
    )


async def _job(connection: Connection, job_id: str = "job-1") -> job.Job:
    return (await jobs.current(connection, [job_id]))[job_id]


async def test_failed_is_not_terminal(ledger: ledgers.Ledger, connection: Connection) -> None:
    shown: list[tuple[str, bool]] = []
    for status in ("running", "failed", "running"):
        await ledger.receipts(events.submission(job_status=status))
        current = await _job(connection)
        shown.append((current.signal.job_status, current.ended_at is not None))

    assert shown == [("running", False), ("failed", True), ("running", False)]


async def test_finish_time_is_the_first_of_an_unbroken_run(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await ledger.receipts(events.submission(job_status="failed", delete_time="1700000100"))
    await ledger.receipts(events.submission(job_status="complete", delete_time="1700000200"))
    await ledger.receipts(events.deletion(delete_time="1700000300"))

    assert (await _job(connection)).ended_at == job.epoch_seconds("1700000100")


async def test_job_deleted_while_running_finishes_then_with_its_status(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await ledger.receipts(events.submission(job_status="running"), events.deletion(delete_time="1700000300"))

    current = await _job(connection)
    assert (current.signal.job_status, current.ended_at) == ("running", job.epoch_seconds("1700000300"))


async def test_new_life_has_nothing_of_the_old_and_a_late_duplicate_does_not_resurrect(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    first = events.submission(detail={"comment": "old", "replicas": 4}, user_id="u", job_status="failed")
    await ledger.receipts(first, events.deletion())
    await ledger.receipts(first)
    assert not (await _job(connection)).live

    await ledger.receipts(events.submission(time=""))

    current = await _job(connection)
    assert current.live
    assert (current.detail, current.user_id, current.version, current.ended_at) == (None, "", 1, None)
    assert current.create_time == current.changed_at


async def test_delete_of_an_unknown_job_is_recorded_and_changes_no_view(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    [receipt] = await ledger.receipts(events.deletion("nobody"))

    assert receipt.position == 1
    assert await connection.fetchval("select count(*) from jobs") == 0


async def test_of_two_adds_with_the_same_time_the_later_position_wins(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await ledger.receipts(events.submission(job_status="running"), events.submission(job_status="complete"))

    assert (await _job(connection)).signal.job_status == "complete"


async def test_words_of_a_description_hold_until_a_signal_contradicts_them(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    said = {"status": "Warming", "replicas": 9, "comment": "c"}
    table = events.rank_table("10.0.0.1")
    await ledger.receipts(events.submission(job_status="pending", detail=said))
    await ledger.receipts(events.submission(job_status="pending", namespace="other"))
    unchanged = (await _job(connection)).detail
    await ledger.receipts(events.submission(job_status="pending", hccl_json=table))
    without_ranks = (await _job(connection)).detail
    await ledger.receipts(events.submission(job_status="running", hccl_json=table))

    assert unchanged == '{"comment":"c","replicas":9,"status":"Warming"}'
    assert without_ranks == '{"comment":"c","status":"Warming"}'
    assert (await _job(connection)).detail == '{"comment":"c"}'
