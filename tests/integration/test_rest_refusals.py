"""Which bodies POST refuses, and how it says so."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeAlias

import asyncpg
import pytest

from tests.support import ledgers, rest

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def logged(connection: Connection) -> int:
    return await connection.fetchval("select count(*) from job_events")


UNRECORDABLE: list[tuple[dict[str, Any], str]] = [
    ({"jobID": ""}, "jobID is missing"),
    ({"jobID": 5}, "jobID: is no string"),
    ({"jobID": "a\0b"}, "U+0000"),
    ({"jobID": "a\nb"}, "jobID"),
    ({"jobID": "x" * 257}, "257 characters"),
    ({"regionID": "x" * 600}, "has 600 characters; it may have 512"),
    ({"uuid": "no-uuid"}, "uuid: 'no-uuid' is not a uuid"),
    ({"uuid": 7}, "uuid: is no string"),
    ({"name": 5}, "name: "),
    ({"name": "x" * 513}, "name: 'xxx"),
    ({"queueID": "x" * 513}, "has 513 characters; use at most 512"),
    ({"nmae": "x"}, "did you mean name"),
    ({"replicas": 2**40}, "replicas: "),
    ({"createTime": "yesterday"}, "createTime: "),
    ({"statusCode": 800, "returnObj": {}}, "statusCode: is not a key"),
    ({"signal": []}, "signal: is no object"),
    (
        {"signal": {"jobStatuz": "x"}},
        "signal.jobStatuz: is not a key of signal; allowed are jobStatus, HcclJ",
    ),
    ({"signal": {"uuid": "x"}}, "uuid: is not a key of signal"),
    ({"signal": {"operator": "delete"}}, "signal.operator: is not a key"),
    ({"signal": {"jobStatus": "Running"}}, "signal.jobStatus: 'Running' is no job status"),
    ({"signal": {"jobStatus": {}}}, "signal.jobStatus: has the wrong type"),
    ({"signal": {"time": 1.5}}, "signal.time: has the wrong type"),
    ({"signal": {"time": True}}, "signal.time: has the wrong type"),
    ({"signal": {"time": -1}}, "signal.time: '-1'"),
    ({"signal": {"HcclJson": "[]"}}, "signal.HcclJson: is no JSON object"),
    ({"signal": {"HcclJson": [1]}}, "signal.HcclJson: is no JSON object"),
    ({"signal": {"HcclJson": 5}}, "signal.HcclJson: has the wrong type"),
    ({"name": "\ud800"}, "half of a surrogate pair"),
    ({"comment": "a\0"}, "comment: contains U+0000"),
    ({"signal": {"HcclJson": '{"a":"\\u0000"}'}}, "U+0000"),
    ({"signal": {"HcclJson": '{"a\\u0000":1}'}}, "signal.HcclJson, in a key: contains U+0000"),
    ({"signal": {"HcclJson": {"a\0": 1}}}, "signal.HcclJson, in a key: contains U+0000"),
    ({"pods": [{"yaml": {"a\0": 1}}]}, "pods[0].yaml, in a key: contains U+0000"),
    ({"signal": {"namespace": "\0"}}, "signal.namespace: contains U+0000"),
]


async def test_body_that_cannot_be_recorded_is_refused_by_field(
    api: rest.Rest, connection: Connection
) -> None:
    for body, words in UNRECORDABLE:
        code, message = (await api.post(body)).failure

        assert code == "BadRequest", body
        assert words in message, body
    assert await logged(connection) == 0


async def test_jobs_that_are_refused_hurt_none_of_those_posted_with_them(
    api: rest.Rest, connection: Connection
) -> None:
    bodies = [body for body, _ in UNRECORDABLE]

    answers = await asyncio.gather(
        *(api.post(body) for body in bodies), *(api.post({"jobID": f"good-{n}"}) for n in range(len(bodies)))
    )

    assert {answer.code for answer in answers[: len(bodies)]} == {"BadRequest"}
    recorded = [answer.object["position"] for answer in answers[len(bodies) :]]
    assert sorted(recorded) == list(range(1, len(bodies) + 1))
    assert await logged(connection) == len(bodies)


NO_JSON: list[tuple[bytes, dict[str, str], str]] = [
    (b"", {}, "body: is no JSON"),
    (b"{", {}, "body: is no JSON"),
    (b"[]", {}, "body: is no JSON object"),
    (b"null", {}, "body: is no JSON object"),
    (b'{"jobID":"a","jobID":"b"}', {}, "'jobID' twice"),
    (b'{"jobID":"a","name":"\xff"}', {}, "the body is not UTF-8 at byte 21"),
    (b'{"a":' * 100_000, {}, "nests deeper"),
    (b'{"a":NaN}', {}, "NaN"),
    (
        b"jobID=a",
        {"Content-Type": "application/x-www-form-urlencoded"},
        "send Content-Type: application/json",
    ),
    (b"{}", {"Content-Type": "text/plain"}, "send Content-Type: application/json"),
    (b"{}", {"Content-Type": "application/json; charset=gbk"}, "charset is 'gbk'"),
    (b"{}", {"Content-Encoding": "gzip"}, "encoded as 'gzip'"),
]


async def test_body_that_is_no_json_in_utf_8_is_refused(api: rest.Rest) -> None:
    for data, headers, words in NO_JSON:
        labelled = {"Content-Type": "application/json", **headers}

        answer = await api.call("POST", "/v4/cwai/job?regionID=a", data=data, headers=labelled)

        assert answer.code == "BadRequest", data[:40]
        assert words in answer.failure[1], data[:40]


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=UTF-8", "application/cwai+json", ""]
)
async def test_json_is_taken_under_each_of_its_labels(api: rest.Rest, kind: str) -> None:
    head = b"POST /v4/cwai/job?regionID=region-1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    head += b"Content-Length: 13\r\n"
    label = f"Content-Type: {kind}\r\n".encode() if kind else b""

    answer = rest.parsed(await api.raw(head + label + b'\r\n{"jobID":"a"}'))

    assert answer.object["jobID"] == "a"


async def test_body_over_the_limit_is_refused_and_the_next_call_works(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, request_limit_bytes=10_000) as api:
        code, message = (await api.post({"comment": "x" * 10_000})).failure
        assert code == "BadRequest"
        assert "the limit is 10000 bytes" in message

        assert (await api.post({"comment": "x" * 9_000})).object["position"] == 1


async def test_largest_event_is_recorded_and_one_byte_more_is_refused(api: rest.Rest) -> None:
    async def post(size: int) -> rest.Answer:
        return await api.post({"signal": {"HcclJson": json.dumps({"pad": "x" * size})}})

    code, message = (await post(4_200_000)).failure
    assert code == "BadRequest"
    over = int(message.split(" bytes exceed")[0].rsplit(" ", 1)[1]) - ledgers.EVENT_LIMIT_BYTES

    assert (await post(4_200_000 - over)).object["position"] == 1
    # A different job would have other lengths; the same one is complete by now and stays so.
    assert (await post(4_200_000 - over + 1)).code == "BadRequest"


async def test_description_over_its_limit_is_refused(api: rest.Rest) -> None:
    code, message = (await api.post({"comment": "x" * (4 << 20)})).failure

    assert code == "BadRequest"
    assert "exceed the limit of 4194304" in message
