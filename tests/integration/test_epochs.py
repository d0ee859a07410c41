"""A restored backup goes on under a new epoch, and every old cursor gets the answer that is its own."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from jobledger import errors
from jobledger.ledger import epochs, subscription
from jobledger.model import selection
from jobledger.store import engine, ledgerinfo
from tests.support import auditing, events, ledgers, polling, services
from tests.support import postgres as support

Connection = auditing.Connection


async def begun(database: str) -> UUID:
    """A new epoch's id."""
    connection = await engine.connect(database)
    try:
        return (await epochs.begin(connection)).epoch
    finally:
        await connection.close()


async def start(ledger: ledgers.Ledger, *, after: object, epoch: object) -> int:
    request = selection.StreamRequest(after=str(after), epoch=str(epoch))
    return (await ledger.starts.find(request)).after


async def test_cursor_of_an_earlier_epoch_resumes_as_far_as_the_histories_agree(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    old = await connection.fetchval("select epoch from ledger_epochs")
    shared = await ledger.receipts(*(events.submission(f"job-{n}") for n in range(3)))
    new = await begun(database)
    after = await ledger.receipts(events.submission("job-9"))

    assert await start(ledger, after=shared[-1].uuid, epoch=old) == 3
    assert await start(ledger, after=shared[-1].uuid, epoch=new) == 3
    assert await start(ledger, after=after[0].uuid, epoch=new) == 4
    for uuid in (after[0].uuid, uuid4()):
        with pytest.raises(errors.OtherEpoch, match="agree up to 3"):
            await start(ledger, after=uuid, epoch=old)


async def test_every_other_cursor_has_an_answer_of_its_own(
    ledger: ledgers.Ledger, connection: Connection
) -> None:
    epoch = await connection.fetchval("select epoch from ledger_epochs")
    (seen,) = await ledger.receipts(events.submission())

    with pytest.raises(errors.UnknownUuid):
        await start(ledger, after=uuid4(), epoch=epoch)
    with pytest.raises(errors.OtherEpoch, match="none of this log's"):
        await start(ledger, after=seen.uuid, epoch=uuid4())
    with pytest.raises(errors.MalformedUuid):
        await start(ledger, after="x", epoch=epoch)
    with pytest.raises(errors.InvalidRequest, match="ledgerEpoch 'x' is not a uuid"):
        await start(ledger, after=seen.uuid, epoch="x")
    with pytest.raises(errors.InvalidRequest):
        await start(ledger, after="", epoch="x")
    assert await start(ledger, after="", epoch=uuid4()) == 1


async def test_epochs_that_begin_at_one_position_are_told_apart(
    ledger: ledgers.Ledger, database: str, connection: Connection
) -> None:
    """Twice from one backup: what was recorded after the first restore is lost, the backup is not."""
    (kept,) = await ledger.receipts(events.submission())
    first = await begun(database)
    second = await begun(database)
    (later,) = await ledger.receipts(events.submission("job-2"))

    known = await ledgerinfo.epochs(connection)

    assert [each.from_position for each in known] == [1, 2, 2]
    assert [each.epoch for each in known[1:]] == [first, second]
    assert (await ledgerinfo.read(connection)).epoch == second
    assert await connection.fetchval("select epoch from audit.head()") == second
    for epoch in (known[0].epoch, first):
        assert await start(ledger, after=kept.uuid, epoch=epoch) == 1
        for lost in (later.uuid, uuid4()):
            with pytest.raises(errors.OtherEpoch, match="agree up to 1"):
                await start(ledger, after=lost, epoch=epoch)
    assert await start(ledger, after=later.uuid, epoch=second) == 2


async def test_restored_older_backup_answers_old_cursors_right(
    database: str, postgres: support.Postgres
) -> None:
    """Case 15: the template copy is the backup; what comes after it in the original is what is lost."""
    async with ledgers.running(database) as ledger:
        kept = await ledger.receipts(*(events.submission(f"job-{n}") for n in range(5)))
    connected = await asyncpg.connect(database)
    old = await connected.fetchval("select epoch from ledger_epochs")
    await connected.close()
    name = database.partition("@/")[2].partition("?")[0]
    async with postgres.database(template=name) as restored:
        async with ledgers.running(database) as ledger:
            lost = await ledger.receipts(events.submission("job-5"))
        await begun(restored)
        async with ledgers.running(restored) as ledger:
            await ledger.receipts(events.submission("job-6"))

            assert await start(ledger, after=kept[-1].uuid, epoch=old) == 5
            assert await ledger.read(1, after=str(kept[-1].uuid), epoch=str(old)) == [6]
            with pytest.raises(errors.OtherEpoch):
                await start(ledger, after=lost[0].uuid, epoch=old)
            with pytest.raises(errors.UnknownUuid):
                await start(ledger, after=lost[0].uuid, epoch="")


@pytest.mark.parametrize("refilled", [False, True], ids=["shorter", "other-events"])
async def test_streams_end_when_the_database_is_restored_under_the_service(
    ledger: ledgers.Ledger, connection: Connection, *, refilled: bool
) -> None:
    receipts = await ledger.receipts(*(events.submission(f"job-{n}") for n in range(5)))
    await polling.eventually(lambda: _at(ledger, 5))
    reader = subscription.Reader(tail=ledger.tail, window=ledger.window, pages=ledger.pages)
    found = await ledger.starts.find(selection.StreamRequest(after=str(receipts[-1].uuid)))
    steps = subscription.follow(reader, found, quiet_seconds=30)
    assert isinstance(await anext(steps), subscription.CaughtUp)

    if refilled:
        await auditing.spoil(connection, "update job_events set uuid = gen_random_uuid() where position = 5")
    else:
        await auditing.spoil(connection, "delete from job_events where position > 3")

    async with asyncio.timeout(5):
        with pytest.raises(errors.LogReplaced, match="restored"):
            await anext(steps)
    assert isinstance(ledger.tail.loss, errors.LogReplaced)


def _at(ledger: ledgers.Ledger, position: int) -> None:
    assert ledger.tail.head == position


async def test_readiness_is_red_when_the_database_was_restored_under_the_service(
    database: str, connection: Connection
) -> None:
    async with services.running(database) as service:
        await services.publish(service, events.submission("job-1"), events.submission("job-2"))
        await polling.eventually(lambda: _ready_at(service, 2))

        await auditing.spoil(connection, "delete from job_events where position = 2")

        await polling.eventually(lambda: _replaced(service))


def _ready_at(service: services.app.Service, position: int) -> None:
    assert service.tail.head == position


def _replaced(service: services.app.Service) -> None:
    assert isinstance(service.tail.loss, errors.LogReplaced)
