"""What POST and DELETE under ``/v4/cwai/job`` record and answer, and for whom."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from jobledger.model import jsontext
from jobledger.model.signal import INITIALIZING
from jobledger.store import eventlog
from jobledger.web import submissions
from tests.support import events, ledgers, polling, rest

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
RANK_TABLE = events.rank_table("10.0.0.1", "10.0.0.2")


class Described(dict[str, jsontext.Tree]):
    """A description that can be followed: a plain dict cannot."""


async def recorded(connection: Connection, position: int = 1) -> asyncpg.Record:
    """An event as the log holds it."""
    row = await connection.fetchrow("select * from job_events where position = $1", position)
    assert row is not None
    return row


async def logged(connection: Connection) -> int:
    return await connection.fetchval("select count(*) from job_events")


# Answers


async def test_write_answers_where_its_event_is(api: rest.Rest) -> None:
    posted = await api.post({})
    deleted = await api.delete()

    assert list(posted.object) == ["jobID", "uuid", "position", "duplicate"]
    assert posted.object["jobID"] == "job-1"
    assert UUID(posted.object["uuid"]).version == 4
    assert [(each.object["position"], each.object["duplicate"]) for each in (posted, deleted)] == [
        (1, False),
        (2, False),
    ]
    assert [each.headers["X-Ledger-Position"] for each in (posted, deleted)] == ["1", "2"]


async def test_write_that_waits_keeps_nothing_of_what_its_body_was_read_into(
    api: rest.Rest, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[weakref.ref[Described]] = []
    read = submissions.read

    def followed(text: str) -> submissions.Posted:
        posted = read(text)
        assert isinstance(posted.tree, dict)
        tree = Described(posted.tree)
        kept.append(weakref.ref(tree))
        return msgspec.structs.replace(posted, tree=tree)

    def is_forgotten() -> None:
        assert [each() for each in kept] == [None]

    monkeypatch.setattr(submissions, "read", followed)
    monkeypatch.setattr(eventlog, "_BEGIN", eventlog._BEGIN.replace("'5s'", "'5min'"))
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(19020, 1)")
        posting = asyncio.create_task(api.post({"name": "n"}))
        await polling.eventually(is_forgotten)
        assert not posting.done()

    assert (await posting).object["position"] == 1


async def test_answered_write_is_readable_at_once(api: rest.Rest) -> None:
    for number in range(20):
        await api.post({"name": f"name-{number}"})
        assert (await api.job()).object["name"] == f"name-{number}"


async def test_repeated_uuid_is_answered_as_a_duplicate_of_the_first(
    api: rest.Rest, connection: Connection
) -> None:
    uuid = str(uuid4())
    await api.post({"uuid": uuid, "name": "first"})
    await api.post({"name": "second"})

    again = await api.post({"uuid": uuid.upper(), "name": "first"})

    assert again.object == {"jobID": "job-1", "uuid": uuid, "position": 1, "duplicate": True}
    assert again.headers["X-Ledger-Position"] == "1"
    assert await logged(connection) == 2
    assert (await api.job()).object["name"] == "second"


async def test_same_content_said_elsewhere_in_the_request_is_a_duplicate(api: rest.Rest) -> None:
    uuid = str(uuid4())
    body = {"jobID": "job-1", "userID": "user-1", "regionID": rest.REGION, "uuid": uuid}
    assert (await api.call("POST", "/v4/cwai/job", json=body)).object["duplicate"] is False

    answer = await api.call(
        "POST",
        f"/v4/cwai/job?jobID=job-1&uuid={uuid}",
        json={},
        headers={"regionID": rest.REGION, "userID": "user-1"},
    )

    assert answer.object["duplicate"] is True


async def test_retry_with_another_secret_is_a_duplicate(api: rest.Rest) -> None:
    uuid = str(uuid4())
    await api.post({"uuid": uuid, "output": {"accessKeySecret": "one"}})

    assert (await api.post({"uuid": uuid, "output": {"accessKeySecret": "two"}})).object["duplicate"] is True


async def test_uuid_with_other_content_is_refused(api: rest.Rest, connection: Connection) -> None:
    uuid = str(uuid4())
    await api.post({"uuid": uuid, "name": "first"})

    code, message = (await api.post({"uuid": uuid, "name": "second"})).failure

    assert code == "BadRequest"
    assert message.startswith("uuid: ")
    assert uuid in message
    assert await logged(connection) == 1


# What is recorded


async def test_first_post_starts_a_life_with_the_defaults(api: rest.Rest, connection: Connection) -> None:
    await api.post({"name": "train", "trainFrame": "Pytorch", "createTime": "2023-10-13 11:22:01"})

    event = await recorded(connection)

    assert event["operator"] == "add"
    assert event["job_status"] == "pending"
    assert event["hccl"] == '{"status":"initializing"}'
    assert (event["job_name"], event["framework"]) == ("train", "pytorch")
    assert event["job_time"].timestamp() == 1697167321
    assert event["publisher"] == "anonymous@127.0.0.1"


@pytest.mark.parametrize(
    ("word", "job_status"),
    [("Pending", "pending"), ("Running", "running"), ("Succeeded", "complete"), ("Failed", "failed")],
)
async def test_job_status_comes_from_the_status_word(
    api: rest.Rest, connection: Connection, word: str, job_status: str
) -> None:
    await api.post({"status": word})

    assert (await recorded(connection))["job_status"] == job_status
    assert (await api.job()).object["status"] == word


async def test_unknown_status_word_needs_a_job_status_beside_it(api: rest.Rest) -> None:
    code, message = (await api.post({"status": "Queueing"})).failure

    assert code == "BadRequest"
    assert message.startswith("status: ")
    await api.post({"status": "Queueing", "signal": {"jobStatus": "pending"}})
    assert (await api.job()).object["status"] == "Queueing"


async def test_every_key_of_the_signal_is_recorded(api: rest.Rest, connection: Connection) -> None:
    signal = {
        "jobStatus": "running",
        "HcclJson": RANK_TABLE,
        "namespace": "team-a",
        "jobName": "wire-name",
        "frameWork": "mindspore",
        "time": "1700000000",
        "cmIndex": "0",
        "total": "1",
        "deleteTime": "1700000001",
        "sharedTorIp": '["10.0.0.1"]',
        "masterAddr": "10.0.0.9",
        "sid": "sid-1",
    }
    await api.post({"signal": signal})

    event = await recorded(connection)

    assert {
        "jobStatus": event["job_status"],
        "HcclJson": event["hccl"],
        "namespace": event["namespace"],
        "jobName": event["job_name"],
        "frameWork": event["framework"],
        "time": str(int(event["job_time"].timestamp())),
        "cmIndex": str(event["cm_index"]),
        "total": str(event["total"]),
        "deleteTime": str(int(event["delete_time"].timestamp())),
        "sharedTorIp": event["shared_tor_ip"],
        "masterAddr": event["master_addr"],
        "sid": event["sid"],
    } == signal


async def test_numbers_and_json_are_taken_where_the_wire_wants_text(
    api: rest.Rest, connection: Connection
) -> None:
    uuid = str(uuid4())
    as_text: dict[str, Any] = {
        "time": "1700000000",
        "cmIndex": "0",
        "total": "1",
        "sharedTorIp": '["10.0.0.1"]',
    }
    as_text["HcclJson"] = '{"status":"complete","server_list":[],"big":12345678901234567890123,"f":1.50}'
    values = '"time":1700000000,"cmIndex":0,"total":1,"sharedTorIp":["10.0.0.1"],'
    values += f'"HcclJson":{as_text["HcclJson"]}'
    text = f'{{"jobID":"job-1","regionID":"region-1","uuid":"{uuid}","signal":{{{values}}}}}'
    await api.call("POST", "/v4/cwai/job", data=text, headers={"Content-Type": "application/json"})

    again = await api.post({"uuid": uuid, "signal": as_text})

    assert again.object["duplicate"] is True
    assert (await recorded(connection))["hccl"] == as_text["HcclJson"]


async def test_null_is_not_given(api: rest.Rest, connection: Connection) -> None:
    signal = {"jobStatus": None, "HcclJson": None, "total": None}
    await api.post({"uuid": None, "userID": None, "name": None, "signal": signal})
    await api.post({"signal": None})

    assert (await recorded(connection))["job_status"] == "pending"
    assert await logged(connection) == 2


async def test_describing_a_running_job_keeps_what_is_not_given(
    ledger: ledgers.Ledger, api: rest.Rest, connection: Connection
) -> None:
    await ledger.receipts(
        events.submission(
            "job-1",
            region=rest.REGION,
            job_status="running",
            hccl_json=RANK_TABLE,
            namespace="team-a",
            sid="7",
        )
    )

    await api.post({"comment": "described"})

    shown, event = (await api.job()).object, await recorded(connection, 2)
    assert (shown["status"], shown["replicas"], shown["comment"]) == ("Running", 2, "described")
    assert (event["job_status"], event["hccl"], event["namespace"], event["sid"]) == (
        "running",
        RANK_TABLE,
        "team-a",
        "7",
    )


async def test_signal_alone_keeps_the_description(api: rest.Rest, connection: Connection) -> None:
    await api.post({"comment": "kept"})

    await api.post({"signal": {"jobStatus": "running"}})

    assert (await recorded(connection, 2))["detail"] is None
    shown = (await api.job()).object
    assert (shown["comment"], shown["status"]) == ("kept", "Running")


async def test_life_after_a_delete_has_nothing_of_the_one_before(api: rest.Rest) -> None:
    await api.post({"name": "old", "comment": "old", "status": "Running", "userID": "old"})
    await api.delete()
    await api.post({"regionID": "region-2"})

    shown = (await api.job(region="region-2")).object
    assert [shown[key] for key in ("name", "comment", "status", "userID")] == ["", "", "Pending", ""]


async def test_life_that_begins_with_a_bare_post_takes_no_rank_table_or_end_from_the_one_before(
    api: rest.Rest, ledger: ledgers.Ledger, connection: Connection
) -> None:
    first = events.submission(
        region=rest.REGION, job_status="running", hccl_json=RANK_TABLE, namespace="old", sid="old"
    )
    await ledger.receipts(first)
    await ledger.receipts(
        events.submission(job_status="complete", hccl_json=RANK_TABLE, delete_time="1700000900")
    )
    assert len((await api.job()).object["pods"]) == 2
    await api.delete()
    await api.post({})
    begun = (await api.job()).object
    [again] = await ledger.receipts(first)

    assert again.duplicate
    assert (begun["pods"], begun["replicas"], begun["finishTime"]) == ([], 0, "")
    row = await recorded(connection, 4)
    assert (row["namespace"], row["sid"], row["hccl"]) == ("", "", INITIALIZING)
    assert (await api.job()).object == begun


async def test_late_retry_of_the_first_add_does_not_bring_a_deleted_job_back(api: rest.Rest) -> None:
    uuid = str(uuid4())
    await api.post({"uuid": uuid})
    await api.delete()

    assert (await api.post({"uuid": uuid})).object["duplicate"] is True
    assert (await api.job()).code == "NotFound"


# Owners and regions


async def test_owner_in_the_headers_fills_in_for_the_body(api: rest.Rest) -> None:
    await api.post({}, userID="user-1", accountID="account-1")

    shown = (await api.job()).object

    assert (shown["userID"], shown["accountID"]) == ("user-1", "account-1")


@pytest.mark.parametrize("name", ["userID", "accountID"])
async def test_header_that_contradicts_the_bodys_owner_is_refused(
    api: rest.Rest, connection: Connection, name: str
) -> None:
    assert (await api.post({name: "one"}, **{name: "two"})).code == "StatusUnauthorized"
    assert await logged(connection) == 0
    assert (await api.post({name: "one"}, **{name: "one"})).object


@pytest.mark.parametrize("name", ["userID", "accountID"])
async def test_writing_to_a_live_job_of_another_owner_is_refused(
    api: rest.Rest, connection: Connection, name: str
) -> None:
    await api.post({name: "one"})

    assert (await api.post({}, **{name: "two"})).code == "StatusUnauthorized"
    assert (await api.delete(**{name: "two"})).code == "StatusUnauthorized"
    assert await logged(connection) == 1


async def test_ended_job_belongs_to_nobody(api: rest.Rest) -> None:
    await api.post({"userID": "one"})
    await api.delete(userID="one")

    assert (await api.delete(userID="two")).object["position"] == 3
    await api.post({}, userID="two")
    assert (await api.job(userID="two")).object["userID"] == "two"


async def test_post_in_another_region_than_the_live_jobs_is_refused(
    api: rest.Rest, connection: Connection
) -> None:
    await api.post({})

    code, message = (await api.post({"regionID": "region-2"})).failure

    assert code == "BadRequest"
    assert message.startswith("regionID: ")
    assert await logged(connection) == 1


@pytest.mark.parametrize(
    ("query", "body", "header", "words"),
    [
        ("", {}, {}, "regionID is missing"),
        ("?regionID=a", {"regionID": "b"}, {}, "'b' in the body"),
        ("", {"regionID": "b"}, {"regionID": "a"}, "'b' in the body"),
        ("?regionID=a", {}, {"regionID": "b"}, "'b' in the header"),
        ("?regionID=a&regionID=a", {}, {}, "given 2 times"),
        ("", {"regionID": 5}, {}, "regionID: is no string"),
        ("?jobID=job-2", {"regionID": "a"}, {}, "'job-1' in the body"),
        (f"?uuid={UUID(int=1)}", {"regionID": "a", "uuid": str(UUID(int=2))}, {}, "uuid is"),
    ],
)
async def test_missing_or_contradictory_parameter_of_a_post_is_refused(
    api: rest.Rest, query: str, body: dict[str, Any], header: dict[str, str], words: str
) -> None:
    whole = {"jobID": "job-1", **body}

    code, message = (await api.call("POST", f"/v4/cwai/job{query}", json=whole, headers=header)).failure

    assert code == "BadRequest"
    assert words in message


async def test_region_of_a_post_may_stand_in_the_query_or_the_header(api: rest.Rest) -> None:
    assert (await api.call("POST", "/v4/cwai/job?regionID=region-1", json={"jobID": "a"})).object
    headers = {"regionID": "region-1"}
    assert (await api.call("POST", "/v4/cwai/job", json={"jobID": "b"}, headers=headers)).object
    assert (await api.job("a")).object
    assert (await api.job("b")).object
