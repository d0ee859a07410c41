"""The next batch is worked out while the present one is written, and counts only if nothing came between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any

import pytest

from jobledger import errors
from jobledger.ledger import ahead, batch
from jobledger.model import completion, event
from jobledger.store import engine, eventlog
from tests.integration import test_rebuild
from tests.support import auditing, events, ledgers, polling

Connection = auditing.Connection


class Writing:
    """Holds a batch back while it is written, and notes what is worked out with the lock and ahead of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._hold = False
        self._held = asyncio.Event()
        self._go_on = asyncio.Event()
        self.with_lock: list[int] = []
        self.ahead: list[int] = []
        write, extend = batch.Batch.write, batch.Batch.extend

        async def held(of: batch.Batch, connection: engine.Connection) -> None:
            if self._hold:
                self._hold = False
                self._held.set()
                await self._go_on.wait()
            await write(of, connection)

        async def noted(
            of: batch.Batch,
            connection: engine.Connection,
            drafts: Sequence[completion.Draft],
            *,
            ahead: bool = False,
        ) -> bool:
            follows = await extend(of, connection, drafts, ahead=ahead)
            if follows:
                (self.ahead if ahead else self.with_lock).append(len(drafts))
            return follows

        monkeypatch.setattr(batch.Batch, "write", held)
        monkeypatch.setattr(batch.Batch, "extend", noted)

    @contextlib.asynccontextmanager
    async def of(self, appending: asyncio.Task[Any] | asyncio.Future[Any]) -> AsyncGenerator[None]:
        """While the batch of an append that was just begun is written."""
        self._hold = True
        self._held.clear()
        self._go_on.clear()
        held = asyncio.create_task(self._held.wait())
        await asyncio.wait([held, appending], return_when=asyncio.FIRST_COMPLETED)
        assert held.done()
        self.with_lock.clear()
        self.ahead.clear()
        try:
            yield
        finally:
            self._go_on.set()

    async def is_ahead(self, *drafts: int) -> None:
        """Wait until so many drafts of the next batch are worked out, step by step."""

        def worked_out() -> None:
            assert self.ahead == list(drafts)

        await polling.eventually(worked_out)


def waits(ledger: ledgers.Ledger, count: int) -> None:
    """So many events are in no batch yet."""
    assert ledger.appender.queued_events == count


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Writing:
    return Writing(monkeypatch)


@pytest.fixture
async def alone(ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch) -> ledgers.Ledger:
    """A ledger that takes it that nobody else appends: its last two batches follow each other."""
    monkeypatch.setattr(ahead, "ALONE_BATCHES", 1)
    monkeypatch.setattr(ahead, "WORTH_EVENTS", 1)
    await ledger.receipts(events.submission("before-1"))
    await ledger.receipts(events.submission("before-2"))
    return ledger


def begin(ledger: ledgers.Ledger, *submissions: event.Submission) -> asyncio.Task[list[batch.Outcome]]:
    return asyncio.create_task(ledger.append(*submissions))


async def positions(*appending: asyncio.Task[list[batch.Outcome]]) -> list[int]:
    outcomes = itertools.chain.from_iterable(await asyncio.gather(*appending))
    return [each.position for each in outcomes if isinstance(each, event.Receipt)]


async def test_next_batch_is_worked_out_while_the_present_one_is_written(
    alone: ledgers.Ledger, writing: Writing, database: str
) -> None:
    first = begin(alone, *(events.submission(f"a-{n}") for n in range(4)))
    async with writing.of(first):
        second = begin(alone, *(events.submission(f"b-{n}") for n in range(2)))
        third = begin(alone, *(events.submission(f"c-{n}") for n in range(3)))
        await writing.is_ahead(5)
        fourth = begin(alone, events.submission("d"))

    assert await positions(first, second, third, fourth) == list(range(3, 13))
    assert writing.with_lock == [1]
    assert await test_rebuild.finding(database) is None


async def test_what_the_present_batch_makes_of_a_job_is_where_the_next_one_goes_on_from(
    alone: ledgers.Ledger, writing: Writing, connection: Connection, database: str
) -> None:
    table = events.rank_table("10.0.0.1", "10.0.0.2")
    nothing: dict[str, Any] = {
        "namespace": "",
        "job_status": "",
        "hccl_json": "",
        "cm_index": "",
        "total": "",
    }
    described = events.submission("a", detail={"name": "n"}, completes_all=True, **nothing)
    first = begin(alone, events.submission("a", namespace="team-a", job_status="running", hccl_json=table))
    async with writing.of(first):
        second = begin(alone, described)
        await writing.is_ahead(1)
        third = begin(alone, events.submission("a", **nothing, operator="delete"))
        await writing.is_ahead(1, 1)

    assert await positions(first, second, third) == [3, 4, 5]
    rows = await connection.fetch(
        "select namespace, job_status, hccl from job_events where position > 3 order by position"
    )
    assert [tuple(row) for row in rows] == [("team-a", "running", table), ("team-a", "running", None)]
    assert await test_rebuild.finding(database) is None


async def test_uuid_of_the_present_batch_is_a_duplicate_in_the_next_one(
    alone: ledgers.Ledger, writing: Writing
) -> None:
    again, other = events.submission("a"), events.submission("b")
    first = begin(alone, again)
    async with writing.of(first):
        second = begin(alone, again, other, other)
        await writing.is_ahead(3)

    outcomes = await second
    assert [(each.position, each.duplicate) for each in outcomes if isinstance(each, event.Receipt)] == [
        (3, True),
        (4, False),
        (4, True),
    ]


async def test_append_of_another_process_in_between_has_the_batch_worked_out_anew(
    alone: ledgers.Ledger, writing: Writing, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = eventlog.begin
    async with ledgers.running(database) as other:
        await other.receipts(events.submission("other-0"))
        await alone.receipts(events.submission("before-3"))
        await alone.receipts(events.submission("before-4"))

        async def after_the_other(connection: engine.Connection) -> None:
            monkeypatch.setattr(eventlog, "begin", original)
            await other.receipts(events.submission("a", namespace="theirs"))
            await original(connection)

        first = begin(alone, events.submission("a", namespace="ours"))
        async with writing.of(first):
            second = begin(alone, events.submission("a", namespace="", operator="delete"))
            await writing.is_ahead(1)
            monkeypatch.setattr(eventlog, "begin", after_the_other)

        assert await positions(first, second) == [6, 8]
        assert await test_rebuild.finding(database) is None


async def test_rebuild_in_between_is_not_undone(
    alone: ledgers.Ledger,
    writing: Writing,
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = eventlog.begin
    await alone.receipts(events.submission("spoiled", sid="right"))
    await alone.receipts(events.submission("before-3"))
    await connection.execute("update jobs set account_id = 'wrong' where job_id = 'spoiled'")

    async def after_the_rebuild(of: engine.Connection) -> None:
        monkeypatch.setattr(eventlog, "begin", original)
        assert (await test_rebuild.rebuilt(database)).differed == 1
        await original(of)

    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("spoiled", operator="delete"))
        await writing.is_ahead(1)
        monkeypatch.setattr(eventlog, "begin", after_the_rebuild)

    assert await positions(first, second) == [5, 6]
    assert await test_rebuild.finding(database) is None


async def test_what_follows_a_batch_that_failed_takes_its_place(
    alone: ledgers.Ledger, writing: Writing, connection: Connection, database: str
) -> None:
    await connection.execute("alter table jobs add constraint no_bad_jobs check (job_id <> 'bad')")
    first = begin(alone, events.submission("bad"))
    async with writing.of(first):
        second = begin(alone, events.submission("bad-2"), events.submission("good"))
        await writing.is_ahead(2)

    [refused] = await first
    assert isinstance(refused, errors.EventError)
    assert await positions(second) == [3, 4]
    await connection.execute("alter table jobs drop constraint no_bad_jobs")
    assert await test_rebuild.finding(database) is None


async def test_spoiled_row_of_the_view_fails_its_event_alone(
    alone: ledgers.Ledger, writing: Writing, connection: Connection
) -> None:
    await connection.execute("update jobs set arriving = '{}' where job_id = 'before-1'")
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("b"), events.submission("before-1"), events.submission("c"))
        await polling.eventually(lambda: waits(alone, 3))

    assert await positions(first, second) == [3, 4, 5]


async def test_batch_whose_connection_is_lost_is_recorded_and_so_is_the_next(
    alone: ledgers.Ledger, writing: Writing, connection: Connection, database: str
) -> None:
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("b"))
        await writing.is_ahead(1)
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and state = 'idle in transaction'"
        )

    assert await positions(first, second) == [3, 4]
    assert await test_rebuild.finding(database) is None


async def test_readers_who_need_every_connection_delay_no_append(
    alone: ledgers.Ledger, writing: Writing
) -> None:
    async with contextlib.AsyncExitStack() as readers:
        while alone.pool.has_more:
            await readers.enter_async_context(alone.pool.connection())
        first = begin(alone, events.submission("a"))
        async with writing.of(first):
            second = begin(alone, events.submission("b"))
            await polling.eventually(lambda: waits(alone, 1))

        assert await positions(first, second) == [3, 4]
        assert writing.ahead == []


async def test_answer_that_does_not_come_delays_a_batch_by_the_patience_at_most(
    alone: ledgers.Ledger, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, never = asyncio.Event(), asyncio.Event()
    noted = batch.Batch.extend

    async def silent(of: batch.Batch, *given: Any, ahead: bool = False) -> bool:
        if ahead:
            asked.set()
            await never.wait()
        return await noted(of, *given, ahead=ahead)

    monkeypatch.setattr(batch.Batch, "extend", silent)
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("b"))
        await asked.wait()

    assert await positions(first, second) == [3, 4]
    assert writing.with_lock == [1]


async def test_bug_in_working_ahead_is_told_and_costs_no_event(
    alone: ledgers.Ledger, writing: Writing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    noted = batch.Batch.extend

    async def broken(of: batch.Batch, *given: Any, ahead: bool = False) -> bool:
        if ahead:
            message = "a bug"
            raise RuntimeError(message)
        return await noted(of, *given, ahead=ahead)

    def told() -> None:
        assert "a bug" in caplog.text

    monkeypatch.setattr(batch.Batch, "extend", broken)
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("b"))
        await polling.eventually(told)

    assert await positions(first, second) == [3, 4]
    assert [each.levelno for each in caplog.records if "a bug" in (each.exc_text or "")] == [logging.ERROR]


async def test_step_that_fails_half_way_makes_no_duplicates_of_what_it_had_done(
    alone: ledgers.Ledger, writing: Writing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record = batch.Batch.record
    broken = {"c"}

    def fails_once(of: batch.Batch, draft: completion.Draft, recorded_at: datetime) -> batch.Outcome:
        if draft.signal.job_id in broken:
            broken.clear()
            message = "a bug"
            raise RuntimeError(message)
        return record(of, draft, recorded_at)

    def told() -> None:
        assert "a bug" in caplog.text

    monkeypatch.setattr(batch.Batch, "record", fails_once)
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("well"))
        await writing.is_ahead(1)
        third = begin(alone, events.submission("b"), events.submission("c"))
        await polling.eventually(told)

    assert await positions(first, second) == [3, 4]
    receipts = [each for each in await third if isinstance(each, event.Receipt)]
    assert [(each.position, each.duplicate) for each in receipts] == [(5, False), (6, False)]


async def test_close_records_what_is_worked_out_already(alone: ledgers.Ledger, writing: Writing) -> None:
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        second = begin(alone, events.submission("b"))
        await writing.is_ahead(1)
        alone.appender.close()

    assert await positions(first, second) == [3, 4]


async def test_batches_are_bounded_however_much_waits(
    alone: ledgers.Ledger, writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "BATCH_EVENTS", 3)
    first = begin(alone, events.submission("a"))
    async with writing.of(first):
        rest = [begin(alone, events.submission(f"b-{n}")) for n in range(5)]
        await writing.is_ahead(3)
        assert alone.appender.queued_events == 5

    assert sorted(await positions(first, *rest)) == list(range(3, 9))


@pytest.mark.parametrize(("waiting", "steps"), [(ahead.WORTH_EVENTS, [ahead.WORTH_EVENTS]), (3, [])])
async def test_many_events_that_wait_are_worth_it_and_few_are_not(
    ledger: ledgers.Ledger, writing: Writing, waiting: int, steps: list[int]
) -> None:
    for n in range(ahead.ALONE_BATCHES + 1):
        await ledger.receipts(events.submission(f"before-{n}"))
    first = begin(ledger, events.submission("a"))
    async with writing.of(first):
        second = begin(ledger, *(events.submission(f"b-{n}") for n in range(waiting)))
        await polling.eventually(lambda: waits(ledger, waiting))
        await writing.is_ahead(*steps)

    assert len(await positions(first, second)) == 1 + waiting
    assert writing.ahead == steps


async def test_who_does_not_append_alone_works_nothing_out_ahead(
    ledger: ledgers.Ledger, writing: Writing, database: str
) -> None:
    async with ledgers.running(database) as other:
        for n in range(3 * ahead.ALONE_BATCHES):
            if not n % (ahead.ALONE_BATCHES // 2):
                await other.receipts(events.submission("theirs"))
            await ledger.receipts(events.submission(f"ours-{n}"))
        first = begin(ledger, events.submission("a"))
        async with writing.of(first):
            second = begin(ledger, *(events.submission(f"b-{n}") for n in range(ahead.WORTH_EVENTS)))
            await polling.eventually(lambda: waits(ledger, ahead.WORTH_EVENTS))

        assert len(await positions(first, second)) == 1 + ahead.WORTH_EVENTS
        assert writing.ahead == []
