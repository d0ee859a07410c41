"""Rank tables in parts: what callers see of them, and that every road to the view agrees."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from jobledger.ledger import rebuild
from jobledger.model import event, ranktable
from jobledger.store import jobs
from tests.integration import test_rebuild, test_verify
from tests.support import auditing, events, ledgers, rest

ALL = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")


def table() -> Sequence[event.Submission]:
    """A table in two parts."""
    return (
        events.part(0, *ALL[:2], region=rest.REGION),
        events.part(1, *ALL[2:], region=rest.REGION),
    )


def next_part(**fields: Any) -> event.Submission:
    """A part of the next table, whose other part is to come."""
    return events.part(1, "10.0.0.9", region=rest.REGION, **fields)


def hosts(shown: dict[str, Any]) -> list[str]:
    return [pod["hostIP"] for pod in shown["pods"]]


async def test_job_shows_nothing_until_its_first_table_is_complete(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    first, second = table()
    await ledger.receipts(second)
    waiting = (await api.job()).object
    await ledger.receipts(first)
    whole = (await api.job()).object

    assert (waiting["status"], waiting["replicas"], hosts(waiting)) == ("Running", 0, [])
    assert (whole["replicas"], sorted(hosts(whole))) == (4, sorted(ALL))


async def test_incomplete_table_leaves_the_last_one_shown_and_all_else_is_the_newest_parts(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await ledger.receipts(*table())
    await ledger.receipts(next_part(job_status="failed"))

    shown = (await api.job()).object

    assert (shown["status"], shown["replicas"], hosts(shown)) == ("Failed", 4, list(ALL))


async def test_lists_and_the_past_show_the_same_table(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await ledger.receipts(*table(), next_part(), events.submission("other", region=rest.REGION))
    await ledger.receipts(events.part(0, *ALL[:3], region=rest.REGION))
    target = f"/v4/cwai/jobs?regionID={rest.REGION}&name=train"

    present = (await api.get(f"{target}&detail=true")).object["results"]
    past = (await api.get(f"{target}&detail=true&asOf=3")).object["results"]
    counted = (await api.get(target)).object["results"]
    then = [
        (await api.get(f"/v4/cwai/job/job-1?regionID={rest.REGION}&asOf={at}")).object for at in range(1, 6)
    ]

    by_id = {each["jobID"]: each for each in present}
    assert hosts(by_id["job-1"]) == ["10.0.0.9", *ALL[:3]]
    assert hosts(by_id["other"]) == []
    assert [hosts(each) for each in past] == [list(ALL)]
    assert {each["jobID"]: each["replicas"] for each in counted} == {"job-1": 4, "other": 0}
    assert [hosts(each) for each in then] == [[], *[list(ALL)] * 3, ["10.0.0.9", *ALL[:3]]]


@pytest.mark.parametrize("batches", [[4], [2, 1, 1]])
async def test_description_takes_the_joined_table_as_one_whole_signal(
    ledger: ledgers.Ledger, api: rest.Rest, connection: auditing.Connection, batches: list[int]
) -> None:
    described = events.submission(
        detail={"name": "n"}, completes_all=True, job_status="", hccl_json="", cm_index="", total=""
    )
    said = iter([*table(), next_part(), described])
    for size in batches:
        await ledger.receipts(*itertools.islice(said, size))

    row = await connection.fetchrow("select * from job_events where position = 4")
    assert row is not None
    assert (row["job_status"], row["cm_index"], row["total"]) == ("running", 0, 1)
    assert [each.host_ip for each in ranktable.read(row["hccl"]).servers] == list(ALL)
    assert await connection.fetchval("select signal_positions from jobs") == [4]
    assert hosts((await api.job()).object) == list(ALL)


async def test_table_given_with_a_description_is_whole_though_the_job_came_in_parts(
    ledger: ledgers.Ledger, api: rest.Rest, connection: auditing.Connection
) -> None:
    await ledger.receipts(*table())
    given = json.loads(events.rank_table("10.0.0.7", server_count=2))

    await api.post({"name": "n", "signal": {"HcclJson": given}})

    assert await connection.fetchrow("select signal_positions, arriving from jobs") == ([3], None)
    assert hosts((await api.job()).object) == ["10.0.0.7"]


async def test_snapshot_is_every_part_by_itself_in_order(ledger: ledgers.Ledger) -> None:
    first, second = table()
    other = events.submission("other")
    await ledger.receipts(events.submission(region=rest.REGION), second, other, first, next_part())

    assert list(await ledger.read(4)) == [2, 3, 4, 5]


async def test_description_of_pods_holds_while_the_next_table_arrives(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await ledger.receipts(*table())
    await api.post({"replicas": 9})
    await ledger.receipts(next_part())
    arriving = (await api.job()).object["replicas"]
    await ledger.receipts(events.part(0, *ALL[:3], region=rest.REGION))

    assert (arriving, (await api.job()).object["replicas"]) == (9, 4)


async def test_verify_and_rebuild_agree_with_the_appends(
    ledger: ledgers.Ledger, database: str, connection: auditing.Connection
) -> None:
    for place in (0, 1, 1, 0, 2, 7, 0, 1):
        for n in range(3):
            await ledger.receipts(events.part(place, f"10.0.0.{place}", job_id=f"job-{n}", total=2 + n % 2))
    before = await connection.fetch("select * from jobs order by job_id")
    good = (await test_verify.verified(database)).finding
    await connection.execute("update jobs set arriving = null where job_id = 'job-0'")
    spoiled = (await test_verify.verified(database)).finding
    await connection.execute("delete from jobs where job_id = 'job-1'")

    report = await test_rebuild.rebuilt(database)

    assert good is None
    assert spoiled is not None
    assert "arriving" in spoiled.reason
    assert report == rebuild.Report(jobs=3, differed=2)
    assert await connection.fetch("select * from jobs order by job_id") == before


LISTS = ("null", "{}", '"[1]"', "3", "[]", "[{}]", '[1,"x"]', '[null,{"server_id":1},{}]')
COUNTS = (
    *map(str, range(5)), "2e0", "20e-1", "1E1", "2.0", "2.00e1", "-1", "9999999999", "2147483647",
    "2147483648",
    '"2"', '"02"', '" 2"', '"2.0"', '"\\u0032"', '"2\\n"', '"²"', '""', "null", "true", "[]"
)  # fmt: skip
tables = st.builds(
    '{{"status":"complete", "server_list" : {} , "server_count" : {} }}'.format,
    st.sampled_from(LISTS),
    st.sampled_from(COUNTS),
)


@hypothesis.settings(
    max_examples=200, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(texts=st.lists(tables, min_size=1, max_size=20))
@hypothesis.example(texts=['{"server_list":[]}', '{"server_count":2}', '{"server_count":2,"server_count":0}'])
@hypothesis.example(texts=["{}", "[]", "1", '"x"', "{", ""])
async def test_sql_and_the_service_tell_the_same_parts(
    connection: auditing.Connection, texts: list[str]
) -> None:
    rows = await connection.fetch("select audit.part_count(text) from unnest($1::text[]) as text", texts)

    assert [row[0] for row in rows] == [ranktable.missing_servers_of(text) for text in texts]


async def test_jobs_are_read_with_their_parts(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    await ledger.receipts(*table(), next_part())

    found = (await jobs.current(connection, ["job-1"]))["job-1"]

    assert (found.signal_positions, found.table_positions) == ((1, 2, 3), (1, 2))
