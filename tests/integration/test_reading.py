"""What a reader is promised: every event after its cursor, once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TypeAlias

import asyncpg
import pytest

from jobledger import errors
from jobledger.ledger import pagecache, snapshot, subscription, tail, window
from jobledger.model import event, selection
from jobledger.store import engine, eventlog
from tests.support import events, ledgers, polling, scale
from tests.support import postgres as support

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


WRITERS = 16
"""At each of two processes."""

EVENTS_A_WRITER = scale.count("EVENTS_A_WRITER", 10)

HELD_SECONDS = scale.count("HELD_SECONDS", 0)
"""How long a transaction elsewhere stays open; at least for some events."""

DELAY_SECONDS = scale.count("DELAY_SECONDS", 20)
"""Within which each event is recorded and read meanwhile."""

IDLE_SECONDS = scale.count("IDLE_SECONDS", 1) + 0.2
"""Longer than the poll interval."""


async def _fill(ledger: ledgers.Ledger, count: int) -> None:
    await ledger.receipts(*(events.submission(f"job-{n}") for n in range(count)))


async def test_concurrent_writers_with_pauses_and_rollbacks_are_read_without_a_gap(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(3)  # noqa: S311 - a test's choice
    commit = eventlog.commit

    async def paused(connected: engine.Connection) -> None:
        await asyncio.sleep(chance.random() * 0.005)
        await commit(connected)

    monkeypatch.setattr(eventlog, "commit", paused)
    # Only Postgres refuses these: the transaction that they are in is rolled back.
    await connection.execute("alter table job_events add check (job_name <> 'cursed')")
    recorded: list[int] = []

    async def write(ledger: ledgers.Ledger, writer: int) -> None:
        for n in range(EVENTS_A_WRITER):
            name = "cursed" if chance.random() < 0.05 else "blessed"
            [outcome] = await ledger.append(events.submission(f"job-{writer}-{n}", job_name=name))
            assert isinstance(outcome, event.Receipt) is (name == "blessed")
            if isinstance(outcome, event.Receipt):
                recorded.append(outcome.position)
            await asyncio.sleep(chance.random() * 0.002)

    total = 2 * WRITERS * EVENTS_A_WRITER
    async with ledgers.running(database) as here, ledgers.running(database) as there:
        tailing = asyncio.create_task(here.read(total, start_from="earliest"))
        await asyncio.gather(*(write(ledger, w) for w in range(WRITERS) for ledger in (here, there)))
        refused = total - len(recorded)
        await _fill(there, refused)
        positions = await tailing

    assert refused > 0
    assert sorted(recorded) == list(range(1, total - refused + 1))
    assert list(positions) == list(range(1, total + 1))


async def test_append_that_holds_its_transaction_open_is_seen_before_its_follower(
    database: str, ledger: ledgers.Ledger, connection: Connection
) -> None:
    tailing = asyncio.create_task(ledger.read(2, start_from="earliest"))
    async with connection.transaction():
        # Another replica that holds the append lock, and has written nothing yet.
        await connection.execute("select pg_advisory_xact_lock(19020, 1)")
        late = asyncio.create_task(ledger.append(events.submission("b")))
        await asyncio.sleep(0.1)
        assert not late.done()
    async with ledgers.running(database) as other:
        await other.receipts(events.submission("a"))
    await late

    assert list(await tailing) == [1, 2]


async def test_hundred_rollbacks_do_not_delay_the_next_event(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    await connection.execute("alter table job_events add check (job_name <> 'cursed')")
    tailing = asyncio.create_task(ledger.read(1, start_from="earliest"))
    for n in range(100):
        await ledger.append(events.submission(f"job-{n}", job_name="cursed"))

    await ledger.receipts(events.submission("good"))

    async with asyncio.timeout(20):
        assert list(await tailing) == [1]


async def test_idle_writer_in_another_database_delays_nothing(
    ledger: ledgers.Ledger, postgres: support.Postgres
) -> None:
    [last] = await ledger.receipts(events.submission())
    other = await asyncpg.connect(postgres.server.dsn)
    try:
        async with other.transaction():
            await other.execute("create temporary table t (a int)")
            await other.fetchval("select pg_current_xact_id()")
            ends = time.monotonic() + HELD_SECONDS
            while last.position <= 5 or time.monotonic() < ends:
                async with asyncio.timeout(DELAY_SECONDS):
                    reading = asyncio.create_task(ledger.read(1, after=str(last.uuid)))
                    [last] = await ledger.receipts(events.submission())
                    assert list(await reading) == [last.position]
    finally:
        await other.close()


@pytest.mark.parametrize("page_events", [1, 2, 3])
async def test_small_pages_are_read_whole_while_appends_run(
    database: str, monkeypatch: pytest.MonkeyPatch, page_events: int
) -> None:
    monkeypatch.setattr(pagecache, "PAGE_EVENTS", 2 ** (page_events - 1))
    async with ledgers.running(database, window_bytes=1) as ledger:
        reading = asyncio.create_task(ledger.read(60, start_from="earliest"))
        for n in range(60):
            await ledger.receipts(events.submission(f"job-{n}"))
        assert list(await reading) == list(range(1, 61))
        assert list(await ledger.read(60, start_from="earliest")) == list(range(1, 61))


async def test_events_of_one_moment_are_all_read_in_position_order(
    database: str, monkeypatch: pytest.MonkeyPatch, connection: Connection
) -> None:
    async with ledgers.running(database) as ledger:
        await _fill(ledger, 1000)
    assert await connection.fetchval("select count(distinct recorded_at) from job_events") == 1
    monkeypatch.setattr(pagecache, "PAGE_EVENTS", 1)

    async with ledgers.running(database) as cold:
        assert list(await cold.read(1000, start_from="earliest")) == list(range(1, 1001))


async def test_first_event_of_an_empty_log_reaches_a_waiting_subscriber(ledger: ledgers.Ledger) -> None:
    waiting = asyncio.create_task(ledger.read(1))
    await asyncio.sleep(0.05)

    await _fill(ledger, 1)

    assert list(await waiting) == [1]


async def test_snapshot_has_the_newest_signal_of_each_live_job_and_live_follows(
    ledger: ledgers.Ledger,
) -> None:
    await _fill(ledger, 5)
    await ledger.receipts(events.submission("job-1", job_status="running"), events.deletion("job-2"))
    reading = asyncio.create_task(ledger.read(5))
    await asyncio.sleep(0.1)

    await ledger.receipts(events.submission("job-9"))

    assert list(await reading) == [1, 4, 5, 6, 8]


async def test_snapshot_that_somebody_reads_is_given_to_who_comes_later_until_the_log_grows(
    ledger: ledgers.Ledger,
) -> None:
    await _fill(ledger, 5)
    asked = selection.StreamRequest(start_from=selection.StartFrom.SNAPSHOT)
    first = await ledger.starts.find(asked)
    second = await ledger.starts.find(asked)
    await _fill(ledger, 1)
    third = await ledger.starts.find(asked)

    assert second.snapshot is first.snapshot is not None
    assert third.snapshot is not first.snapshot
    assert third.after == 6


async def test_event_of_another_process_is_read_within_the_poll_interval(database: str) -> None:
    async with ledgers.running(database) as writer, ledgers.running(database, poll_seconds=0.2) as reader:
        waiting = asyncio.create_task(reader.read(1, start_from="latest"))
        await asyncio.sleep(0.05)
        await writer.receipts(events.submission())
        async with asyncio.timeout(20):
            assert list(await waiting) == [1]


async def test_cancelled_readers_leave_the_pages_to_others(database: str) -> None:
    async with ledgers.running(database) as filled:
        await _fill(filled, 500)
    async with ledgers.running(database) as ledger:
        readers = [asyncio.create_task(ledger.read(500, start_from="earliest")) for _ in range(20)]
        await asyncio.sleep(0.001)
        for each in readers[:19]:
            each.cancel()
        assert list(await readers[19]) == list(range(1, 501))


async def _remove(connection: Connection, position: int) -> None:
    await connection.execute("alter table job_events disable trigger user")
    await connection.execute("delete from job_events where position = $1", position)


async def test_missing_row_ends_a_replay_with_data_loss(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as filled:
        await _fill(filled, 10)
    await _remove(connection, 5)

    async with ledgers.running(database) as ledger:
        with pytest.raises(errors.DataLoss, match="position 5"):
            await ledger.read(10, start_from="earliest")


async def test_missing_row_at_the_tail_ends_waiting_readers_and_is_noticed(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledgers.running(database) as writer, ledgers.running(database, poll_seconds=0.1) as reader:
        await _fill(writer, 3)
        await polling.eventually(lambda: _is(reader.tail.head, 3))
        waiting = asyncio.create_task(reader.read(9, start_from="earliest"))
        await asyncio.sleep(0.05)
        # Two rows that appear as one: the first of them is gone when the reader looks.
        reader.tail._poll_seconds = 60
        await asyncio.sleep(0.15)
        await _fill(writer, 2)
        await _remove(connection, 4)
        reader.tail.wake(0)

        with pytest.raises(errors.DataLoss, match="position 4"):
            await waiting
        assert reader.tail.loss is not None
    assert "position 4 is missing" in caplog.text


def _is(actual: object, expected: object) -> None:
    assert actual == expected


async def test_page_cache_stays_within_its_bytes_and_reads_a_page_once(database: str) -> None:
    async with ledgers.running(database) as filled:
        await _fill(filled, 3000)
    async with ledgers.running(database, page_cache_bytes=900_000) as ledger:
        readings = await asyncio.gather(*(ledger.read(3000, start_from="earliest") for _ in range(10)))
        assert all(list(each) == list(range(1, 3001)) for each in readings)
        assert ledger.pages.size_bytes <= 900_000


async def test_window_drops_its_oldest_bytes_and_readers_go_on_from_pages(database: str) -> None:
    async with ledgers.running(database, window_bytes=50_000) as ledger:
        for _ in range(20):
            await _fill(ledger, 50)
        await polling.eventually(lambda: _is(ledger.tail.head, 1000))
        assert ledger.window.size_bytes <= 300_000
        assert list(await ledger.read(1000, start_from="earliest")) == list(range(1, 1001))


async def test_what_this_process_committed_is_not_read_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object, **__: object) -> list[eventlog.Stored]:
        return []

    async with ledgers.running(database) as ledger:
        await _fill(ledger, 1)
        monkeypatch.setattr(eventlog, "following", nothing)
        await polling.eventually(lambda: _appended_here(ledger))
        assert list(await ledger.read(2, start_from="earliest"))[:2] == [1, 2]


async def _appended_here(ledger: ledgers.Ledger) -> None:
    """An append that comes while the tail looks into the log itself is left for it to read."""
    [receipt] = await ledger.receipts(events.submission("here"))
    assert ledger.tail.head == receipt.position


async def test_commit_on_another_log_is_read_and_found_out(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with ledgers.running(database, poll_seconds=60) as ledger:
        await _fill(ledger, 3)
        await polling.eventually(lambda: _is(ledger.tail.head, 3))
        # As after a restore from a backup: as long as ours, and another event at its end.
        await connection.execute("alter table job_events disable trigger user")
        await connection.execute("update job_events set uuid = gen_random_uuid() where position = 3")
        await _fill(ledger, 1)

        await polling.eventually(lambda: _is(type(ledger.tail.loss), errors.LogReplaced))
        assert ledger.tail.head == 3
    assert "position 3" in caplog.text


async def test_tail_follows_on_after_its_connections_were_terminated(
    database: str, connection: Connection
) -> None:
    async with ledgers.running(database, poll_seconds=0.2) as ledger:
        await _fill(ledger, 1)
        first = await ledger.appender.append([events.submission("first")], events.PUBLISHER)
        assert len(first) == 1
        found = await ledger.starts.find(selection.StreamRequest(start_from=selection.StartFrom.EARLIEST))
        reading = asyncio.create_task(ledger.follow(31, found))
        await polling.eventually(lambda: _is(ledger.tail.head, 2))
        for n in range(29):
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            submission = events.submission(f"more-{n}")
            while True:
                with contextlib.suppress(errors.DatabaseUnavailable):
                    await ledger.receipts(submission)
                    break
        assert list(await reading) == list(range(1, 32))


async def test_tail_keeps_its_head_while_postgres_is_away(database: str) -> None:
    pool = engine.ReadPool(database, size=1)
    await pool.open()
    following = tail.Tail(pool, window.Window(limit_bytes=1), poll_seconds=0.05)
    await following.start()
    await pool.close()
    running = asyncio.create_task(following.run())
    await polling.eventually(lambda: _is(following.available, expected=False))
    running.cancel()
    assert following.head == 0


async def test_tail_outlives_a_time_in_which_every_connection_is_in_use(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = vars(engine.ReadPool.connection)["__wrapped__"].__kwdefaults__
    monkeypatch.setitem(patience, "patience_seconds", 0.1)
    pool = engine.ReadPool(database, size=1)
    await pool.open()
    following = tail.Tail(pool, window.Window(limit_bytes=1), poll_seconds=0.05)
    await following.start()
    running = asyncio.create_task(following.run())

    async with pool.connection(patience_seconds=10):
        await polling.eventually(lambda: _is(following.available, expected=False))
    await polling.eventually(lambda: _is(following.available, expected=True))

    assert not running.done()
    running.cancel()
    await pool.close()


async def test_append_between_any_two_steps_of_snapshot_and_tail_is_delivered_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagecache, "PAGE_EVENTS", 4)
    async with ledgers.running(database) as ledger:
        await _fill(ledger, 10)
        appended = 10

        async def append_one() -> None:
            nonlocal appended
            # A new job, and a change of one that the snapshot holds.
            await ledger.receipts(
                events.submission(f"new-{appended}"), events.submission("job-1", job_status="running")
            )
            appended += 2

        take = ledger.starts._snapshots.take

        async def interrupted(wanted: selection.Filter) -> snapshot.Shared:
            await append_one()
            taken = await take(wanted)
            await append_one()
            return taken

        monkeypatch.setattr(ledger.starts._snapshots, "take", interrupted)
        found = await ledger.starts.find(selection.StreamRequest())
        await append_one()
        shared: list[int] = []
        live: list[int] = []
        reader = subscription.Reader(tail=ledger.tail, window=ledger.window, pages=ledger.pages)
        async with contextlib.aclosing(subscription.follow(reader, found, quiet_seconds=5)) as steps:
            while not live or live[-1] < 30:
                match await anext(steps):
                    case subscription.SnapshotEvents(page):
                        shared += [each.position for each in page.entries]
                    case subscription.Events(page, first):
                        live += [each.position for each in page.entries[first:]]
                    case _:
                        pass
                if appended < 30:
                    await append_one()

    # The snapshot is of position 12: job-1 as it was changed there, the nine others, and one new job.
    assert found.after == 12
    assert shared == [1, *range(3, 11), 11, 12]
    assert live[:18] == list(range(13, 31))


async def test_slow_and_fast_append_after_idleness_are_read_in_order(ledger: ledgers.Ledger) -> None:
    reading = asyncio.create_task(ledger.read(2, start_from="earliest"))
    await asyncio.sleep(IDLE_SECONDS)
    slow = {"envs": [{"name": f"V{n}", "value": "x" * 50} for n in range(5_000)]}

    await asyncio.gather(
        ledger.receipts(events.submission("slow", detail=slow)), ledger.receipts(events.submission("fast"))
    )

    assert list(await reading) == [1, 2]
