"""What was changed by hand is found: by plain SQL, and by a program that knows nothing but the formula."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import asyncpg
import pytest

from tests.integration import test_verify
from tests.support import auditing, events, ledgers
from tests.support import postgres as support

SPOILED = 4
"""The position whose row is spoiled; rows come before and after it, of its job too."""

BY_CHAIN = {
    "uuid": "gen_random_uuid()",
    "region": "'elsewhere'",
    "account_id": "'somebody'",
    "user_id": "'somebody'",
    "publisher": "'nobody'",
    "hccl": "replace(hccl, '10.0.0.1', '10.0.0.9')",
    "detail": """replace(detail, 'three', 'seven')""",
    "signal": "set_byte(signal, octet_length(signal) - 1, get_byte(signal, octet_length(signal) - 1) # 1)",
    "content_hash": "sha256('another')",
    "recorded_at": "recorded_at + interval '1 microsecond'",
    "hash": "sha256('another')",
}
"""Columns that the hash is made of, and another value for each."""

BY_DEPTH = {
    "job_id": "'job-9'",
    "operator": "'delete'",
    "job_status": "'complete'",
    "job_name": "'another'",
    "namespace": "'another'",
    "framework": "'another'",
    "job_time": "job_time + interval '0.5 seconds'",
    "delete_time": "to_timestamp(1700000001)",
    "cm_index": "null",
    "total": "2",
    "shared_tor_ip": "'[]'",
    "master_addr": "''",
    "sid": "'another'",
    "size": "size + 1",
    "left_namespace": "null",
    "left_framework": "'another'",
    "servers": "servers || 'another'",
}
"""Columns that the signal or the event before says too."""


class Verdict(NamedTuple):
    """audit.verify's row."""

    ok: bool
    checked: int
    first_bad: int | None
    reason: str | None


async def verified(connection: auditing.Connection, arguments: str = "") -> Verdict:
    row = await connection.fetchrow(f"select * from audit.verify({arguments})")  # noqa: S608
    assert row is not None
    return Verdict(*row)


async def fill(database: str) -> None:
    """Nine events of three jobs, none of them simple."""
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("job-2", job_name="训练-𠮷-\u2028-🚀", hccl_json=""))
        await ledger.receipts(events.submission("job-1", job_status="pending"))
        await ledger.receipts(events.submission("job-3", unknown=b"\xca\x3e\x02hi\x82\x3f\x02no"))
        await ledger.receipts(
            events.submission(
                "job-1",
                job_status="running",
                namespace="other",
                hccl_json=events.rank_table("10.0.0.1", devices=2),
                detail={"comment": "three"},
                shared_tor_ip='["10.1.0.1"]',
                master_addr="10.0.0.1",
                sid="s",
            )
        )
        await ledger.receipts(
            events.submission("job-1", framework="mindspore", delete_time="1700000100", time=""),
            events.submission(
                "job-2", job_status="failed", hccl_json=events.rank_table("10.0.0.2", devices=200)
            ),
            events.deletion("job-2", namespace="third"),
            events.deletion("nobody"),
            events.submission("job-2", namespace="fourth"),
        )


@pytest.fixture(scope="module")
def filled(postgres: support.Postgres) -> Iterator[str]:
    with postgres.shared(fill) as dsn:
        yield dsn


@pytest.fixture
async def log(filled: str) -> AsyncIterator[auditing.Connection]:
    """A connection to those events, in a transaction that takes back what a test does to them."""
    connection = await asyncpg.connect(filled)
    await connection.execute("begin")
    yield connection
    await connection.execute("rollback")
    await connection.close()


async def test_a_sound_log_is_found_whole_by_each(log: auditing.Connection) -> None:
    assert await verified(log) == (True, 9, None, None)
    assert await verified(log, "deep => true") == (True, 9, None, None)
    head = await log.fetchrow("select position || ':' || encode(hash, 'hex') as anchor from audit.head()")
    assert head is not None
    assert await auditing.outsider(log, "--anchor", head["anchor"]) == {
        "ok": True,
        "checked": 9,
        "first_bad": None,
        "reason": None,
        "head": head["anchor"],
    }


async def test_every_stored_column_is_one_of_those_that_are_spoiled_here(log: auditing.Connection) -> None:
    columns = await log.fetch(
        "select column_name from information_schema.columns where table_name = 'job_events'"
    )

    assert {row[0] for row in columns} - {"position"} == BY_CHAIN.keys() | BY_DEPTH.keys()


@pytest.mark.parametrize("column", BY_CHAIN)
async def test_chain_names_the_row_of_a_changed(log: auditing.Connection, column: str) -> None:
    await auditing.spoil(
        log,
        f"update job_events set {column} = {BY_CHAIN[column]} where position = {SPOILED}",  # noqa: S608
    )

    found = await verified(log)
    assert (found.ok, found.first_bad) == (False, SPOILED)
    assert found.reason is not None
    assert "hash does not follow" in found.reason
    outside = await auditing.outsider(log)
    assert (outside["first_bad"], outside["reason"]) == (SPOILED, "hash does not follow")


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "4713-01-01 BC"])
async def test_chain_names_the_row_of_a_time_that_no_event_has(log: auditing.Connection, moment: str) -> None:
    await auditing.spoil(
        log,
        f"update job_events set recorded_at = '{moment}' where position = {SPOILED}",  # noqa: S608
    )

    found, outside = await verified(log), await auditing.outsider(log)
    assert (found.ok, found.first_bad) == (outside["ok"], outside["first_bad"]) == (False, SPOILED)
    assert len(await log.fetch("select * from audit.jobs_as_of(9)")) == 3


@pytest.mark.parametrize("column", BY_DEPTH)
async def test_signal_contradicts_a_changed(log: auditing.Connection, column: str) -> None:
    await auditing.spoil(
        log,
        f"update job_events set {column} = {BY_DEPTH[column]} where position = {SPOILED}",  # noqa: S608
    )

    assert (await verified(log)).ok
    found, outside = await verified(log, "deep => true"), await auditing.outsider(log)
    assert (found.ok, found.first_bad) == (outside["ok"], outside["first_bad"]) == (False, SPOILED)
    for reason in (found.reason, outside["reason"]):
        assert reason is not None
        assert reason.startswith(column)


@pytest.mark.parametrize("row", range(1, 10))
async def test_a_row_whose_signal_does_not_parse_is_named_and_every_view_goes_on(
    log: auditing.Connection, row: int
) -> None:
    # Chained anew, as somebody would who knows the formula and reaches no copy of a later hash.
    await auditing.spoil(log, f"update job_events set signal = '\\xff', hccl = '[' where position = {row}")  # noqa: S608
    for at in range(row, 10):
        await auditing.spoil(
            log,
            f"update job_events e set hash = audit.link(coalesce((select hash from job_events where "  # noqa: S608
            f"position = {at - 1}), decode(repeat('00', 32), 'hex')), e) where position = {at}",
        )

    assert (await verified(log)).ok
    found = await verified(log, "deep => true")
    assert (found.first_bad, found.reason) == (row, "signal is not a JobSummarySignal")
    outside = await auditing.outsider(log)
    assert (outside["first_bad"], outside["reason"]) == (row, "signal is not a JobSummarySignal")
    assert len(await log.fetch("select * from audit.events")) == 9
    assert len(await log.fetch("select * from audit.job_history")) == 9
    assert len(await log.fetch("select * from audit.jobs_as_of(9)")) == 3
    assert await log.fetch("select * from audit.jobs_on_server('10.0.0.2')") is not None


@pytest.mark.parametrize("row", [1, 4, 8])
async def test_a_removed_row_is_named(log: auditing.Connection, row: int) -> None:
    await auditing.spoil(log, f"delete from job_events where position = {row}")  # noqa: S608

    assert await verified(log) == (False, 8, row, f"position {row} is missing")
    assert (await auditing.outsider(log))["first_bad"] == row


async def test_a_removed_row_is_named_also_if_the_rest_moved_up(log: auditing.Connection) -> None:
    await auditing.spoil(log, "delete from job_events where position = 4")
    for at in range(5, 10):
        await auditing.spoil(log, f"update job_events set position = {at - 1} where position = {at}")  # noqa: S608

    assert (await verified(log))[2:3] == (4,)
    assert (await auditing.outsider(log))["first_bad"] == 4


async def test_two_swapped_rows_are_named(log: auditing.Connection) -> None:
    await auditing.spoil(
        log,
        "update job_events set position = 100 where position = 4;"
        "update job_events set position = 4 where position = 5;"
        "update job_events set position = 5 where position = 100",
    )

    assert (await verified(log)).first_bad == 4
    assert (await auditing.outsider(log))["first_bad"] == 4


async def test_a_removed_tail_shows_against_an_anchor_and_only_there(log: auditing.Connection) -> None:
    anchor = await log.fetchval("select position || ':' || encode(hash, 'hex') from audit.head()")
    await auditing.spoil(log, "delete from job_events where position > 6")

    assert await verified(log) == (True, 6, None, None)
    assert (await auditing.outsider(log))["ok"]
    assert await verified(log, "1, 9") == (False, 6, 7, "position 7 is missing: the log ends at 6")
    assert (await auditing.outsider(log, "--anchor", anchor))["first_bad"] == 7


async def test_a_tail_that_was_written_anew_shows_against_an_anchor_and_only_there(
    log: auditing.Connection,
) -> None:
    anchor: str = await log.fetchval("select position || ':' || encode(hash, 'hex') from audit.head()")
    await auditing.spoil(log, "update job_events set publisher = 'nobody' where position = 9")
    await auditing.spoil(
        log,
        "update job_events e set hash = audit.link((select hash from job_events where position = 8), e)"
        " where position = 9",
    )

    assert (await verified(log, "deep => true")).ok
    assert (await auditing.outsider(log))["ok"]
    assert (await auditing.outsider(log, "--anchor", anchor))["first_bad"] == 9
    assert not await log.fetchval(
        "select exists (select from audit.events where position || ':' || encode(hash, 'hex') = $1)", anchor
    )


async def test_a_range_takes_the_hash_before_it_as_given(log: auditing.Connection) -> None:
    await auditing.spoil(log, "update job_events set publisher = 'nobody' where position = 4")
    before: str = await log.fetchval("select '4:' || encode(hash, 'hex') from job_events where position = 4")

    assert (await verified(log, "1, 3")).ok
    assert (await verified(log, "2, 4")).first_bad == 4
    assert await verified(log, "5, deep => true") == (True, 5, None, None)
    outside = await auditing.outsider(log, "--after", before, first=5)
    assert (outside["ok"], outside["checked"]) == (True, 5)


@pytest.mark.parametrize("arguments", ["0", "5, 4", "-1, 3"])
async def test_a_range_that_is_none_is_refused(log: auditing.Connection, arguments: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the log goes from 1 to 9"):
        await verified(log, arguments)


async def test_an_empty_log_is_whole_and_has_a_head(connection: auditing.Connection) -> None:
    assert await verified(connection) == (True, 0, None, None)
    head = await connection.fetchrow("select position, hash from audit.head()")
    assert head == (0, bytes(32))
    assert (await auditing.outsider(connection))["ok"]


async def test_pages_of_verify_join(database: str, connection: auditing.Connection) -> None:
    async with ledgers.running(database) as ledger:
        for _ in range(21):
            await ledger.receipts(*(events.submission(f"job-{n}", hccl_json="") for n in range(1_000)))

    assert await verified(connection) == (True, 21_000, None, None)
    for row in (20_001, 10_001, 10_000):
        await auditing.spoil(connection, f"update job_events set region = 'x' where position = {row}")  # noqa: S608
        assert (await verified(connection)).first_bad == row
        assert (await verified(connection, f"{row}")).first_bad == row


async def test_concurrent_appends_make_one_chain_and_a_moment_without_microseconds_holds(
    database: str, connection: auditing.Connection
) -> None:
    async with ledgers.running(database) as here, ledgers.running(database) as there:
        await asyncio.gather(
            *(ledger.receipts(events.submission(f"job-{n}")) for n in range(16) for ledger in (here, there))
        )
    whole = await connection.fetchval("select date_trunc('second', now()) + interval '1 hour'")
    await auditing.spoil(connection, f"update job_events set recorded_at = '{whole}' where position = 32")  # noqa: S608
    await auditing.spoil(
        connection,
        "update job_events e set hash = audit.link((select hash from job_events where position = 31), e)"
        " where position = 32",
    )

    assert await verified(connection, "deep => true") == (True, 32, None, None)
    assert (await auditing.outsider(connection))["ok"]
    # Only the log: the view has the moment that was there before.
    assert (await test_verify.verified(database, first=1, last=32)).finding is None
