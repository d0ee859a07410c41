"""What the ledger says of itself: its default region, its floor, its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from jobledger.model import event
from jobledger.store import engine, eventlog

EPOCH = "select epoch from ledger_epochs order by number desc limit 1"
"""SQL for the name of the present history."""

_INFO = f"""
    select default_region, floor,
           ({EPOCH}) as epoch,
           (select uuid from job_events where position > floor order by position limit 1) as first_uuid,
           ({eventlog.LAST}) as head
    from ledger_info
"""  # noqa: S608 - our own names


class LedgerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that change seldom or never."""

    default_region: str
    """Where a job lives whose publisher named no region; fixed by the first migration."""

    floor: event.Position
    """The last position that was pruned; 0 if none was. It is still a valid cursor."""

    epoch: UUID
    """The history that this log belongs to."""

    first_uuid: UUID | None
    """The first event after the floor; None if there is none."""

    head: event.Position
    """The last committed position; 0 in an empty log."""


async def read(connection: engine.Connection) -> LedgerInfo:
    """The facts as they are now; the schema must be there."""
    row = await connection.fetchrow(_INFO)
    assert row is not None  # noqa: S101 - the migration wrote it
    return LedgerInfo(**dict(row))


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """A history of the log: from its first position on until the next one begins."""

    epoch: UUID
    from_position: event.Position


_EPOCHS = "select epoch, from_position from ledger_epochs order by number"

# $1 from position. Earlier epochs may begin there too: cursors of theirs from before it stay good.
_NEW_EPOCH = """
    insert into ledger_epochs (epoch, from_position, number)
    select gen_random_uuid(), $1, max(number) + 1 from ledger_epochs
    returning epoch, from_position
"""


async def epochs(connection: engine.Connection) -> Sequence[Epoch]:
    """Every epoch, the oldest first; never empty."""
    return [Epoch(**dict(row)) for row in await connection.fetch(_EPOCHS)]


async def begin_epoch(connection: engine.Connection, from_position: int) -> Epoch:
    """Begin a new history after the head; needs the append lock, and the owner's rights."""
    row = await connection.fetchrow(_NEW_EPOCH, from_position)
    assert row is not None  # noqa: S101 - the statement always has one row
    return Epoch(**dict(row))
