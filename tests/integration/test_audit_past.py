"""The past by SQL is the past by the service's own fold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import Any

import asyncpg
import hypothesis
import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from jobledger.model import event, job
from jobledger.store import jobs
from jobledger.wire import signals
from tests.support import auditing, events, ledgers

_examples = itertools.count()

DETAILS: Sequence[dict[str, Any] | None] = (
    None,
    None,
    {"status": "Warming", "replicas": 9, "comment": "c", "resources": {"cpuLimit": 10**15}},
    {"pods": [{"name": "p"}], "finishTime": "2023-10-13 11:22:13"},
    {"createTime": "2023-10-13T11:22:13.5+02:00"},
)
TABLES = ("", events.INITIALIZING, events.rank_table("10.0.0.1"), events.rank_table("10.0.0.1", "10.0.0.2"))


def description(name: str, status: str, text: dict[str, Any]) -> event.Submission:
    """What REST makes of a job in the document's shape."""
    return events.submission(
        name, detail=text, completes_all=True, job_status=status, job_name="", time="", hccl_json=""
    )


def submissions() -> st.SearchStrategy[event.Submission]:
    names = st.sampled_from(["job-a", "job-b"])
    adds = st.builds(
        events.submission,
        names,
        job_status=st.sampled_from(["pending", "running", "complete", "failed"]),
        namespace=st.sampled_from(["a", "b", ""]),
        framework=st.sampled_from(["pytorch", ""]),
        time=st.sampled_from(["", "1700000000", "1700000001"]),
        delete_time=st.sampled_from(["", "1700000300"]),
        hccl_json=st.sampled_from(TABLES),
        detail=st.sampled_from(DETAILS),
        user_id=st.sampled_from(["", "u"]),
        sid=st.sampled_from(["", "s"]),
    )
    described = st.builds(
        description,
        names,
        st.sampled_from(["running", "failed"]),
        st.sampled_from([each for each in DETAILS if each is not None]),
    )
    parts = st.builds(
        events.part,
        st.integers(0, 3),
        st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        job_id=names,
        total=st.sampled_from([2, 2, 2, 3]),
        server_count=st.sampled_from([1, 3, 3, 3, 4]),
        job_status=st.sampled_from(["running", "running", "running", "complete"]),
        time=st.sampled_from(["1700000000", "1700000000", "1700000000", ""]),
        detail=st.sampled_from(DETAILS),
    )
    nowhere = st.builds(events.part, st.just(0), st.just("10.0.0.4"), job_id=names, cm_index=st.just(""))
    deletes = st.builds(events.deletion, names, delete_time=st.sampled_from(["", "1700000500"]))
    return st.one_of(adds, parts, parts, parts, described, deletes, nowhere)


def of_example(number: int, submission: event.Submission) -> event.Submission:
    """The same, of jobs and an event of its own: every example is in one log."""
    named = replace(submission.signal, job_id=f"{submission.signal.job_id}-{number}", uuid="")
    return replace(submission, signal=named)


def same(row: asyncpg.Record) -> job.Job:
    """A row of the shape of audit.jobs, as the service has it; its detail read: spaces do not count."""
    return read(jobs.from_row(row))


def read(folded: job.Job) -> job.Job:
    """What SQL has of a job: it does not say which parts have come."""
    detail = None if folded.detail is None else json.loads(folded.detail)
    return replace(folded, detail=detail, arriving=None)


def recorded(row: asyncpg.Record) -> event.RecordedEvent:
    return event.RecordedEvent(
        position=row["position"],
        uuid=row["uuid"],
        signal=signals.read_signal(row["signal"], row["hccl"]),
        detail=row["detail"],
        region=row["region"],
        account_id=row["account_id"],
        user_id=row["user_id"],
        recorded_at=row["recorded_at"].astimezone(UTC),
    )


@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(said=st.lists(submissions(), min_size=1, max_size=10))
async def test_as_of_every_position_a_job_is_what_evolve_makes_of_its_events(
    ledger: ledgers.Ledger, connection: auditing.Connection, said: list[event.Submission]
) -> None:
    number = next(_examples)
    receipts = [receipt for each in said for receipt in await ledger.receipts(of_example(number, each))]

    folded: dict[str, job.Job | None] = {f"job-a-{number}": None, f"job-b-{number}": None}
    for receipt in receipts:
        row = await connection.fetchrow("select * from job_events where position = $1", receipt.position)
        assert row is not None
        folded[row["job_id"]] = job.evolve(folded[row["job_id"]], recorded(row))
        for job_id, expected in folded.items():
            found = await connection.fetch(
                "select *, null as arriving from audit.job_as_of($1, $2::bigint)", job_id, receipt.position
            )
            assert [same(each) for each in found] == ([] if expected is None else [read(expected)])
    every = await connection.fetch(
        "select *, null as arriving from audit.jobs_as_of((select position from audit.head()))"
        " where job_id = any ($1)",
        list(folded),
    )
    assert {each["job_id"]: same(each) for each in every} == {
        job_id: read(each) for job_id, each in folded.items() if each is not None
    }
    differing = await connection.fetchval(
        "select count(*) from (select * from audit.jobs_as_of((select position from audit.head()))"
        " except select * from audit.jobs) as differing"
    )
    assert differing == 0


async def test_as_of_a_moment_is_as_of_the_last_position_recorded_by_then(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    for n in range(40):
        await ledger.receipts(events.submission(f"job-{n % 7}", sid=str(n)))
    rows = await connection.fetch("select position, recorded_at from job_events order by position")

    for row in rows:
        expected = max(each["position"] for each in rows if each["recorded_at"] <= row["recorded_at"])
        assert await connection.fetchval("select audit.position_at($1)", row["recorded_at"]) == expected
    assert await connection.fetchval("select audit.position_at(now())") == 40
    just_before = rows[0]["recorded_at"] - timedelta(microseconds=1)
    assert await connection.fetchval("select audit.position_at($1)", just_before) == 0
    assert (
        await connection.fetch("select * from audit.job_as_of('job-0', $1::timestamptz)", just_before) == []
    )
    assert await connection.fetch("select * from audit.jobs_as_of($1::timestamptz)", just_before) == []
    then = await connection.fetchrow(
        "select * from audit.job_as_of('job-3', $1::timestamptz)", rows[20]["recorded_at"]
    )
    assert then is not None
    assert then["sid"] == "17"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("job_as_of('job-1', 2)", "position 2 is not in the log, which ends at 1"),
        ("job_as_of('job-1', -1)", "position -1 is not in the log"),
        ("jobs_as_of(2)", "position 2 is not in the log"),
        ("job_as_of('job-1', now() + interval '1 hour')", "the log does not reach"),
        ("jobs_as_of(timestamptz '2999-01-01')", "the log does not reach"),
        ("jobs_as_of(null::bigint)", "is not in the log"),
    ],
)
async def test_a_past_that_the_log_does_not_have_is_refused(
    ledger: ledgers.Ledger, connection: auditing.Connection, asked: str, words: str
) -> None:
    await ledger.receipts(events.submission("job-1"))

    with pytest.raises(asyncpg.InvalidParameterValueError, match=words):
        await connection.fetch(f"select * from audit.{asked}")  # noqa: S608


async def test_history_says_what_changed_and_how_long_each_status_held(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    await ledger.receipts(events.submission(job_status="pending"))
    await ledger.receipts(events.submission(job_status="running", hccl_json=events.rank_table("10.0.0.1")))
    await ledger.receipts(
        events.submission(job_status="running", hccl_json=events.rank_table("10.0.0.1"), sid="s")
    )
    await ledger.receipts(events.deletion())
    await ledger.receipts(events.deletion())
    await ledger.receipts(events.submission(job_status="failed", detail={"comment": "c"}))

    rows = await connection.fetch("select * from audit.job_history where job_id = 'job-1' order by position")

    moments = [row["recorded_at"] for row in rows]
    assert [row["life"] for row in rows] == [1, 1, 1, 1, 1, 2]
    assert [row["begins_status"] for row in rows] == [True, True, False, False, False, True]
    assert [row["held"] for row in rows] == [moments[1] - moments[0], moments[3] - moments[1], *[None] * 4]
    assert [row["described"] for row in rows] == [False] * 5 + [True]
    changes = [json.loads(row["changes"] or "null") for row in rows]
    assert changes[0]["job_status"] == [None, "pending"]
    assert changes[1].keys() == {"job_status", "hccl"}
    assert changes[2] == {"sid": [None, "s"]}
    assert changes[3].keys() == {"deleted"}
    assert changes[4] is None
    assert changes[5]["job_status"] == [None, "failed"]


async def test_publishers_are_counted(ledger: ledgers.Ledger, connection: auditing.Connection) -> None:
    await ledger.receipts(events.submission("job-1"), events.submission("job-2"), events.deletion("job-1"))

    row = await connection.fetchrow("select * from audit.publishers")

    assert row is not None
    assert list(row.values())[:7] == ["anonymous@127.0.0.1", 3, 2, 1, 2, 1, 3]
