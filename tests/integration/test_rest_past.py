"""One job as it was, all that was said of it, and whether a caller has its newest answer already."""

from __future__ import annotations

from uuid import UUID

import asyncpg
import pytest

from jobledger.model import returnobj
from tests.support import cwai, events, ledgers, rest

TARGET = "/v4/cwai/job/job-1?regionID=region-1"


async def two_lives(api: rest.Rest) -> list[str]:
    """Uuids of: add, change, delete, add of the same id."""
    answers = [
        await api.post({"name": "first", "command": ["a"]}),
        await api.post({"signal": {"jobStatus": "running"}}),
        await api.delete(),
        await api.post({"name": "second"}),
    ]
    return [answer.object["uuid"] for answer in answers]


# As it was


async def test_job_is_shown_as_of_each_position_and_uuid(api: rest.Rest) -> None:
    uuids = await two_lives(api)

    for at in ("1", uuids[0]):
        shown = (await api.get(f"{TARGET}&asOf={at}")).object
        cwai.assert_shape(shown)
        assert (shown["name"], shown["status"], shown["command"]) == ("first", "Pending", ["a"])
    assert (await api.get(f"{TARGET}&asOf=2")).object["status"] == "Running"
    assert (await api.get(f"{TARGET}&asOf=3")).code == "NotFound"
    assert (await api.get(f"{TARGET}&asOf=3&includeDeleted=true")).object["deleteTime"] != ""
    assert (await api.get(f"{TARGET}&asOf=4")).object == (await api.job()).object
    assert (await api.job()).object["command"] == []


async def test_job_is_shown_as_of_a_time(
    api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await two_lives(api)
    times = [row[0] for row in await connection.fetch("select recorded_at from job_events order by position")]

    shown = [
        (await api.get(f"{TARGET}&asOf={moment.isoformat()}")).envelope.get("returnObj", {}).get("name")
        for moment in times
    ]
    now = await connection.fetchval("select clock_timestamp()")

    assert shown == ["first", "first", None, "second"]
    assert (await api.get(f"{TARGET}&asOf={now.isoformat()}")).object["name"] == "second"
    assert (await api.get(f"{TARGET}&asOf=2001-01-01T00:00:00Z")).code == "NotFound"


@pytest.mark.parametrize(
    "at",
    [
        "0",
        "5",
        "-1",
        "x",
        "2999-01-01T00:00:00Z",
        "2023-01-01",
        "018f1f3c-0000-7000-8000-000000000001",
        "1" * 30,
    ],
)
async def test_time_that_the_log_does_not_hold_is_refused(api: rest.Rest, at: str) -> None:
    await two_lives(api)

    code, message = (await api.get(f"{TARGET}&asOf={at}")).failure

    assert code == "BadRequest"
    assert message.startswith("asOf: ")


async def test_what_was_pruned_cannot_be_asked_for(
    api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await two_lives(api)
    await connection.execute("update ledger_info set floor = 2")

    for at in ("1", "2", "2001-01-01T00:00:00Z"):
        code, message = (await api.get(f"{TARGET}&asOf={at}")).failure
        assert code == "BadRequest"
        assert "pruned" in message
    assert (await api.get(f"{TARGET}&asOf=4")).object["name"] == "second"


async def test_ended_job_is_shown_to_who_asks_for_ended_ones(api: rest.Rest) -> None:
    await api.post({})
    alive = (await api.get(f"{TARGET}&includeDeleted=true")).object
    await api.delete()
    ended = (await api.get(f"{TARGET}&includeDeleted=true")).object

    cwai.assert_shape(alive, {**cwai.RETURN_OBJ, "deleteTime": str})
    assert (alive["deleteTime"], alive["finishTime"]) == ("", "")
    assert ended["deleteTime"] == ended["finishTime"] != ""
    assert (await api.get(f"{TARGET}&includeDeleted=perhaps")).code == "BadRequest"


# What was said


async def test_history_tells_every_event_and_what_it_changed(api: rest.Rest) -> None:
    uuids = await two_lives(api)

    told = (await api.get("/v4/cwai/job/job-1/events?regionID=region-1")).object

    assert [each["uuid"] for each in told["results"]] == uuids
    assert [(each["position"], each["operator"], each["jobStatus"]) for each in told["results"]] == [
        (1, "add", "pending"),
        (2, "add", "running"),
        (3, "delete", "running"),
        (4, "add", "pending"),
    ]
    changed = [each["changed"] for each in told["results"]]
    assert {"jobName", "regionID", "detail.name", "detail.command"} <= set(changed[0])
    assert changed[1] == ["jobStatus"]
    assert changed[2] == ["deleteTime"]
    assert "detail.name" in changed[3]
    assert "detail.command" not in changed[3]
    assert told["results"][0]["recordedAt"].endswith("Z")


async def test_history_goes_on_where_its_cursor_says(api: rest.Rest) -> None:
    await two_lives(api)
    target = "/v4/cwai/job/job-1/events?regionID=region-1"
    whole = (await api.get(target)).object["results"]

    first = (await api.get(f"{target}&pageSize=1")).object
    second = (await api.get(f"{target}&pageSize=3&cursor={first['cursor']}")).object

    assert first["results"] + second["results"] == whole
    assert second["cursor"] == ""


async def test_history_of_an_unknown_or_foreign_job_is_not_found(api: rest.Rest) -> None:
    await api.post({"userID": "mine"})

    assert (await api.get("/v4/cwai/job/other/events?regionID=region-1")).code == "NotFound"
    assert (await api.get("/v4/cwai/job/job-1/events?regionID=region-2")).code == "NotFound"
    assert (await api.get("/v4/cwai/job/job-1/events")).code == "BadRequest"
    assert (
        await api.get("/v4/cwai/job/job-1/events?regionID=region-1", userID="other")
    ).code == "StatusUnauthorized"


# Whether it changed


async def test_caller_that_has_the_answer_is_told_so_without_making_it(
    api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.post({})
    etag = (await api.get(TARGET)).headers["ETag"]

    def unneeded(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(returnobj, "build", unneeded)
    for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = await api.get(TARGET, **{"If-None-Match": given})
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
        assert answer.headers["Vary"] == "Accept, Authorization, regionID, userID, accountID"


async def test_etag_changes_with_the_job_its_life_and_the_way_it_is_shown(
    ledger: ledgers.Ledger, api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await api.post({})
    tags = [(await api.get(TARGET)).headers["ETag"]]
    tags.append((await api.get(f"{TARGET}&includeDeleted=true")).headers["ETag"])
    tags.append((await api.get(f"{TARGET}&asOf=1")).headers["ETag"])
    async with rest.serving(ledger, zone="UTC") as elsewhere:
        tags.append((await elsewhere.get(TARGET)).headers["ETag"])
    await api.delete()
    await api.post({})
    tags.append((await api.get(TARGET)).headers["ETag"])
    await connection.execute("insert into ledger_epochs values ($1, 2, 2)", UUID(int=1))
    tags.append((await api.get(TARGET)).headers["ETag"])

    assert len(set(tags)) == len(tags)
    assert (await api.get(TARGET, **{"If-None-Match": tags[0]})).object["jobID"] == "job-1"


async def test_failure_has_no_etag_and_is_nobodys_to_keep(api: rest.Rest) -> None:
    await api.post({"userID": "mine"})
    etag = (await api.get(TARGET)).headers["ETag"]

    foreign = await api.get(TARGET, **{"If-None-Match": etag, "userID": "other"})

    assert foreign.code == "StatusUnauthorized"
    assert "ETag" not in foreign.headers
    assert foreign.headers["Cache-Control"] == "no-store"


async def test_past_of_a_job_with_many_events_is_folded_up_to_its_position(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await ledger.receipts(
        *(events.submission("job-1", region=rest.REGION, job_name=f"n{number}") for number in range(300))
    )

    assert (await api.get(f"{TARGET}&asOf=150")).object["name"] == "n149"
