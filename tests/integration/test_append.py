"""What an append promises: order, durability, one event a uuid, and neighbours that are left alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from jobledger import errors
from jobledger.model import event, principal
from tests.support import events, ledgers

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def test_positions_are_gapless_over_concurrent_appends(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await asyncio.gather(*(ledger.receipts(events.submission(f"job-{n}")) for n in range(300)))

    positions = await connection.fetchval("select array_agg(position order by position) from job_events")

    assert positions == list(range(1, 301))


async def test_acknowledged_event_is_in_the_log_and_in_the_view(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    [receipt] = await ledger.receipts(events.submission("job-1"))

    assert (
        await connection.fetchval("select uuid from job_events where position = $1", receipt.position)
        == receipt.uuid
    )
    assert (
        await connection.fetchval("select last_position from jobs where job_id = 'job-1'") == receipt.position
    )


async def test_repeated_uuid_with_equal_content_is_a_duplicate_of_the_first(ledger: ledgers.Ledger) -> None:
    given = events.submission("job-1")
    [first] = await ledger.receipts(given)
    await ledger.receipts(events.submission("job-1", job_status="running"))

    [again] = await ledger.receipts(given)

    assert again == event.Receipt(uuid=first.uuid, position=first.position, duplicate=True)


async def test_repeated_uuid_within_one_request_is_a_duplicate(ledger: ledgers.Ledger) -> None:
    given = events.submission("job-1")

    first, again = await ledger.receipts(given, given)

    assert (again.position, again.duplicate) == (first.position, True)


async def test_repeated_uuid_with_other_content_is_a_conflict(ledger: ledgers.Ledger) -> None:
    uuid = str(uuid4())
    await ledger.receipts(events.submission("job-1", uuid=uuid))

    [outcome] = await ledger.append(events.submission("job-1", uuid=uuid, job_status="running"))

    assert isinstance(outcome, errors.EventConflict)
    assert "position 1" in outcome.reason


async def test_uuid_that_two_jobs_of_one_request_claim_goes_to_the_first(ledger: ledgers.Ledger) -> None:
    uuid = str(uuid4())

    first, second = await ledger.append(
        events.submission("job-1", uuid=uuid), events.submission("job-2", uuid=uuid)
    )

    assert isinstance(first, event.Receipt)
    assert isinstance(second, errors.EventConflict)


async def test_uuid_is_the_same_in_every_spelling(ledger: ledgers.Ledger) -> None:
    uuid = uuid4()
    [first] = await ledger.receipts(events.submission("job-1", uuid=str(uuid).upper()))

    [again] = await ledger.receipts(events.submission("job-1", uuid="{" + uuid.hex + "}"))

    assert (first.uuid, again.duplicate) == (uuid, True)


@pytest.mark.parametrize(
    "uuid",
    [
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "01890a5d-ac96-774b-bcce-b302099a8057",
    ],
)
async def test_uuid_of_any_version_is_kept(ledger: ledgers.Ledger, uuid: str) -> None:
    [receipt] = await ledger.receipts(events.submission("job-1", uuid=uuid))

    assert receipt.uuid == UUID(uuid)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"job_name": "a\0b"}, "signal.jobName"),
        ({"namespace": "\ud800"}, "signal.namespace"),
        ({"job_id": ""}, "signal.jobId"),
        ({"job_id": "x" * 257}, "signal.jobId"),
        ({"job_id": "a\nb"}, "signal.jobId"),
        ({"job_status": "done"}, "signal.jobStatus"),
        ({"job_status": ""}, "signal.jobStatus"),
        ({"operator": "update"}, "signal.operator"),
        ({"time": "01"}, "signal.time"),
        ({"time": "1e9"}, "signal.time"),
        ({"delete_time": "999999999999"}, "signal.deleteTime"),
        ({"cm_index": "-1"}, "signal.cmIndex"),
        ({"total": "many"}, "signal.total"),
        ({"uuid": "not-a-uuid"}, "signal.uuid"),
        ({"hccl_json": "[]"}, "signal.HcclJson"),
        ({"hccl_json": "{"}, "signal.HcclJson"),
        ({"hccl_json": '{"a":"\\u0000"}'}, "signal.HcclJson"),
        ({"hccl_json": '{"a\\u0000":1}'}, "signal.HcclJson, in a key"),
        ({"hccl_json": '{"a":{"\\ud800":1}}'}, "signal.HcclJson"),
        ({"hccl_json": '{"a":"\\ud800"}'}, "signal.HcclJson"),
        ({"hccl_json": '{"a":1e400000}'}, "signal.HcclJson"),
    ],
)
async def test_bad_event_is_refused_by_its_field_and_its_neighbours_go_through(
    ledger: ledgers.Ledger, fields: dict[str, Any], field: str
) -> None:
    given: dict[str, Any] = {"job_id": "job-2", **fields}

    before, refused, after = await ledger.append(
        events.submission("job-1"),
        events.submission(**given),
        events.submission("job-3"),
    )

    assert isinstance(refused, errors.EventError)
    assert refused.field.startswith(field)
    assert isinstance(before, event.Receipt)
    assert isinstance(after, event.Receipt)
    assert (before.position, after.position) == (1, 2)


async def test_data_that_only_postgres_refuses_fails_its_event_alone(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await connection.execute("alter table job_events add check (job_name <> 'cursed')")

    outcomes = await ledger.append(
        *(events.submission(f"job-{n}", job_name="cursed" if n == 3 else "train") for n in range(8))
    )

    assert [isinstance(each, event.Receipt) for each in outcomes] == [n != 3 for n in range(8)]
    assert await connection.fetchval("select max(position) from job_events") == 7


async def test_rolled_back_appends_leave_no_gap(ledger: ledgers.Ledger, connection: Connection) -> None:
    await connection.execute("alter table job_events add check (job_name <> 'cursed')")
    for n in range(20):
        await ledger.append(events.submission(f"job-{n}", job_name="cursed"))

    [receipt] = await ledger.receipts(events.submission("job-1"))

    assert receipt.position == 1


async def test_live_job_in_another_region_is_a_conflict_and_a_new_life_is_not(ledger: ledgers.Ledger) -> None:
    await ledger.receipts(events.submission("job-1", region="east"))

    [outcome] = await ledger.append(events.submission("job-1", region="west"))
    await ledger.receipts(events.deletion("job-1"))
    [receipt] = await ledger.receipts(events.submission("job-1", region="west"))

    assert isinstance(outcome, errors.EventConflict)
    assert outcome.field == "region"
    assert receipt.position == 3


async def test_partial_delete_is_completed_from_the_job(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await ledger.receipts(
        events.submission("job-1", namespace="team", job_status="running", region="east", sid="s")
    )

    await ledger.receipts(events.deletion("job-1"))

    row = await connection.fetchrow("select * from job_events where position = 2")
    assert row is not None
    assert (row["job_name"], row["namespace"], row["framework"], row["region"]) == (
        "train",
        "team",
        "pytorch",
        "east",
    )
    assert (row["job_status"], row["total"], row["sid"]) == ("running", 1, "s")
    assert abs(row["delete_time"].timestamp() - row["recorded_at"].timestamp()) < 1


async def test_description_of_a_running_job_keeps_status_and_rank_table(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    table = events.rank_table("10.0.0.1", "10.0.0.2")
    await ledger.receipts(events.submission("job-1", job_status="running", hccl_json=table))

    await ledger.receipts(
        event.Submission(
            signal=events.Signal(job_id="job-1", operator="add"),
            detail='{"comment":"hi"}',
            completes_all=True,
        )
    )

    row = await connection.fetchrow("select * from job_events where position = 2")
    assert row is not None
    assert (row["job_status"], row["hccl"], row["namespace"]) == ("running", table, "default")


async def test_description_starts_a_life_with_defaults(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    detail = '{"name":"n","trainFrame":"Pytorch","createTime":"2023-10-13 11:22:01"}'

    await ledger.receipts(
        event.Submission(
            signal=events.Signal(job_id="job-1", operator="add"), detail=detail, completes_all=True
        )
    )

    row = await connection.fetchrow("select * from job_events")
    assert row is not None
    assert (row["job_name"], row["framework"], row["job_status"]) == ("n", "pytorch", "pending")
    assert row["hccl"] == '{"status":"initializing"}'
    assert row["job_time"].isoformat() == "2023-10-13T03:22:01+00:00"


async def test_event_that_moves_a_job_says_what_it_left(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await ledger.receipts(
        events.submission("job-1", namespace="old", framework="pytorch"),
        events.submission("job-1", namespace="new", framework="mindspore"),
        events.submission("job-1", namespace="new", framework="mindspore"),
    )

    rows = await connection.fetch("select left_namespace, left_framework from job_events order by position")

    assert [tuple(row) for row in rows] == [(None, None), ("old", "pytorch"), (None, None)]


async def test_largest_event_goes_in_and_one_byte_more_does_not(ledger: ledgers.Ledger) -> None:
    async def append(padding: int) -> object:
        text = '{"x":"' + "x" * padding + '"}'
        [outcome] = await ledger.append(events.submission("job-1", hccl_json=text))
        return outcome

    too_large = await append(ledgers.EVENT_LIMIT_BYTES)
    assert isinstance(too_large, errors.EventTooLarge)
    fits = ledgers.EVENT_LIMIT_BYTES - (too_large.size_bytes - too_large.limit_bytes)
    one_more = await append(fits + 1)

    assert isinstance(await append(fits), event.Receipt)
    assert isinstance(one_more, errors.EventTooLarge)


async def test_full_queue_answers_overloaded_and_what_waited_is_recorded(
    database: str, connection: Connection
) -> None:
    async with ledgers.running(database, queue_events=10) as ledger:
        other = principal.Principal.anonymous("10.0.0.2")
        blocking = connection.transaction()
        await blocking.start()
        await connection.execute("lock table job_events in share mode")
        # One publisher may take four fifths of it; another one then still finds room.
        waiting = [asyncio.create_task(ledger.append(events.submission(f"job-{n}"))) for n in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(errors.Overloaded, match="8 of them from"):
            await ledger.append(events.submission("one-more"))
        waiting.append(asyncio.create_task(ledger.appender.append([events.submission("other")], other)))
        await asyncio.sleep(0)

        await blocking.rollback()
        await asyncio.gather(*waiting)
        assert await connection.fetchval("select count(*) from job_events") == 9


async def test_cancelled_callers_leave_whole_requests_and_no_connection(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    chance = random.Random(1)  # noqa: S311 - a test's choice
    before = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database()"
    )
    for n in range(200):
        task = asyncio.create_task(ledger.append(events.submission(f"a-{n}"), events.submission(f"b-{n}")))
        await asyncio.sleep(chance.random() * 0.002)
        task.cancel()
    await ledger.receipts(events.submission("last"))

    halves = await connection.fetchval(
        "select count(*) from (select split_part(job_id, '-', 2) from job_events where job_id <> 'last'"
        " group by 1 having count(*) <> 2) as half"
    )
    after = await connection.fetch(
        "select state from pg_stat_activity"
        " where datname = current_database() and backend_type = 'client backend'"
    )
    assert halves == 0
    assert len(after) <= before + 2
    assert "idle in transaction" not in [row["state"] for row in after]


_OF_THEIR_OWN = ("position", "uuid", "job_id", "signal", "content_hash", "recorded_at", "hash")
"""What two equal events differ in, in the log."""

_OF_ITS_OWN = ("job_id", "version", "last_position", "last_uuid", "changed_at", "signal_positions")
"""What two equal jobs differ in, in the view."""


async def test_events_one_by_one_and_in_one_batch_leave_the_same(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    def story(job_id: str) -> list[event.Submission]:
        return [
            events.submission("unknown-" + job_id, operator="delete", delete_time="1700000009"),
            events.submission(job_id, time="1700000001", namespace="blue"),
            events.submission(job_id, time="1700000002", namespace="green", job_status="running"),
            events.submission(job_id, operator="delete", delete_time="1700000003"),
            events.submission(job_id, time="1700000004", namespace="red"),
        ]

    for each in story("alone"):
        await ledger.receipts(each)
    await ledger.receipts(*story("batch"))

    async def kept(table: str, order: str, job_id: str) -> list[dict[str, object]]:
        query = f"select * from {table} where job_id like $1 order by {order}"  # noqa: S608
        return [dict(row) for row in await connection.fetch(query, "%" + job_id)]

    for table, order, own in (("job_events", "position", _OF_THEIR_OWN), ("jobs", "version", _OF_ITS_OWN)):
        alone, together = await kept(table, order, "alone"), await kept(table, order, "batch")
        assert alone
        for one, other in zip(alone, together, strict=True):
            assert {name for name in one if one[name] != other[name]} <= set(own)
