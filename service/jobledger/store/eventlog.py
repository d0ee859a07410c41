"""The log's statements: append under the lock, and read in position order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
from asyncpg.pgproto import pgproto

from jobledger.model import chain, event, moment
from jobledger.store import engine, locks

HOLD_LIMIT = "5s"
"""How long a stopped or cut-off replica may hold the append lock, and others wait for it. Without it the
lock would be free only when TCP gives the peer up, two hours later."""


RECORDABLE: Final = (chain.EPOCH, datetime(moment.LAST_YEAR, 12, 31, tzinfo=UTC))
"""No event was recorded outside of these: a row that says so was spoiled by hand."""


def recordable(recorded_at: datetime) -> bool:
    """Whether it can be the time of an event, as the ledger records it."""
    return RECORDABLE[0] <= recorded_at < RECORDABLE[1]


def as_datetime(column: str) -> str:
    """A time's column, cut to what a datetime holds: of infinity, and of years BC, the driver makes an error.

    One row that was spoiled so would end whoever reads it, with all of its neighbours.
    """
    first, last = f"'{moment.FIRST_YEAR:04}-01-01 00:00+00'", "'9999-12-31 23:59:59.999999+00'"
    return f"case when {column} < {first} then {first} when {column} > {last} then {last} else {column} end"


class Row(NamedTuple):
    """One row of job_events, in the order of the type job_event_row_2."""

    position: int
    uuid: UUID
    job_id: str
    operator: str
    job_status: str
    job_name: str
    namespace: str
    framework: str
    job_time: datetime | None
    delete_time: datetime | None
    cm_index: int | None
    total: int | None
    shared_tor_ip: str
    master_addr: str
    sid: str
    region: str
    account_id: str
    user_id: str
    publisher: str
    hccl: str | None
    detail: str | None
    signal: bytes
    content_hash: bytes
    size: int
    left_namespace: str | None
    left_framework: str | None
    recorded_at: datetime
    hash: bytes
    servers: str | None


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a reader of the stream needs of a row.

    Nothing in it is for the garbage collector to look at, as tuples and UUIDs would be: readers share up to
    a hundred thousand, and a look at them all took 0.1 to 0.2 s, in which nobody was served.
    """

    position: int
    uuid_bytes: bytes
    signal: bytes
    hccl: str | None
    recorded_at: datetime
    job_id: str
    operator: str
    namespace: str
    framework: str
    left_namespace: str | None
    left_framework: str | None

    @property
    def uuid(self) -> UUID:
        """Of the event."""
        return pgproto.UUID(self.uuid_bytes)


_STORED = (
    ", ".join(Stored.__struct_fields__)
    .replace("uuid_bytes", "uuid_send(uuid) as uuid_bytes")
    .replace("recorded_at", f"{as_datetime('recorded_at')} as recorded_at")
)
_REST_OF_ROW = itemgetter(*(Row._fields.index(name) for name in Stored.__struct_fields__[2:]))

# One message to the server, of several statements: each but the last is over before the lock is waited for.
_BEGIN = (
    "begin isolation level read committed;"
    f" set local idle_in_transaction_session_timeout = '{HOLD_LIMIT}';"
    f" set local lock_timeout = '{HOLD_LIMIT}';"
    f" select pg_advisory_xact_lock({locks.NAMESPACE}, {locks.APPEND})"
)

# $1 positions
_HCCL = "select position, coalesce(hccl, '') as hccl from job_events where position = any ($1::bigint[])"

# $1 after, $2 up to
_BETWEEN = f"""
    select {_STORED} from job_events where position > $1 and position <= $2 order by position
"""  # noqa: S608 - our own names

# $1 after, $2 rows at most, $3 bytes at most (the first row comes whatever its size)
_NEXT = f"""
    select {_STORED} from (
        select *, sum(size) over (order by position) as running, row_number() over (order by position) as nth
        from (select * from job_events where position > $1 order by position limit $2) as next
    ) as sized
    where running <= $3 or nth = 1
    order by position
"""  # noqa: S608 - our own names

# $1 positions, $2 bytes at most (the first row comes whatever its size)
_AT = f"""
    select {_STORED} from (
        select *, sum(size) over (order by position) as running, row_number() over (order by position) as nth
        from job_events where position = any ($1::bigint[])
    ) as sized
    where running <= $2 or nth = 1
    order by position
"""  # noqa: S608 - our own names

# $1 from, $2 up to
_SIZE = "select coalesce(sum(size), 0)::bigint from job_events where position between $1 and $2"

LAST = "select coalesce(max(position), 0) from job_events"
"""SQL for the last committed position; 0 in an empty log."""

# $1 uuid
_POSITION = "select position from job_events where uuid = $1"

# $1 position
_HASH = "select hash from job_events where position = $1"

# $1 position
_UUID = "select uuid from job_events where position = $1"


def uuid_of(text: str) -> UUID:
    """The uuid that a text spells in any way that Python reads; of the driver's class, where it can.

    To read and to write, that takes a tenth of the time of the standard library's, which it inherits from.

    Raises:
        ValueError: It is none.
    """
    try:
        return pgproto.UUID(text)
    except ValueError:
        return UUID(text)


async def begin(connection: engine.Connection) -> None:
    """Begin a transaction and take the append lock, waiting for it at most :data:`HOLD_LIMIT`.

    The head must be read in a statement of its own after this one: a statement's snapshot is older than
    the lock that it waits for.
    """
    await connection.execute(_BEGIN)


async def commit(connection: engine.Connection) -> None:
    """End the transaction that :func:`begin` began; when this returns it is on disk and visible."""
    await connection.execute("commit")


async def rollback(connection: engine.Connection) -> None:
    """End the transaction that :func:`begin` began, without a trace."""
    await connection.execute("rollback")


async def hccl(connection: engine.Connection, positions: Iterable[int]) -> Mapping[int, str]:
    """The HcclJson of events by their position; "" for one that has none."""
    return {row["position"]: row["hccl"] for row in await connection.fetch(_HCCL, list(positions))}


async def rank_table(connection: engine.Connection, positions: Iterable[int]) -> Sequence[str]:
    """The HcclJson of events, ascending by position: the parts of a table, to be joined."""
    found = await hccl(connection, positions)
    return [found[position] for position in sorted(found)]


def stored(row: Row) -> Stored:
    """What a reader would find of a row that was written."""
    return Stored(row.position, row.uuid.bytes, *_REST_OF_ROW(row))


async def last(connection: engine.Connection) -> event.Position:
    """The last committed position; 0 in an empty log."""
    return event.Position(await connection.fetchval(LAST))


async def between(connection: engine.Connection, after: int, up_to: int) -> list[Stored]:
    """The rows after one position up to another, ascending; the caller knows how many and how large."""
    return [Stored(*row) for row in await connection.fetch(_BETWEEN, after, up_to)]


async def following(connection: engine.Connection, after: int, *, rows: int, size_bytes: int) -> list[Stored]:
    """The next rows after a position, ascending: within both bounds, but at least one if there is one."""
    return [Stored(*row) for row in await connection.fetch(_NEXT, after, rows, size_bytes)]


async def at(connection: engine.Connection, positions: Sequence[int], *, size_bytes: int) -> list[Stored]:
    """The rows at these positions, ascending, cut to the size; the first one whatever its size."""
    return [Stored(*row) for row in await connection.fetch(_AT, positions, size_bytes)]


async def size(connection: engine.Connection, first: int, up_to: int) -> int:
    """Bytes of the delivered messages between two positions, both included."""
    return await connection.fetchval(_SIZE, first, up_to)


async def position_of(connection: engine.Connection, uuid: UUID) -> event.Position | None:
    """Where the log holds a uuid; None if it does not."""
    return await connection.fetchval(_POSITION, uuid)


async def hash_at(connection: engine.Connection, position: int) -> bytes | None:
    """The hash at a position; None if there is no row."""
    return await connection.fetchval(_HASH, position)


async def uuid_at(connection: engine.Connection, position: int) -> UUID | None:
    """The uuid at a position; None if there is none."""
    return await connection.fetchval(_UUID, position)
