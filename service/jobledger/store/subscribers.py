"""The subscribers' statements: who registered, and which stream of a client is the running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import UUID

from jobledger.store import engine

# $1 client id, $2 role, $3 how many ids there may be
_REGISTER = """
    insert into subscribers (client_id, role)
    select $1, $2 where (select count(*) from subscribers) < $3
"""

# $1 client id
_ROLE = "select role from subscribers where client_id = $1"

# $1 client id, $2 role, $3 stream id
_CLAIM = """
    insert into subscribers (client_id, role, stream_id) values ($1, $2, $3)
    on conflict (client_id) do update set stream_id = excluded.stream_id, last_used_at = clock_timestamp()
"""

# $1 client ids
_STREAMS = "select client_id, stream_id from subscribers where client_id = any ($1::text[])"

# $1 client ids
_TOUCH = "update subscribers set last_used_at = clock_timestamp() where client_id = any ($1::text[])"

# $1 unused for how long
_EXPIRE = "delete from subscribers where last_used_at < clock_timestamp() - $1::interval"


async def register(connection: engine.Connection, client_id: str, role: str, *, limit: int) -> bool:
    """Keep a new client id; False if there are as many as there may be."""
    return await connection.execute(_REGISTER, client_id, role, limit) == "INSERT 0 1"


async def role_of(connection: engine.Connection, client_id: str) -> str | None:
    """The role under which a client id was registered; None if it is unknown."""
    return await connection.fetchval(_ROLE, client_id)


async def claim(connection: engine.Connection, client_id: str, role: str, stream_id: UUID) -> None:
    """Make a stream the running one of its client; whatever ran before it sees that it is fenced off."""
    await connection.execute(_CLAIM, client_id, role, stream_id)


async def streams(connection: engine.Connection, client_ids: Iterable[str]) -> Mapping[str, UUID | None]:
    """The running stream of each client."""
    rows = await connection.fetch(_STREAMS, list(client_ids))
    return {row["client_id"]: row["stream_id"] for row in rows}


async def touch(connection: engine.Connection, client_ids: Iterable[str]) -> None:
    """Note that these clients are in use."""
    await connection.execute(_TOUCH, list(client_ids))


async def expire(connection: engine.Connection, unused_for: timedelta) -> int:
    """Forget client ids that nobody used for so long; how many they were."""
    return int((await connection.execute(_EXPIRE, unused_for)).removeprefix("DELETE "))
