"""Subscribers against a model: what each must have been told, and how each of its streams must have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.support import clusterd


@dataclass(eq=False, slots=True)
class Connection:
    """One stream of a subscriber, read in a task until it ends."""

    replica: int
    client: clusterd.Subscriber
    call: Any
    lists: bool
    uuids: list[str] = field(default_factory=list[str])
    """What it delivered."""

    reading: asyncio.Task[clusterd.End | None] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to read."""
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> clusterd.End | None:
        """How it ended; None if it was closed here."""
        try:
            while (message := await self.call.read()) is not clusterd.EOF:
                self.uuids += [each.uuid for each in (message.jobSummarySignals if self.lists else [message])]
        except asyncio.CancelledError:
            return None
        except grpc.aio.AioRpcError:
            pass
        return await clusterd.ended(self.call)

    async def close(self) -> None:
        """Leave, as a client does that dies."""
        self.call.cancel()
        await self.client.close()
        await asyncio.wait([self.reading])


@dataclass(eq=False, slots=True)
class Subscriber:
    """A client id over all of its streams."""

    client_id: str
    after: int
    """Its present stream is owed the log after this position …"""

    snapshot: list[str] = field(default_factory=list[str])
    """… and before that, these."""

    before: list[str] = field(default_factory=list[str])
    """What its earlier streams delivered."""

    connection: Connection | None = None

    @property
    def told(self) -> list[str]:
        """All that it was told so far."""
        return self.before + (self.connection.uuids if self.connection else [])

    def due(self, log: Sequence[str]) -> list[str]:
        """All that it must be told, with a log such as this."""
        return [*self.before, *self.snapshot, *log[self.after :]]

    def resume(self, log: Sequence[str], snapshot: list[str]) -> dict[str, str]:
        """Be owed what comes after the last event that it was told; the metadata that asks for that."""
        self.before, self.connection = self.told, None
        if self.before:
            self.after, self.snapshot = log.index(self.before[-1]) + 1, []
        elif self.snapshot:
            self.after, self.snapshot = len(log), snapshot
            return {"start_from": "snapshot"}
        return {"last_seen_uuid": log[self.after - 1]} if self.after else {"start_from": "earliest"}
