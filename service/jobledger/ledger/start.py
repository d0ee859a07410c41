"""Where a stream starts: from a uuid, a word or nothing to a cursor. Never silently somewhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from uuid import UUID

from jobledger import errors
from jobledger.ledger import epochs, pagecache, snapshot, subscription
from jobledger.model import selection
from jobledger.store import engine, eventlog, ledgerinfo


class Starts:
    """Finds the start of streams; once for all who come back at once from the same place."""

    def __init__(self, pool: engine.ReadPool, snapshots: snapshot.Snapshots) -> None:
        self._pool = pool
        self._snapshots = snapshots
        self._finding: dict[Hashable, asyncio.Task[subscription.Start]] = {}

    async def find(self, request: selection.StreamRequest) -> subscription.Start:
        """The cursor that a request names; a last seen uuid wins over everything else.

        Raises:
            errors.MalformedUuid: What was given is no uuid.
            errors.UnknownUuid: The log does not hold it.
            errors.PrunedUuid: What follows it is no longer kept.
            errors.OtherEpoch: It was received under an epoch whose history is another one there.
            errors.InvalidRequest: The epoch is no uuid.
            errors.DatabaseUnavailable: Postgres is away.
        """
        if request.epoch:
            async with self._pool.connection() as connection:
                await epochs.check(connection, request)
        if request.after:
            return await self._after_together(_parsed(request.after))
        match request.start_from:
            case selection.StartFrom.EARLIEST:
                return await self._together(request.start_from, self._at_the_floor)
            case selection.StartFrom.LATEST:
                return await self._together(request.start_from, self._at_the_head)
            case selection.StartFrom.SNAPSHOT | None:
                return await self._together(request.filter, partial(self._snapshot, request.filter))

    async def first_uuid(self) -> UUID | None:
        """The first event that is still kept; None if there is none.

        Raises:
            errors.DatabaseUnavailable: Postgres is away.
        """
        async with self._pool.connection() as connection:
            return (await ledgerinfo.read(connection)).first_uuid

    async def _together(
        self, key: Hashable, find: Callable[[], Coroutine[None, None, subscription.Start]]
    ) -> subscription.Start:
        """What those find who ask for the same while one of them is looking. Safe to cancel."""
        finding = self._finding.get(key)
        if finding is None:
            finding = self._finding[key] = asyncio.create_task(find())
            finding.add_done_callback(lambda _: self._finding.pop(key))
            finding.add_done_callback(pagecache.retrieved)
        return await asyncio.shield(finding)

    async def _after_together(self, uuid: UUID) -> subscription.Start:
        joins = uuid in self._finding
        try:
            return await self._together(uuid, partial(self._after, uuid))
        except errors.UnknownUuid:
            if not joins:
                raise
            # It may have been appended since the other one began to look.
            return await self._after(uuid)

    async def _after(self, uuid: UUID) -> subscription.Start:
        async with self._pool.connection() as connection:
            position = await eventlog.position_of(connection, uuid)
            info = await ledgerinfo.read(connection)
        if position is None:
            raise errors.UnknownUuid(uuid)
        if position < info.floor:
            raise errors.PrunedUuid(uuid, info.first_uuid)
        return subscription.Start(after=position, uuid=uuid, snapshot=None, head=info.head, epoch=info.epoch)

    async def _at_the_floor(self) -> subscription.Start:
        async with self._pool.connection() as connection:
            info = await ledgerinfo.read(connection)
            uuid = await eventlog.uuid_at(connection, info.floor)
        return subscription.Start(
            after=info.floor, uuid=uuid, snapshot=None, head=info.head, epoch=info.epoch
        )

    async def _at_the_head(self) -> subscription.Start:
        async with self._pool.connection() as connection:
            info = await ledgerinfo.read(connection)
            uuid = await eventlog.uuid_at(connection, info.head)
        return subscription.Start(after=info.head, uuid=uuid, snapshot=None, head=info.head, epoch=info.epoch)

    async def _snapshot(self, wanted: selection.Filter) -> subscription.Start:
        taken = await self._snapshots.take(wanted)
        async with self._pool.connection() as connection:
            info = await ledgerinfo.read(connection)
            uuid = await eventlog.uuid_at(connection, taken.head)
        return subscription.Start(
            after=taken.head, uuid=uuid, snapshot=taken, head=taken.head, epoch=info.epoch
        )


def _parsed(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.MalformedUuid(text) from None
