"""Lists: which jobs, in which order, page by page of one moment, now and in the past."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from jobledger.ledger import walk
from jobledger.store import listing
from tests.support import cwai, events, ledgers, rest
from tests.support import postgres as support

LISTED = {
    key: kind
    for key, kind in cwai.RETURN_OBJ.items()
    if key not in ("pods", "command", "envs", "datasets", "output", "logOutput")
}


async def ask(api: rest.Rest, headers: dict[str, str] | None = None, **asked: Any) -> rest.Answer:
    """Ask by POST."""
    body = json.dumps({"regionID": rest.REGION, **asked}).encode()
    labelled = {"Content-Type": "application/json", **(headers or {})}
    return await api.call("POST", "/v4/cwai/job/list", data=body, headers=labelled)


async def ids(api: rest.Rest, headers: dict[str, str] | None = None, **asked: Any) -> list[str]:
    return [job["jobID"] for job in (await ask(api, headers, **asked)).object["results"]]


async def walk_through(api: rest.Rest, **asked: Any) -> list[str]:
    """All ids, by the cursor."""
    found: list[str] = []
    cursor = ""
    while True:
        page = (await ask(api, cursor=cursor, **asked)).object
        found += [job["jobID"] for job in page["results"]]
        cursor = page["cursor"]
        if not cursor:
            return found


def job(name: str, **fields: Any) -> Any:
    return events.submission(name, region=rest.REGION, **fields)


async def some_jobs(ledger: ledgers.Ledger) -> None:
    await ledger.receipts(
        job(
            "a", time="1700000001", user_id="u1", account_id="x", detail={"queueID": "q1", "name": "训练-一"}
        ),
        job("b", time="1700000002", job_status="running", namespace="team", detail={"status": "排队"}),
        job("c", time="1700000003", job_status="complete", delete_time="1700000009", user_id="u2"),
        job("d", time="1700000004", job_status="failed", delete_time="1700000008", framework="mindspore"),
        events.submission("elsewhere", region="region-2"),
        job("gone", time="1700000005"),
        events.deletion("gone", delete_time="1700000010"),
    )


async def fill(database: str) -> None:
    async with ledgers.running(database) as ledger:
        await some_jobs(ledger)


@pytest.fixture(scope="module")
def filled(postgres: support.Postgres) -> Iterator[str]:
    with postgres.shared(fill) as dsn:
        yield dsn


@pytest.fixture
async def reading(filled: str) -> AsyncIterator[rest.Rest]:
    """REST over some jobs, for tests that only read."""
    async with ledgers.running(filled) as ledger, rest.serving(ledger) as running:
        yield running


async def test_list_has_every_key_with_its_type(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await some_jobs(ledger)

    listed = (await ask(api)).object

    assert list(listed) == ["currentCount", "totalCount", "totalPage", "results", "cursor"]
    assert (listed["currentCount"], listed["totalCount"], listed["totalPage"]) == (4, 4, 1)
    for each in listed["results"]:
        cwai.assert_shape(each, LISTED)


async def test_newest_jobs_of_the_region_come_first_without_ended_ones(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await some_jobs(ledger)

    assert await ids(api) == ["d", "c", "b", "a"]


async def test_get_lists_what_post_lists(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await some_jobs(ledger)

    by_get = await api.get("/v4/cwai/jobs?regionID=region-1&pageSize=2&isDesc=false&pageNo=2")
    by_post = await ask(api, pageSize=2, isDesc=False, pageNo=2)

    assert by_get.object == by_post.object
    assert [each["jobID"] for each in by_get.object["results"]] == ["c", "d"]
    assert by_get.object["totalPage"] == 2


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"status": "Pending"}, ["a"]),
        ({"status": "Running"}, ["b"]),
        ({"status": "Succeeded"}, ["c"]),
        ({"status": "Failed"}, ["d"]),
        ({"statusText": "排队"}, ["b"]),
        ({"name": "训练-"}, ["a"]),
        ({"name": "tr%"}, []),
        ({"namespace": "team"}, ["b"]),
        ({"userID": "u1"}, ["a"]),
        ({"accountID": "x"}, ["a"]),
        ({"queueID": "q1"}, ["a"]),
        ({"resourceGroupID": "none"}, []),
        ({"trainFrame": "mindspore"}, ["d"]),
        ({"createdFrom": "2023-11-15 06:13:22", "createdTo": "2023-11-14T22:13:23Z"}, ["c", "b"]),
        ({"finishedFrom": "2023-11-14T22:13:29Z"}, ["c"]),
        ({"finishedTo": "2023-11-14T22:13:28Z"}, ["d"]),
        ({"changedTo": "2023-11-14T22:13:28Z"}, []),
        ({"status": "Pending", "includeDeleted": True}, ["gone", "a"]),
        ({"includeDeleted": True}, ["gone", "d", "c", "b", "a"]),
        ({"sort": "created", "isDesc": False}, ["a", "b", "c", "d"]),
        ({"sort": "finished"}, ["c", "d", "b", "a"]),
        ({"sort": "finished", "isDesc": False}, ["a", "b", "d", "c"]),
        ({"sort": "finished", "includeDeleted": True}, ["gone", "c", "d", "b", "a"]),
        ({"sort": "changed"}, ["d", "c", "b", "a"]),
        ({"sort": "name", "isDesc": False}, ["b", "c", "d", "a"]),
        ({"sort": "name"}, ["a", "d", "c", "b"]),
    ],
)
async def test_filters_and_orders_are_what_they_say(
    reading: rest.Rest, asked: dict[str, Any], found: list[str]
) -> None:
    assert await ids(reading, **asked) == found
    assert await walk_through(reading, pageSize=1, **asked) == found


@pytest.mark.parametrize(
    "asked", [{"sort": "created"}, {"sort": "finished"}, {"sort": "name", "isDesc": False}]
)
async def test_list_of_the_past_is_what_the_list_was(
    ledger: ledgers.Ledger, api: rest.Rest, asked: dict[str, Any]
) -> None:
    await some_jobs(ledger)
    then = (await ask(api, includeDeleted=True, **asked)).object["results"]
    await ledger.receipts(
        job("a", job_status="running", job_name="z"),
        events.deletion("b"),
        job("gone", time="1800000000"),
        job("new"),
        job("c", detail={"name": "other", "queueID": "q9"}),
    )

    past = (await ask(api, includeDeleted=True, asOf="7", **asked)).object

    assert past["results"] == then
    assert past["totalCount"] == 5
    assert await walk_through(api, includeDeleted=True, asOf="7", pageSize=2, **asked) == [
        each["jobID"] for each in then
    ]
    assert (await ask(api, asOf="7", includeDeleted=True, pageSize=2, pageNo=2, **asked)).object[
        "results"
    ] == then[2:4]


@pytest.mark.parametrize("name", ["训练-\u00e9", "训练-e\u0301"], ids=["composed", "decomposed"])
async def test_names_that_only_look_alike_are_told_apart(
    ledger: ledgers.Ledger, api: rest.Rest, name: str
) -> None:
    for each in ("训练-\u00e9", "训练-e\u0301"):
        await ledger.receipts(job(each, job_name=each, namespace=each))

    assert await ids(api, namespace=name) == [name]
    assert await ids(api, name=name) == [name]


async def test_thousand_jobs_of_one_moment_come_once_each_while_jobs_come_and_go(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    names = [f"job-{number:04}" for number in range(1_000)]
    await ledger.receipts(*(job(name, time="1700000000") for name in names))

    found: list[str] = []
    cursor = ""
    for number in range(100):
        page = (await ask(api, cursor=cursor, pageSize=25)).object
        assert page["totalCount"] == 1_000
        found += [each["jobID"] for each in page["results"]]
        cursor = page["cursor"]
        if not cursor:
            break
        await ledger.receipts(
            events.deletion(names[number * 3]),
            events.deletion(names[-number * 5 - 1]),
            job(f"new-{number}", time="1700000000"),
            job(names[number * 7], time="1700000000", job_status="running"),
        )

    assert found == names[::-1]


@pytest.mark.parametrize("as_of", ["", "4"])
async def test_late_delete_of_an_ended_job_makes_no_second_one_of_it(
    ledger: ledgers.Ledger, api: rest.Rest, as_of: str
) -> None:
    await ledger.receipts(job("a", time="1700000000"), job("b", time="1700000001"))
    await ledger.receipts(job("c", time="1700000002"), events.deletion("a"))
    first = (await ask(api, pageSize=1, includeDeleted=True, asOf=as_of)).object
    await ledger.receipts(events.deletion("a"), job("d"))

    rest_of_it = (await ask(api, pageSize=9, includeDeleted=True, asOf=as_of, cursor=first["cursor"])).object
    then = (await ask(api, includeDeleted=True, asOf="4")).object

    assert [each["jobID"] for each in first["results"] + rest_of_it["results"]] == ["c", "b", "a"]
    assert [each["jobID"] for each in then["results"]] == ["c", "b", "a"]
    assert then["totalCount"] == 3


async def test_page_of_a_cursor_shows_jobs_as_they_were(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await ledger.receipts(job("a", time="1700000000"), job("b", time="1700000001"))
    first = (await ask(api, pageSize=1)).object
    await ledger.receipts(job("a", time="1700000000", job_status="failed"))

    second = (await ask(api, pageSize=1, cursor=first["cursor"])).object

    assert [(each["jobID"], each["status"]) for each in second["results"]] == [("a", "Pending")]
    assert second["cursor"] == ""


async def test_cursor_expires_when_too_much_happened(
    ledger: ledgers.Ledger, api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.receipts(job("a"), job("b"))
    first = (await ask(api, pageSize=1)).object
    monkeypatch.setattr(walk, "CHANGES_LIMIT", 1)
    await ledger.receipts(job("c"), job("d"))

    code, message = (await ask(api, pageSize=1, cursor=first["cursor"])).failure

    assert (code, message) == ("BadRequest", "cursor expired, start again")


async def test_cursor_of_another_list_or_none_is_refused(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await some_jobs(ledger)
    cursor = (await ask(api, pageSize=1)).object["cursor"]

    assert "another list" in (await ask(api, cursor=cursor, status="Failed")).failure[1]
    assert "another list" in (await ask(api, cursor=cursor, sort="name")).failure[1]
    assert "malformed" in (await ask(api, cursor="x" * 7)).failure[1]
    assert "page 2" in (await ask(api, cursor=cursor, pageNo=3)).failure[1]
    assert "another moment" in (await ask(api, cursor=cursor, asOf="1")).failure[1]


async def test_walk_of_the_past_says_its_moment_once_or_on_every_page(reading: rest.Rest) -> None:
    first = (await ask(reading, pageSize=1, asOf="3")).object
    second = (await ask(reading, pageSize=1, cursor=first["cursor"])).object
    third = (await ask(reading, pageSize=1, cursor=second["cursor"], asOf="3")).object

    assert [page["results"][0]["jobID"] for page in (first, second, third)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("place", "value"),
    [(1, -1), (1, 2**63), (2, -5), (3, -1), (4, 2**62), (4, "x"), (5, "\0"), (5, "\ud800")],
)
async def test_cursor_that_was_made_up_is_refused(reading: rest.Rest, place: int, value: int | str) -> None:
    cursor = (await ask(reading, pageSize=1)).object["cursor"]
    given = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    given[place] = value

    answer = await ask(reading, cursor=base64.urlsafe_b64encode(json.dumps(given).encode()).decode())

    assert answer.code == "BadRequest"


async def test_plus_sign_of_a_time_need_not_be_encoded(reading: rest.Rest) -> None:
    answer = await reading.get(
        f"/v4/cwai/jobs?regionID={rest.REGION}"
        "&createdFrom=2023-11-15T06:13:22+08:00&createdTo=2023-11-15T06:13:23.0+08:00"
    )

    assert [job["jobID"] for job in answer.object["results"]] == ["c", "b"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"status": "running"}, "allowed are Pending, Running, Succeeded, Failed"),
        ({"sort": "size"}, "allowed are created, finished, changed, name"),
        ({"colour": "red"}, "allowed are regionID, status, statusText, name"),
        ({"pageSize": 501}, "pageSize"),
        ({"pageSize": 0}, "pageSize"),
        ({"pageNo": 0}, "pageNo"),
        ({"pageNo": "x"}, "pageNo"),
        ({"isDesc": "perhaps"}, "isDesc 'perhaps' is unknown; allowed are true, false"),
        ({"isDesc": 1}, "isDesc '1' is unknown; allowed are true, false"),
        ({"includeDeleted": "yes"}, "includeDeleted 'yes' is unknown; allowed are true, false"),
        ({"detail": "no"}, "detail 'no' is unknown; allowed are true, false"),
        ({"detail": True, "pageSize": 51}, "up to 50"),
        ({"createdFrom": "yesterday"}, "createdFrom"),
        ({"regionID": ""}, "regionID is missing"),
        ({"asOf": "no"}, "asOf"),
        ({"asOf": "0"}, "asOf"),
        ({"asOf": "99"}, "ends at 7"),
        ({"asOf": "018f1f3c-0000-7000-8000-000000000001"}, "is not in the log"),
        ({"asOf": "2999-01-01T00:00:00Z"}, "is to come"),
    ],
)
async def test_what_a_list_does_not_know_is_refused_with_what_it_does(
    reading: rest.Rest, asked: dict[str, Any], words: str
) -> None:
    query = "&".join(
        f"{name}={quote(str(value).lower() if value is True else str(value))}"
        for name, value in asked.items()
    )

    for answer in (
        await ask(reading, **asked),
        await reading.get(f"/v4/cwai/jobs?{'' if 'regionID' in asked else 'regionID=region-1&'}{query}"),
    ):
        code, message = answer.failure
        assert code == "BadRequest"
        assert words in message


async def test_detailed_list_shows_all_of_each_job(api: rest.Rest) -> None:
    await api.post(rest.example())
    region = rest.example()["regionID"]

    [listed] = (await ask(api, regionID=region, detail=True, pageSize=50)).object["results"]

    assert listed == (await api.job(rest.example()["jobID"], region)).object


async def test_ended_jobs_show_when_they_were_deleted(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await some_jobs(ledger)

    listed = (await ask(api, includeDeleted=True)).object["results"]
    detailed = (await ask(api, includeDeleted=True, detail=True)).object["results"]

    for each in (listed, detailed):
        assert [job["deleteTime"] for job in each] == ["2023-11-15 06:13:30", "", "", "", ""]


async def test_replicas_of_a_listed_job_come_from_its_rank_table(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    table = events.rank_table("10.0.0.1", "10.0.0.2")
    await ledger.receipts(job("a", job_status="running", hccl_json=table))

    assert (await ask(api)).object["results"][0]["replicas"] == 2


async def test_headers_narrow_a_list_to_their_owner_and_to_nobodys(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await some_jobs(ledger)

    assert await ids(api, {"userID": "u1"}) == ["d", "b", "a"]
    assert await ids(api, {"userID": "u1", "accountID": "y"}) == ["d", "b"]
    assert await ids(api, {"accountID": "x"}) == ["d", "c", "b", "a"]
    assert await ids(api, {"userID": "u1"}, userID="u2") == []
    assert await ids(api, {"userID": "u1"}, asOf="7", includeDeleted=True) == ["gone", "d", "b", "a"]


async def test_list_that_takes_too_long_is_told_to_be_narrowed(
    ledger: ledgers.Ledger,
    api: rest.Rest,
    connection: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "_BEGIN", listing._BEGIN.replace("'5s'", "'100ms'"))
    await some_jobs(ledger)
    async with connection.transaction():
        await connection.execute("lock table jobs in access exclusive mode")
        code, message = (await ask(api)).failure

    assert code == "BadRequest"
    assert "narrow it" in message
    assert await ids(api)


async def test_empty_list_before_the_first_event(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    await some_jobs(ledger)

    listed = (await ask(api, asOf="2001-01-01T00:00:00Z")).object

    assert (listed["results"], listed["totalCount"], listed["totalPage"]) == ([], 0, 0)
