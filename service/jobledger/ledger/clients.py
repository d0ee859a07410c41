"""Clients of job.Job: registration, admission, and one running stream a client.

The fence is in the database: ``subscribers.stream_id`` names the stream that may run. Whoever claims it
tells the other processes at once; they look for themselves with every poll.

::

    stream A runs ──── same client subscribes: claim, B is the fence ───▶ stream B runs
                  └──▶ A ends: taken over (told here, by NOTIFY, or by the poll)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from jobledger import errors
from jobledger.model import selection
from jobledger.store import engine, listener, subscribers

ROLE_CHARACTERS: Final = 64
"""The longest role."""

CLIENT_ID_CHARACTERS: Final = 256
"""The longest client id; those that Register hands out have 36."""

HOUSEKEEPING_SECONDS: Final = 600.0
"""How often open streams are noted as use, and unused ids forgotten."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Who is let in, and how many."""

    roles: frozenset[str]
    """Roles that are let in; empty lets in any."""

    require_registration: bool
    registered_ids: int
    streams_per_role: int
    subscribes_per_second: int
    unused_for: timedelta
    """After how long without use a client id is forgotten."""


@dataclass(eq=False, slots=True, kw_only=True)
class Stream:
    """One running stream; ``end`` ends it from outside."""

    client_id: str
    role: str
    end: Callable[[errors.StreamEnd], None]
    stream_id: UUID = field(default_factory=uuid4)


class Clients:
    """Who is registered, and which streams run in this process."""

    def __init__(self, pool: engine.ReadPool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._running: dict[str, Stream] = {}
        self._per_role: Counter[str] = Counter()
        self._claiming: dict[str, asyncio.Lock] = {}
        self._second = 0
        self._admitted_this_second = 0

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._per_role.total()

    async def register(self, role: str) -> str | None:
        """A fresh client id for a role; None if there are as many as there may be.

        Raises:
            errors.SubscriptionRefused: The role is not let in.
            errors.DatabaseUnavailable: Postgres is away.
        """
        if not self._lets_in(role):
            message = f"role:{role} is not in whitelist"
            raise errors.SubscriptionRefused(message)
        client_id = str(uuid4())
        async with self._pool.connection() as connection:
            kept = await subscribers.register(connection, client_id, role, limit=self._limits.registered_ids)
        return client_id if kept else None

    async def check(self, request: selection.StreamRequest) -> None:
        """Whether a subscription may go on; changes nothing.

        Raises:
            errors.SubscriptionRefused: It may not; the message is what existing clients know.
            errors.DatabaseUnavailable: Postgres is away.
        """
        self._check_rate()
        client_id, role = request.client_id, request.role
        if len(client_id) > CLIENT_ID_CHARACTERS or not (client_id.isprintable() and role.isprintable()):
            message = f"invalid clientId: {errors.shown(client_id)}, please register first"
            raise errors.SubscriptionRefused(message)
        registered = await self._registered_role(client_id) if client_id else None
        if registered is None and self._limits.require_registration:
            message = f"invalid clientId: {client_id}, please register first"
            raise errors.SubscriptionRefused(message)
        wrong = registered != role if registered is not None else not self._lets_in(role)
        if wrong and (client_id or role or self._limits.roles):
            message = f"invalid role: {role}, please check role first"
            raise errors.SubscriptionRefused(message)
        running = self._per_role[role] - (client_id in self._running)
        if running >= self._limits.streams_per_role:
            most = self._limits.streams_per_role
            message = f"role {role} exceeded max subscription limit: current {running}, max {most}"
            raise errors.SubscriptionRefused(message)

    @contextlib.asynccontextmanager
    async def running(self, stream: Stream) -> AsyncGenerator[None]:
        """Claim the client's fence for a stream and hold its place; whatever ran for the client ends.

        Raises:
            errors.DatabaseUnavailable: Postgres is away.
        """
        self._per_role[stream.role] += 1
        try:
            if stream.client_id:
                await self._claim(stream)
            yield
        finally:
            self._per_role[stream.role] -= 1
            if self._running.get(stream.client_id) is stream:
                del self._running[stream.client_id]

    async def _claim(self, stream: Stream) -> None:
        # One at a time a client: else the order here could differ from the order in the database.
        lock = self._claiming.setdefault(stream.client_id, asyncio.Lock())
        try:
            async with lock, self._pool.connection() as connection:
                await subscribers.claim(connection, stream.client_id, stream.role, stream.stream_id)
                earlier = self._running.get(stream.client_id)
                self._running[stream.client_id] = stream
                if earlier is not None:
                    earlier.end(errors.TakenOver(stream.client_id))
                await listener.notify(
                    connection, listener.STREAM_CHANNEL, f"{stream.client_id} {stream.stream_id}"
                )
        finally:
            if not lock.locked():
                self._claiming.pop(stream.client_id, None)

    def claimed(self, client_id: str, stream_id: str) -> None:
        """Another process says which stream of a client runs; ours ends if it is not that one."""
        stream = self._running.get(client_id)
        if stream is not None and str(stream.stream_id) != stream_id:
            del self._running[client_id]
            stream.end(errors.TakenOver(client_id))

    async def run(self, *, poll_seconds: float) -> None:
        """Look at the fences and keep house, for ever; ends only by cancellation."""
        housekeeping_at = 0.0
        while True:
            await asyncio.sleep(poll_seconds)
            try:
                await self._check_fences()
                if time.monotonic() >= housekeeping_at:
                    await self._keep_house()
                    housekeeping_at = time.monotonic() + HOUSEKEEPING_SECONDS
            except errors.Unavailable:
                _log.debug("fences are not checked while Postgres is away")

    async def _check_fences(self) -> None:
        if not self._running:
            return
        before = dict(self._running)
        async with self._pool.connection() as connection:
            fences = await subscribers.streams(connection, before)
        for client_id, stream in before.items():
            fence = fences.get(client_id)
            if fence is not None and fence != stream.stream_id and self._running.get(client_id) is stream:
                self.claimed(client_id, str(fence))

    async def _keep_house(self) -> None:
        async with self._pool.connection() as connection:
            if self._running:
                await subscribers.touch(connection, self._running)
            forgotten = await subscribers.expire(connection, self._limits.unused_for)
        if forgotten:
            _log.info("forgot %d client ids that were unused for %s", forgotten, self._limits.unused_for)

    async def _registered_role(self, client_id: str) -> str | None:
        async with self._pool.connection() as connection:
            return await subscribers.role_of(connection, client_id)

    def _lets_in(self, role: str) -> bool:
        if self._limits.roles:
            return role in self._limits.roles
        return 0 < len(role) <= ROLE_CHARACTERS and role.isprintable()

    def _check_rate(self) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._admitted_this_second = second, 0
        if self._admitted_this_second >= self._limits.subscribes_per_second:
            message = "rate limited, there is too many requests, please retry later"
            raise errors.SubscriptionRefused(message)
        self._admitted_this_second += 1
