"""Too much at once is told so quickly, with when to come back; nobody waits without end."""

from __future__ import annotations

import asyncio
import json

import pytest

from jobledger import errors
from jobledger.store import engine
from jobledger.web import events, lookups
from tests.support import ledgers, rest
from tests.support.polling import eventually

STREAM = "/v4/cwai/events"
PROBLEM = {"Accept": "application/problem+json"}


def assert_told_to_come_back(told: rest.Answer, problem: rest.Answer) -> None:
    """In the envelope, and as a problem."""
    code, message = told.failure
    assert code == "InternalServerError"
    assert message.startswith("overloaded, retry after 1 s (request ")
    assert told.headers["Cache-Control"] == "no-store"
    assert problem.status == 503
    assert problem.headers["Retry-After"] == "1"
    assert problem.headers["Content-Type"] == "application/problem+json"
    said = json.loads(problem.body)
    assert (said["status"], said["errorCode"]) == (503, "Cwai.Api.InternalServerError")
    assert said["detail"].startswith("overloaded, retry after 1 s (request ")


async def test_read_behind_too_many_others_is_told_to_come_back(
    database: str, ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MOST_WAITING", 1)
    monkeypatch.setattr(engine, "CALLER_PATIENCE_SECONDS", 60.0)
    pool = engine.ReadPool(database, size=1)
    await pool.open()
    async with rest.serving(ledger, pool=pool) as api:
        await api.post({})
        async with pool.connection():
            both = [asyncio.create_task(api.job()) for _ in range(2)]
            [refused], [waiting] = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)

            assert_told_to_come_back(await refused, await api.job(**PROBLEM))
            assert not waiting.done()

        assert (await waiting).object["jobID"] == "job-1"
        assert (await api.job()).object["jobID"] == "job-1"
    await pool.close()


@pytest.mark.parametrize(
    "target",
    [
        "/v4/cwai/job/job-1?",
        "/v4/cwai/job/job-1?asOf=1&",
        "/v4/cwai/job/job-1/events?",
        "/v4/cwai/jobs?",
        "/v4/cwai/jobs?name=train&",
        "/v4/cwai/jobs?asOf=1&",
    ],
)
async def test_read_that_gets_no_connection_is_told_to_come_back(
    database: str, ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setattr(engine, "CALLER_PATIENCE_SECONDS", 0.05)
    pool = engine.ReadPool(database, size=1)
    await pool.open()
    async with rest.serving(ledger, pool=pool) as api:
        await api.post({})
        asked = f"{target}regionID={rest.REGION}"
        async with pool.connection():
            assert_told_to_come_back(await api.get(asked), await api.get(asked, **PROBLEM))

        async def answered() -> None:
            assert (await api.get(asked)).envelope["statusCode"] == 800

        await eventually(answered)
    await pool.close()


async def test_pool_that_is_still_opening_connections_is_overloaded_and_not_away(database: str) -> None:
    pool = engine.ReadPool(database, size=2)
    await pool.open()
    try:
        async with pool.connection():
            with pytest.raises(errors.Overloaded):
                async with pool.connection(patience_seconds=0):
                    pass
    finally:
        await pool.close()


async def test_stream_beyond_the_last_is_told_to_come_back(
    api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_STREAMS", 1)
    async with api.session.get(f"http://127.0.0.1:{api.port}{STREAM}") as open_stream:
        assert open_stream.headers["Content-Type"].startswith("text/event-stream")

        assert_told_to_come_back(await api.get(STREAM), await api.get(STREAM, **PROBLEM))

    async def opened() -> None:
        async with api.session.get(f"http://127.0.0.1:{api.port}{STREAM}") as stream:
            assert stream.headers["Content-Type"].startswith("text/event-stream")

    await eventually(opened)
