"""What REST says when it is our fault, and what health says meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from jobledger import errors
from jobledger.ledger import admission, appender, batch
from jobledger.store import engine
from tests.support import events, ledgers, rest
from tests.support.polling import eventually

REQUEST_ID = re.compile(r"\(request ([0-9a-f]{32})\)")


@pytest.fixture
async def away(ledger: ledgers.Ledger) -> AsyncIterator[rest.Rest]:
    """A server whose database is not there."""
    pool = engine.ReadPool(rest.NOWHERE, size=1)
    await pool.open()
    appending = appender.Appender(
        dsn=rest.NOWHERE,
        pool=pool,
        admission=admission.Admission(zone=ZoneInfo("UTC"), detail_limit_bytes=1 << 20),
        rules=batch.Rules(default_region="default", event_limit_bytes=1 << 20),
        queue_events=10,
        queue_bytes=1 << 20,
        on_commit=lambda _: None,
    )
    running = asyncio.create_task(appending.run())
    async with rest.serving(ledger, appending=appending, pool=pool) as api:
        yield api
    appending.close()
    await running
    await pool.close()


def assert_told_once(answer: rest.Answer, caplog: pytest.LogCaptureFixture, words: str) -> logging.LogRecord:
    """The failure is in plain words with a request id, and one log line bears it."""
    code, message = answer.failure
    assert code == "InternalServerError"
    assert message.startswith(words)
    found = REQUEST_ID.search(message)
    assert found
    [line] = [record for record in caplog.records if found.group(1) in record.getMessage()]
    return line


async def test_database_that_is_away_is_said_in_plain_words(
    away: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    for answer in (
        await away.job(),
        await away.post({}),
        await away.delete(),
        await away.post({}, userID="a"),
    ):
        line = assert_told_once(answer, caplog, "the database is not available, retry (request ")
        assert line.levelno == logging.WARNING
        assert "127.0.0.1" not in answer.failure[1]


async def test_full_queue_is_said_to_be_overload(
    ledger: ledgers.Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise errors.Overloaded("20000 events are waiting")

    monkeypatch.setattr(ledger.appender, "append", full)
    async with rest.serving(ledger) as api:
        assert_told_once(await api.post({}), caplog, "overloaded, retry after 1 s (request ")


async def test_append_after_the_appender_closed_is_told_to_retry(
    ledger: ledgers.Ledger, api: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.appender.close()

    assert_told_once(await api.post({}), caplog, "this server is shutting down, retry (request ")


async def test_bug_is_logged_with_its_traceback_and_told_without_its_text(
    ledger: ledgers.Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a detail of ours")

    monkeypatch.setattr(ledger.appender, "append", broken)
    async with rest.serving(ledger) as api:
        answer = await api.post({})

    line = assert_told_once(answer, caplog, "something went wrong here (request ")
    assert line.levelno == logging.ERROR
    assert line.exc_info
    assert "a detail of ours" not in answer.failure[1]


async def test_reads_and_writes_go_on_after_every_connection_was_ended(
    api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await api.post({})
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )

    async def works_again() -> None:
        assert (await api.job()).envelope["statusCode"] == 800

    await eventually(works_again)
    assert (await api.post({})).object["position"] == 2


# Health


async def ready(api: rest.Rest) -> tuple[int, set[str]]:
    """The status of /readyz, and the checks that fail."""
    answer = await api.get("/readyz")
    body = json.loads(answer.body)
    failing = {name for name, holds in body["checks"].items() if not holds}
    assert body["ready"] is (not failing)
    assert body["ready"] is (answer.status == 200)
    return answer.status, failing


async def test_healthy_service_is_live_and_ready(api: rest.Rest) -> None:
    live = await api.get("/healthz")

    assert (live.status, live.body) == (200, b'{"status":"ok"}')
    assert live.headers["Content-Type"] == "application/json; charset=utf-8"
    assert await ready(api) == (200, set())
    assert (await api.call("HEAD", "/healthz")).status == 200


async def test_draining_service_says_so_and_still_answers(api: rest.Rest) -> None:
    await api.post({})
    api.server.set_draining()

    live = await api.get("/healthz")

    assert (live.status, live.body) == (503, b'{"status":"draining"}')
    assert await ready(api) == (503, {"serving"})
    answer = await api.job()
    assert answer.object["jobID"] == "job-1"
    assert answer.headers["Connection"] == "close"


async def test_hole_in_the_log_makes_readiness_red(
    ledger: ledgers.Ledger, api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await ledger.receipts(events.submission())
    await connection.execute(
        "alter table job_events disable trigger all;"
        "update job_events set position = 7;"
        "alter table job_events enable trigger all"
    )
    ledger.tail.head = 0  # pyright: ignore[reportAttributeAccessIssue] - as a reader that starts now

    async def red() -> None:
        ledger.tail.wake(0)
        assert await ready(api) == (503, {"complete"})

    await eventually(red)
