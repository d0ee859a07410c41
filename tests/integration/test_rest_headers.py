"""What stands around every answer: ids, real statuses for who asks, methods, browsers, gzip."""

from __future__ import annotations

import json
import logging

import pytest

from jobledger import errors
from tests.support import ledgers, rest

PROBLEM = "application/problem+json"


async def test_every_answer_has_a_request_id_of_its_own(api: rest.Rest) -> None:
    targets = ("/healthz", "/nowhere", "/v4/cwai/job/a?regionID=r", "/v4/cwai/job/a")
    ids = [(await api.get(target)).headers["X-Request-Id"] for target in targets]

    assert len(set(ids)) == len(targets)


async def test_what_is_our_fault_names_the_id_of_its_header(
    ledger: ledgers.Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise errors.Overloaded("20000 events are waiting")

    monkeypatch.setattr(ledger.appender, "append", full)
    async with rest.serving(ledger) as api:
        answer = await api.post({})
        problem = await api.post({}, Accept=PROBLEM)

    request_id = answer.headers["X-Request-Id"]
    assert answer.failure[1] == f"overloaded, retry after 1 s (request {request_id})"
    assert [request_id in record.getMessage() for record in caplog.records] == [True, False]
    assert caplog.records[0].levelno == logging.WARNING
    assert (problem.status, problem.headers["Retry-After"]) == (503, "1")


async def statuses(api: rest.Rest, accept: str) -> list[int]:
    """The statuses of one failure of each kind."""
    await api.post({"uuid": "018f1f3c-0000-7000-8000-000000000001"})
    asked = [
        await api.get("/v4/cwai/job/job-1", Accept=accept),
        await api.get("/nowhere", Accept=accept),
        await api.get("/v4/cwai/job/other?regionID=region-1", Accept=accept),
        await api.call("PUT", "/v4/cwai/job", headers={"Accept": accept}),
        await api.post({}, **{"Accept": accept, "Content-Type": "text/html"}),
        await api.post({"comment": "x" * 100_000}, Accept=accept),
        await api.post({"uuid": "018f1f3c-0000-7000-8000-000000000001", "name": "other"}, Accept=accept),
        await api.post({"signal": {"jobStatus": "unheard"}}, Accept=accept),
    ]
    for each in asked:
        assert each.headers["Cache-Control"] == "no-store"
    return [each.status for each in asked]


@pytest.mark.parametrize("accept", [PROBLEM, f"text/html;q=0.5, {PROBLEM.upper()};q=0.1"])
async def test_who_asks_for_problems_gets_real_statuses(ledger: ledgers.Ledger, accept: str) -> None:
    async with rest.serving(ledger, request_limit_bytes=50_000) as api:
        assert await statuses(api, accept) == [400, 404, 404, 405, 415, 413, 409, 400]


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*", f"{PROBLEM};q=0"])
async def test_everybody_else_gets_200_whatever_is_wrong(ledger: ledgers.Ledger, accept: str) -> None:
    async with rest.serving(ledger, request_limit_bytes=50_000) as api:
        assert set(await statuses(api, accept)) == {200}


async def test_problem_says_what_the_envelope_says(api: rest.Rest) -> None:
    enveloped = await api.get("/v4/cwai/job/%E8%AE%AD?regionID=region-1")
    problem = await api.get("/v4/cwai/job/%E8%AE%AD?regionID=region-1", Accept=PROBLEM)

    assert problem.headers["Content-Type"] == PROBLEM
    assert json.loads(problem.body) == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": enveloped.failure[1],
        "errorCode": "Cwai.Api.NotFound",
    }


async def test_options_tells_the_methods_of_a_path(api: rest.Rest) -> None:
    answer = await api.call("OPTIONS", "/v4/cwai/job")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Allow"] == "GET, HEAD, POST, DELETE, OPTIONS"
    assert (await api.call("OPTIONS", "/nowhere")).code == "NotFound"


async def test_wrong_method_as_a_problem_names_the_right_ones_in_its_header(api: rest.Rest) -> None:
    answer = await api.call("POST", "/healthz", headers={"Accept": PROBLEM})

    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_browser_of_another_origin_is_not_let_in_by_default(api: rest.Rest) -> None:
    answer = await api.get("/healthz", Origin="https://console.example")

    assert not [name for name in answer.headers if name.startswith("Access-Control")]


async def test_browser_of_a_configured_origin_is_let_in(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, cors_origins=("https://console.example",)) as api:
        mine = await api.call("OPTIONS", "/v4/cwai/job", headers={"Origin": "https://console.example"})
        other = await api.get("/healthz", Origin="https://other.example")

    assert mine.headers["Access-Control-Allow-Origin"] == "https://console.example"
    assert "DELETE" in mine.headers["Access-Control-Allow-Methods"]
    assert "Origin" in mine.headers["Vary"]
    assert "Access-Control-Allow-Origin" not in other.headers


async def test_large_answer_is_compressed_for_who_takes_it(api: rest.Rest) -> None:
    await api.post({"comment": "x" * 100_000})
    target = "/v4/cwai/job/job-1?regionID=region-1"

    plain = await api.get(target, **{"Accept-Encoding": "identity"})
    compressed = await api.get(target, **{"Accept-Encoding": "br, gzip"})

    assert int(compressed.headers["Content-Length"]) < 2_000 < int(plain.headers["Content-Length"])
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert compressed.object == plain.object
    assert "Content-Encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["Vary"]


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("*", "gzip"),
        ("*;q=0, gzip", "gzip"),
        ("gzip;q=0, *", None),
        ("br, gzip; q=0.1", "gzip"),
        ("identity", None),
        ("", None),
    ],
)
async def test_what_is_said_of_gzip_goes_before_what_is_said_of_all(
    api: rest.Rest, accepted: str, coding: str | None
) -> None:
    answer = await api.get("/openapi.json", **{"Accept-Encoding": accepted})

    assert answer.headers.get("Content-Encoding") == coding


async def test_answer_says_what_it_depends_on(api: rest.Rest) -> None:
    await api.post({})

    answer = await api.get("/v4/cwai/job/job-1?regionID=region-1")

    assert answer.headers["Vary"] == "Accept, Authorization, regionID, userID, accountID"
    assert answer.headers["Cache-Control"] == "private, no-cache"
