"""Epochs: which histories of a log agree, and up to where.

::

    epoch A  1 ──────────── 100 ╲ 101 … 150   lost: the database was restored from a backup of 100
    epoch B                      ╲ 101 ──────────▶

A cursor of A agrees with the log up to 100, one position before B began; beyond that its history is another.
Several may begin at one position, as where a backup of B's first moment is restored, and C begins at 101 too:
A and B agree with it up to 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from jobledger import errors
from jobledger.model import event, selection
from jobledger.store import engine, eventlog, ledgerinfo


def parsed(text: str) -> UUID | None:
    """The epoch that a request names; None if it names none.

    Raises:
        errors.InvalidRequest: It is no uuid.
    """
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise errors.InvalidRequest(
            f"ledgerEpoch {errors.shown(text)} is not a uuid; send the ledger-epoch of the stream that "
            "lastSeenUuid came from, or leave it empty"
        ) from None


async def check(connection: engine.Connection, request: selection.StreamRequest) -> None:
    """See that a cursor is of this log's history, if it says of which it is.

    Raises:
        errors.InvalidRequest: The epoch is no uuid.
        errors.OtherEpoch: The cursor lies where its history and the log's differ.
    """
    given = parsed(request.epoch)
    if given is None or not request.after:
        return
    try:
        uuid = UUID(request.after)
    except ValueError:
        raise errors.MalformedUuid(request.after) from None
    known = await ledgerinfo.epochs(connection)
    if given == known[-1].epoch:
        return
    agreed = agreement(known, given)
    position = await eventlog.position_of(connection, uuid)
    if agreed is None or position is None or position > agreed:
        raise errors.OtherEpoch(given, uuid, agreed)


def agreement(known: Sequence[ledgerinfo.Epoch], given: UUID) -> event.Position | None:
    """The last position up to which an earlier epoch and the log agree; None if it is not the log's."""
    for each, successor in pairwise(known):
        if each.epoch == given:
            return event.Position(successor.from_position - 1)
    return None


async def begin(connection: engine.Connection) -> ledgerinfo.Epoch:
    """Begin a new history after the head; waits for the append lock. The connection is the owner's.

    Raises:
        errors.DatabaseUnavailable: Postgres is away, or the lock is held; nothing was changed.
    """
    with engine.translated():
        await eventlog.begin(connection)
        try:
            head = await eventlog.last(connection)
            begun = await ledgerinfo.begin_epoch(connection, head + 1)
            await eventlog.commit(connection)
        except BaseException:
            if not connection.is_closed():
                await eventlog.rollback(connection)
            raise
    return begun
