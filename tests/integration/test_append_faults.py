"""What happens to appends when connections, replicas and Postgres fail at the worst moment."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from collections.abc import Collection
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest

from jobledger import errors
from jobledger.ledger import batch, rebuild
from jobledger.model import event, selection
from jobledger.store import appends, engine, eventlog
from tests.support import events, ledgers, polling

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

STOPPED_REPLICA = """
import asyncio, os, signal, sys
from jobledger.store import appends, engine, eventlog

async def main():
    connection = await engine.connect_for_writing(sys.argv[1])
    await eventlog.begin(connection)
    await appends.state(connection, [], [])
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

asyncio.run(main())
"""


async def _count(connection: Connection) -> int:
    return await connection.fetchval("select count(*) from job_events")


async def test_replica_stopped_inside_the_transaction_delays_others_by_the_time_out_at_most(
    database: str,
) -> None:
    stopped = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STOPPED_REPLICA,
        database,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "service"},
    )
    assert stopped.stdout is not None
    try:
        assert await stopped.stdout.readline() == b"locked\n"
        async with ledgers.running(database) as ledger:
            started = time.monotonic()
            given = events.submission()
            while True:
                try:
                    await ledger.receipts(given)
                    break
                except errors.DatabaseUnavailable:
                    assert time.monotonic() - started < 30
            assert time.monotonic() - started < 30
    finally:
        stopped.send_signal(signal.SIGCONT)
        stopped.kill()
        await stopped.wait()


async def test_waiting_for_the_lock_ends_with_unavailable_and_nothing_recorded(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "_BEGIN", eventlog._BEGIN.replace("'5s'", "'200ms'"))
    async with ledgers.running(database) as ledger, connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(19020, 1)")
        with pytest.raises(errors.AppendLockHeld, match="another replica"):
            await ledger.append(events.submission())

    assert await _count(connection) == 0


async def test_lock_is_waited_for_once_also_on_a_connection_that_was_used_before(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[engine.Connection] = []

    async def begin(own: engine.Connection) -> None:
        tries.append(own)
        await own.execute(eventlog._BEGIN.replace("'5s'", "'200ms'"))

    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission())
        monkeypatch.setattr(eventlog, "begin", begin)
        async with connection.transaction():
            await connection.execute("select pg_advisory_xact_lock(19020, 1)")
            with pytest.raises(errors.AppendLockHeld):
                await ledger.append(events.submission())

    assert len(tries) == 1


@pytest.mark.parametrize("committed", [True, False], ids=["after it took effect", "before it took effect"])
async def test_lost_answer_to_commit_is_found_out(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    async with ledgers.running(database) as ledger:
        [earlier] = await ledger.receipts(events.submission("earlier"))
        again = events.submission("again")
        await ledger.receipts(again)
        commit = eventlog.commit
        failures = iter([True])

        async def lost(connected: engine.Own) -> None:
            if not next(failures, False):
                await commit(connected)
                return
            if committed:
                await commit(connected)
            connected.terminate()
            message = "connection was closed in the middle of operation"
            raise asyncpg.ConnectionDoesNotExistError(message)

        monkeypatch.setattr(eventlog, "commit", lost)
        receipts = await ledger.receipts(events.submission("a"), again, events.submission("b"))

    assert earlier.position == 1
    assert [(each.position, each.duplicate) for each in receipts] == [(3, False), (2, True), (4, False)]
    assert await _count(connection) == 4


async def test_answer_to_commit_that_is_lost_twice_is_found_out(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = eventlog.commit
    takes_effect = iter([False, True])

    async def lost(connected: engine.Own) -> None:
        if (committed := next(takes_effect, None)) is not False:
            await commit(connected)
        if committed is not None:
            connected.terminate()
            message = "connection was closed in the middle of operation"
            raise asyncpg.ConnectionDoesNotExistError(message)

    async with ledgers.running(database) as ledger:
        monkeypatch.setattr(eventlog, "commit", lost)
        receipts = await ledger.receipts(events.submission("a"), events.submission("b"))

    assert [(each.position, each.duplicate) for each in receipts] == [(1, False), (2, False)]
    assert await _count(connection) == 2


async def test_event_that_another_process_recorded_meanwhile_at_the_same_position_is_a_duplicate(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = eventlog.commit
    event_of_both = events.submission("a")
    async with ledgers.running(database) as ours, ledgers.running(database) as theirs:

        async def lost(connected: engine.Own) -> None:
            monkeypatch.setattr(eventlog, "commit", commit)
            connected.terminate()
            [first] = await theirs.receipts(event_of_both)
            assert (first.position, first.duplicate) == (1, False)
            message = "connection was closed in the middle of operation"
            raise asyncpg.ConnectionDoesNotExistError(message)

        monkeypatch.setattr(eventlog, "commit", lost)
        [receipt] = await ours.receipts(event_of_both)

    assert (receipt.position, receipt.duplicate) == (1, True)


@pytest.mark.parametrize("kind", [asyncpg.ObjectNotInPrerequisiteStateError, asyncpg.TooManyConnectionsError])
def test_database_that_lets_nobody_in_is_away_for_now(kind: type[asyncpg.PostgresError]) -> None:
    message = 'database "x" is not currently accepting connections'
    with pytest.raises(errors.DatabaseUnavailable, match="not currently accepting"), engine.translated():
        raise kind(message)


async def test_commit_that_is_still_under_way_is_waited_for_under_the_lock(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The old transaction still holds the lock when the new connection asks: "not there" would be wrong.
    commit = eventlog.commit
    under_way: list[engine.Own] = []

    async def slow(connected: engine.Own) -> None:
        if under_way:
            await commit(connected)
            return
        under_way.append(connected)
        message = "connection was closed in the middle of operation"
        raise asyncpg.ConnectionDoesNotExistError(message)

    async with ledgers.running(database) as ledger:
        monkeypatch.setattr(eventlog, "commit", slow)

        def forget() -> None:
            ledger.appender._connection = None

        with monkeypatch.context() as patch:
            patch.setattr(ledger.appender, "_drop_connection", forget)
            appending = asyncio.create_task(ledger.receipts(events.submission("a")))
            await polling.eventually(lambda: _waits_for_the_lock(connection))
            assert not appending.done()
            await commit(under_way[0])
            [receipt] = await appending
        await under_way[0].close()

    assert (receipt.position, receipt.duplicate) == (1, False)
    assert await _count(connection) == 1


async def test_append_that_is_held_after_its_insert_comes_before_the_one_that_waited(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = eventlog.commit
    inserted, may_commit = asyncio.Event(), asyncio.Event()

    async def held(connected: engine.Own) -> None:
        if not inserted.is_set():
            inserted.set()
            await may_commit.wait()
        await commit(connected)

    monkeypatch.setattr(eventlog, "commit", held)
    async with ledgers.running(database) as first, ledgers.running(database) as second:
        reading = asyncio.create_task(second.read(2, start_from=selection.StartFrom.EARLIEST))
        early = asyncio.create_task(first.receipts(events.submission("a")))
        await inserted.wait()
        late = asyncio.create_task(second.receipts(events.submission("b")))
        await polling.eventually(lambda: _waits_for_the_lock(connection))
        assert await _count(connection) == 0
        may_commit.set()
        async with asyncio.timeout(30):
            positions = [(await each)[0].position for each in (early, late)]
            read = await reading

    assert positions == [1, 2]
    assert list(read) == [1, 2]


async def _waits_for_the_lock(connection: Connection) -> None:
    waiting = await connection.fetchval(
        "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    )
    assert waiting == 1


async def test_idle_connection_that_died_costs_no_append(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("a"))
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )

        await ledger.receipts(events.submission("b"))

    assert await _count(connection) == 2


async def test_unexpected_failure_is_answered_and_the_next_append_works(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        message = "a bug"
        raise RuntimeError(message)

    async with ledgers.running(database) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(batch.Batch, "record", broken)
            with pytest.raises(errors.Unavailable, match="retry with the same uuids"):
                await ledger.append(events.submission("a"))
        await ledger.receipts(events.submission("b"))

    assert "a bug" in caplog.text
    assert await _count(connection) == 1


async def test_deadlock_with_a_session_by_hand_is_tried_again_and_is_no_error(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = appends.state
    by_hand: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def state(own: engine.Connection, uuids: Collection[UUID], job_ids: Collection[str]) -> Any:
        """Under the append lock, wait until the other session waits for it: so ours meets the deadlock."""
        monkeypatch.setattr(appends, "state", original)
        by_hand.set_result(asyncio.create_task(connection.execute("select pg_advisory_xact_lock(19020, 1)")))

        async def waits() -> None:
            assert await own.fetchval("select exists (select from pg_locks where not granted)")

        await polling.eventually(waits)
        return await original(own, uuids, job_ids)

    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("a"))
        async with connection.transaction():
            await connection.execute("set local deadlock_timeout = '1h'")
            await connection.execute("select from jobs where job_id = 'a' for update")
            monkeypatch.setattr(appends, "state", state)
            appending = asyncio.create_task(ledger.receipts(events.submission("a")))
            await (await by_hand)
        await appending

    assert await _count(connection) == 2
    told = [record.levelname for record in caplog.records if "deadlock" in record.getMessage()]
    assert told == ["WARNING"]
    assert "ERROR" not in [record.levelname for record in caplog.records]


@pytest.mark.parametrize("kind", [asyncpg.DeadlockDetectedError, asyncpg.SerializationError])
def test_a_transaction_that_postgres_gave_up_may_be_tried_again(kind: type[asyncpg.PostgresError]) -> None:
    message = "gave up"
    with pytest.raises(errors.DatabaseUnavailable, match="try again"), engine.translated():
        raise kind(message)


@pytest.mark.parametrize(
    "spoil",
    [
        "update jobs set detail = 'no JSON' where job_id = 'spoiled'",
        "update jobs set arriving = 'no JSON' where job_id = 'spoiled'",
        "update jobs set changed_at = '4713-01-01 BC' where job_id = 'spoiled'",
    ],
    ids=["detail", "arriving", "time"],
)
async def test_event_of_a_job_whose_row_was_spoiled_fails_alone_until_the_view_is_rebuilt(
    database: str, connection: Connection, spoil: str
) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("spoiled", detail={"name": "a"}))
        await connection.execute(spoil)

        of_three = [events.submission(job_id) for job_id in ("before", "spoiled", "after")]
        before, refused, after = await ledger.append(*of_three)

        assert isinstance(before, event.Receipt)
        assert isinstance(after, event.Receipt)
        assert isinstance(refused, errors.EventError)
        assert "jobledger rebuild" in refused.reason
        await rebuild.run(connection, on_progress=lambda _: None)
        assert [each.duplicate for each in await ledger.receipts(*of_three)] == [True, False, True]


async def test_what_was_recorded_before_postgres_went_away_is_answered(
    ledger: ledgers.Ledger, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.receipts(events.submission("spoiled", detail={"name": "a"}))
    await connection.execute("update jobs set detail = 'no JSON' where job_id = 'spoiled'")
    original = eventlog.begin
    begun: list[engine.Connection] = []

    async def begin(own: engine.Connection) -> None:
        """Once for both events, then for each half: at the second one Postgres is gone."""
        begun.append(own)
        if len(begun) > 2:
            message = "gone"
            raise asyncpg.ConnectionDoesNotExistError(message)
        await original(own)

    monkeypatch.setattr(eventlog, "begin", begin)
    recorded, lost = await asyncio.gather(
        *(ledger.append(events.submission(job_id)) for job_id in ("good", "spoiled")), return_exceptions=True
    )

    assert isinstance(recorded, list)
    assert isinstance(recorded[0], event.Receipt)
    assert isinstance(lost, errors.DatabaseUnavailable)
    assert await _count(connection) == 2


def test_a_certificate_that_is_refused_is_a_server_that_is_away() -> None:
    message = "certificate has expired"
    with (
        pytest.raises(errors.DatabaseUnavailable, match="expired"),
        engine.translated(),
        engine.reading_dsn(),
    ):
        raise ssl.SSLCertVerificationError(message)


@pytest.mark.parametrize("moment", ["infinity", "4713-01-01 BC"])
async def test_last_row_whose_time_was_spoiled_spoils_no_other(
    ledger: ledgers.Ledger, connection: Connection, moment: str
) -> None:
    await ledger.receipts(events.submission("a"), events.submission("b"))
    await connection.execute("alter table job_events disable trigger user")
    await connection.execute(f"update job_events set recorded_at = '{moment}' where position = 2")  # noqa: S608

    await ledger.receipts(events.submission("c"))

    assert await connection.fetchval(
        "select recorded_at between now() - interval '1 hour' and now() from job_events where position = 3"
    )


async def test_closing_records_what_is_queued_and_takes_no_more(
    database: str, connection: Connection
) -> None:
    async with ledgers.running(database) as ledger:
        queued = [asyncio.create_task(ledger.receipts(events.submission(f"job-{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        ledger.appender.close()
        with pytest.raises(errors.ShuttingDown):
            await ledger.append(events.submission("late"))
        await asyncio.gather(*queued)

    assert await _count(connection) == 50


async def test_two_processes_take_turns_and_share_one_order(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as here, ledgers.running(database) as there:
        same = [events.submission(f"same-{n}") for n in range(30)]
        outcomes = await asyncio.gather(*(ledger.receipts(each) for each in same for ledger in (here, there)))

    duplicates = [receipt.duplicate for [receipt] in outcomes]
    assert duplicates.count(True) == 30
    positions = await connection.fetchval("select array_agg(position order by position) from job_events")
    assert positions == list(range(1, 31))


async def test_large_description_does_not_hold_up_others(database: str) -> None:
    detail = {"envs": [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(15_000)]}
    async with ledgers.running(database) as ledger:
        large = asyncio.create_task(ledger.receipts(events.submission("large", detail=detail)))
        small = asyncio.create_task(ledger.receipts(events.submission("small")))

        done, _ = await asyncio.wait({large, small}, return_when=asyncio.FIRST_COMPLETED)

        assert done == {small}
        assert isinstance((await large)[0], event.Receipt)


async def test_cancellation_outlasts_a_connection_that_cannot_be_given_back(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncpg.Pool.release

    async def fails(self: Any, *given: Any, **more: Any) -> None:
        await release(self, *given, **more)
        raise asyncpg.InternalClientError("a free connection holder")

    monkeypatch.setattr(asyncpg.Pool, "release", fails)
    pool = engine.ReadPool(database, size=1)
    await pool.open()
    borrowed = asyncio.Event()

    async def borrow() -> None:
        async with pool.connection():
            borrowed.set()
            await asyncio.get_running_loop().create_future()

    borrowing = asyncio.create_task(borrow())
    await borrowed.wait()
    borrowing.cancel()
    await asyncio.wait([borrowing])
    await pool.close()

    assert borrowing.cancelled()


async def test_failing_loop_does_not_leave_connections_behind(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("a"))

    async def gone() -> None:
        others = await connection.fetchval(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend'"
        )
        assert others == 0

    await polling.eventually(gone)
