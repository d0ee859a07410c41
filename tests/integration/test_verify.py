"""What verify finds, whoever spoiled it, and what it cannot see."""

from __future__ import annotations

import asyncio

import pytest

from jobledger import errors
from jobledger.ledger import admission, verify
from jobledger.model import event
from jobledger.store import engine, ledgerinfo
from tests.support import auditing, events, ledgers

Connection = auditing.Connection

TABLE = events.rank_table("10.0.0.1", "10.0.0.2")


async def verified(
    database: str,
    *,
    first: int | None = None,
    last: int | None = None,
    anchor: verify.Anchor | None = None,
) -> verify.Report:
    connection = await engine.connect(database)
    try:
        floor = (await ledgerinfo.read(connection)).floor
        return await verify.run(
            connection, floor=floor, first=first, last=last, anchor=anchor, on_progress=lambda _: None
        )
    finally:
        await connection.close()


async def fill(ledger: ledgers.Ledger) -> None:
    """Ten events of three jobs, with everything that a row can hold."""
    for n in range(8):
        await ledger.receipts(
            events.submission(
                f"job-{n % 3}",
                namespace=f"team-{n % 2}",
                job_status="running",
                hccl_json=TABLE,
                detail={"comment": f"é {n}"},
                user_id="u",
            )
        )
    await ledger.receipts(events.deletion("job-0"), events.submission("job-0"))


async def test_good_log_is_good_and_its_end_is_an_anchor(ledger: ledgers.Ledger, database: str) -> None:
    await fill(ledger)

    report = await verified(database)

    assert (report.finding, report.events, report.jobs) == (None, 10, 3)
    await ledger.receipts(events.submission("job-9"))
    again = await verified(database, anchor=report.head)
    assert (again.finding, again.events, again.anchored) == (None, 11, True)


async def test_log_with_the_latest_times_that_are_taken_is_good(
    ledger: ledgers.Ledger, database: str
) -> None:
    latest = str(admission.LATEST_SECOND)
    await ledger.receipts(
        events.submission("job-1", time=latest, job_status="failed", delete_time=latest),
        events.submission("job-2", detail={"createTime": "9998-12-31T23:59:59Z"}),
    )

    report = await verified(database)

    assert (report.finding, report.jobs) == (None, 2)


async def test_empty_log_is_good(database: str) -> None:
    report = await verified(database)

    assert (report.finding, report.events, report.jobs) == (None, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        "uuid = gen_random_uuid()",
        "job_id = 'other'",
        "operator = 'delete'",
        "job_status = 'failed'",
        "job_name = 'other'",
        "namespace = 'other'",
        "framework = 'other'",
        "job_time = job_time + interval '1 second'",
        "delete_time = now()",
        "cm_index = 7",
        "total = null",
        "shared_tor_ip = 'x'",
        "master_addr = 'x'",
        "sid = 'x'",
        "region = 'x'",
        "account_id = 'x'",
        "user_id = ''",
        "publisher = 'x'",
        "hccl = hccl || ' '",
        "detail = detail || ' '",
        "signal = signal || '\\x8a0100'::bytea",
        "signal = '\\xff'::bytea",
        "content_hash = sha256('')",
        "size = size + 1",
        "left_namespace = 'x'",
        "left_framework = 'x'",
        "servers = ''",
        "recorded_at = recorded_at + interval '1 microsecond'",
        "hash = sha256('')",
        "recorded_at = 'infinity'",
        "recorded_at = '4713-01-01 BC'",
        "job_time = '-infinity'",
        "delete_time = '294276-12-31'",
    ],
)
async def test_column_that_was_changed_by_hand_is_found_at_its_position(
    ledger: ledgers.Ledger, database: str, connection: Connection, change: str
) -> None:
    await fill(ledger)
    await auditing.spoil(connection, f"update job_events set {change} where position = 5")  # noqa: S608

    finding = (await verified(database)).finding

    assert finding is not None
    assert finding.position == 5


async def test_row_that_was_removed_is_found(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await fill(ledger)
    await auditing.spoil(connection, "delete from job_events where position = 4")

    finding = (await verified(database)).finding

    assert finding is not None
    assert (finding.position, finding.reason) == (4, "the row is missing")


async def test_rows_that_were_swapped_are_found(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await fill(ledger)
    await auditing.spoil(connection, "alter table job_events drop constraint job_events_position_check")
    await auditing.spoil(connection, "update job_events set position = -position where position in (4, 5)")
    await auditing.spoil(connection, "update job_events set position = 9 + position where position < 0")

    finding = (await verified(database)).finding

    assert finding is not None
    assert finding.position == 4


async def test_tail_that_was_removed_shows_only_against_an_anchor(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await ledger.receipts(*(events.submission(f"job-{n}") for n in range(10)))
    anchor = (await verified(database)).head
    await auditing.spoil(connection, "delete from job_events where position > 7")
    await connection.execute("delete from jobs where last_position > 7")

    unseen, seen = await verified(database), await verified(database, anchor=anchor)

    assert unseen.finding is None
    assert seen.finding is not None
    assert seen.finding.position == 8
    assert "its tail was removed" in seen.finding.reason


async def test_anchor_of_another_log_is_refused(ledger: ledgers.Ledger, database: str) -> None:
    await fill(ledger)
    report = await verified(database, anchor=verify.Anchor(position=event.Position(3), hash=bytes(32)))

    assert report.finding is not None
    assert report.finding.position == 3


async def test_part_of_the_log_is_checked_from_the_hash_before_it(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    await fill(ledger)
    await auditing.spoil(connection, "update job_events set publisher = 'x' where position = 2")

    after, upon = await verified(database, first=3, last=8), await verified(database, first=2)

    assert (after.finding, after.events, after.jobs) == (None, 6, None)
    assert upon.finding is not None
    assert upon.finding.position == 2


async def test_part_that_the_log_does_not_have_is_refused(ledger: ledgers.Ledger, database: str) -> None:
    await fill(ledger)

    with pytest.raises(errors.InvalidRequest, match="which goes from 1 to 10"):
        await verified(database, last=11)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("update jobs set job_status = 'failed' where job_id = 'job-1'", "job_status"),
        ("update jobs set signal_positions = '{1}' where job_id = 'job-1'", "signal_positions"),
        ("update jobs set shown_name = 'x' where job_id = 'job-1'", "shown_name"),
        ("update jobs set changed_at = 'infinity' where job_id = 'job-1'", "changed_at"),
        ("update jobs set finish_time = '4713-01-01 BC' where job_id = 'job-1'", "finish_time"),
        ("delete from jobs where job_id = 'job-1'", "row"),
        ("update jobs set job_id = 'job-1x' where job_id = 'job-1'", "row"),
    ],
)
async def test_view_that_is_not_what_the_log_says_is_found(
    ledger: ledgers.Ledger, database: str, connection: Connection, statement: str, words: str
) -> None:
    await fill(ledger)
    await connection.execute(statement)

    finding = (await verified(database)).finding

    assert finding is not None
    assert (finding.position, finding.job_id) == (None, "job-1")
    assert words in finding.reason


async def test_verify_is_right_while_appends_run(ledger: ledgers.Ledger, database: str) -> None:
    await fill(ledger)
    stop = asyncio.Event()

    async def publish() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            await ledger.receipts(*(events.submission(f"job-{(n + k) % 500}", sid=str(n)) for k in range(20)))

    publishing = asyncio.create_task(publish())
    try:
        reports = [await verified(database) for _ in range(5)]
    finally:
        stop.set()
        await publishing

    assert [each.finding for each in reports] == [None] * 5
    assert reports[-1].events > reports[0].events
