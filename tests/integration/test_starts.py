"""Finding where a stream starts: once for all who ask for the same at once, and never from an old answer."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from jobledger import errors
from jobledger.ledger import start, subscription
from jobledger.model import event, selection
from jobledger.store import engine, eventlog, ledgerinfo
from tests.support import events, ledgers

MANY = 200


class Held:
    """Looks uuids up, and keeps each answer back until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lookups = 0
        self.looked_up = asyncio.Event()
        self.let_go = asyncio.Event()
        self._really = eventlog.position_of
        monkeypatch.setattr(eventlog, "position_of", self._position_of)

    async def _position_of(self, connection: engine.Connection, uuid: UUID) -> event.Position | None:
        self.lookups += 1
        found = await self._really(connection, uuid)
        self.looked_up.set()
        await self.let_go.wait()
        return found


def resuming(starts: start.Starts, uuid: UUID) -> asyncio.Task[subscription.Start]:
    return asyncio.create_task(starts.find(selection.StreamRequest(after=str(uuid))))


async def test_those_who_resume_after_the_same_event_at_once_cost_one_look_up(
    ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [receipt] = await ledger.receipts(events.submission())
    held = Held(monkeypatch)
    asking = [resuming(ledger.starts, receipt.uuid) for _ in range(MANY)]
    await held.looked_up.wait()
    held.let_go.set()

    found = await asyncio.gather(*asking)

    assert held.lookups == 1
    assert all(each is found[0] for each in found)


@pytest.mark.parametrize("start_from", [selection.StartFrom.EARLIEST, selection.StartFrom.LATEST])
async def test_those_who_start_at_an_end_of_the_log_at_once_cost_one_look(
    ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch, start_from: selection.StartFrom
) -> None:
    await ledger.receipts(events.submission())
    looks: list[object] = []
    read = ledgerinfo.read

    async def counted(connection: engine.Connection) -> ledgerinfo.LedgerInfo:
        looks.append(connection)
        return await read(connection)

    monkeypatch.setattr(ledgerinfo, "read", counted)
    request = selection.StreamRequest(start_from=start_from)
    found = await asyncio.gather(*(ledger.starts.find(request) for _ in range(MANY)))

    assert len(looks) == 1
    assert all(each is found[0] for each in found)


async def test_event_that_was_appended_while_another_looked_for_it_is_found(
    ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = uuid4()
    held = Held(monkeypatch)
    early = resuming(ledger.starts, uuid)
    await held.looked_up.wait()
    [receipt] = await ledger.receipts(events.submission(uuid=str(uuid)))
    late = resuming(ledger.starts, uuid)
    await asyncio.sleep(0)
    held.let_go.set()

    with pytest.raises(errors.UnknownUuid):
        await early
    assert (await late).after == receipt.position


async def test_who_leaves_takes_the_answer_from_nobody(
    ledger: ledgers.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [receipt] = await ledger.receipts(events.submission())
    held = Held(monkeypatch)
    first, second = (resuming(ledger.starts, receipt.uuid) for _ in range(2))
    await held.looked_up.wait()
    first.cancel()
    held.let_go.set()

    assert await second
    assert first.cancelled()
