"""What a list looks at no second time: how many jobs it has, and how many servers a rank table."""

from __future__ import annotations

from typing import Any

import pytest

from jobledger.ledger import walk
from jobledger.store import eventlog
from tests.support import events, ledgers, rest


def job(name: str, **fields: Any) -> Any:
    return events.submission(name, region=rest.REGION, **fields)


async def listed(api: rest.Rest, query: str = "", **headers: str) -> dict[str, Any]:
    return (await api.get(f"/v4/cwai/jobs?regionID={rest.REGION}&pageSize=2{query}", **headers)).object


def names(page: dict[str, Any]) -> list[str]:
    return [each["jobID"] for each in page["results"]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was counted."""
    wanted: list[object] = []
    count = walk.store_listing.count

    async def noted(connection: Any, asked: Any, **named: Any) -> int:
        wanted.append(asked)
        return await count(connection, asked, **named)

    monkeypatch.setattr(walk.store_listing, "count", noted)
    return wanted


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["c", "b", "a"]),
        ("&isDesc=false", ["a", "b", "c"]),
        ("&sort=changed", ["c", "b", "a"]),
        ("&sort=finished&isDesc=false", ["a", "b", "c"]),
        ("&sort=name", ["c", "b", "a"]),
        ("&status=Pending", ["c", "b", "a"]),
        ("&namespace=default", ["c", "b", "a"]),
        ("&includeDeleted=true", ["c", "b", "a"]),
        ("&statusText=Pending", ["c", "b", "a"]),
        ("&namespace=default&status=Pending", ["c", "b", "a"]),
        ("&name=t", ["c", "b", "a"]),
    ],
)
async def test_list_is_counted_once_until_something_happens(
    ledger: ledgers.Ledger, api: rest.Rest, counted: list[object], query: str, found: list[str]
) -> None:
    await ledger.receipts(*(job(name, job_name=f"t{name}", time=f"170000000{ord(name)}") for name in "abc"))

    first, again = await listed(api, query), await listed(api, query)
    second = await listed(api, f"{query}&cursor={first['cursor']}")

    assert first == again
    assert (names(first) + names(second), second["cursor"]) == (found, "")
    assert {page["totalCount"] for page in (first, second)} == {3}
    assert len(counted) == 1

    await ledger.receipts(events.deletion("b"), job("d", job_name="td", time="1800000000"), job("e"))

    later = await listed(api, query)
    assert (await listed(api, f"{query}&cursor={first['cursor']}"))["results"] == second["results"]
    assert later["totalCount"] == 4 + ("includeDeleted" in query)
    assert len(counted) == 2


async def test_page_by_number_goes_as_far_as_there_are_jobs(
    ledger: ledgers.Ledger, api: rest.Rest, counted: list[object]
) -> None:
    await ledger.receipts(*(job(name, time=f"170000000{ord(name)}") for name in "abc"))
    await listed(api)

    pages = [await listed(api, f"&pageNo={number}") for number in (1, 2, 3)]

    assert [names(page) for page in pages] == [["c", "b"], ["a"], []]
    assert [page["totalCount"] for page in pages] == [3] * 3
    assert len(counted) == 1


async def test_rank_table_is_read_once_to_count_its_servers(
    ledger: ledgers.Ledger, api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    at = eventlog.at

    async def noted(connection: Any, positions: Any, **named: Any) -> Any:
        read.extend(positions)
        return await at(connection, positions, **named)

    monkeypatch.setattr(eventlog, "at", noted)
    two, three = (events.rank_table(*(f"10.0.0.{n}" for n in range(count))) for count in (2, 3))
    await ledger.receipts(
        job("a", job_status="running", hccl_json=two), job("b", job_status="running", hccl_json=two)
    )

    async def replicas() -> dict[str, int]:
        return {each["jobID"]: each["replicas"] for each in (await listed(api))["results"]}

    assert [await replicas(), await replicas()] == [{"a": 2, "b": 2}] * 2
    assert len(read) == 1

    await ledger.receipts(job("b", job_status="running", hccl_json=three))

    assert [await replicas(), await replicas()] == [{"a": 2, "b": 3}] * 2
    assert read[1:] == [3]
