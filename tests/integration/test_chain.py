"""The hash chain, recomputed from the published formula: in SQL, and with nothing but struct and hashlib."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg

from tests.support import events, ledgers

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

IN_SQL = """
    with prefixed as (
        select *, sha256(
            coalesce(lag(hash) over (order by position), decode(repeat('00', 32), 'hex'))
            || int8send(position) || uuid_send(uuid) || content_hash
            || int8send((extract(epoch from recorded_at) * 1000000)::bigint)
            || coalesce(int4send(octet_length(signal)) || signal, int4send(-1))
            || coalesce(int4send(octet_length(hccl)) || convert_to(hccl, 'UTF8'), int4send(-1))
            || coalesce(int4send(octet_length(detail)) || convert_to(detail, 'UTF8'), int4send(-1))
            || coalesce(int4send(octet_length(region)) || convert_to(region, 'UTF8'), int4send(-1))
            || coalesce(int4send(octet_length(account_id)) || convert_to(account_id, 'UTF8'), int4send(-1))
            || coalesce(int4send(octet_length(user_id)) || convert_to(user_id, 'UTF8'), int4send(-1))
            || coalesce(int4send(octet_length(publisher)) || convert_to(publisher, 'UTF8'), int4send(-1))
        ) as expected from job_events
    )
    select count(*) filter (where hash = expected) as good, count(*) as all from prefixed
"""


def recomputed(row: asyncpg.Record, previous: bytes) -> bytes:
    """A row's hash by the formula, with no code of the project."""
    moment = (row["recorded_at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    data = previous + struct.pack(">q", row["position"]) + row["uuid"].bytes + row["content_hash"]
    data += struct.pack(">q", moment)
    for column in ("signal", "hccl", "detail", "region", "account_id", "user_id", "publisher"):
        value = row[column]
        if value is None:
            data += struct.pack(">i", -1)
        else:
            octets = value.encode() if isinstance(value, str) else value
            data += struct.pack(">i", len(octets)) + octets
    return hashlib.sha256(data).digest()


async def test_concurrent_appends_make_one_chain(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as here, ledgers.running(database) as there:
        await asyncio.gather(
            *(
                ledger.receipts(
                    events.submission(f"训练-{n}", detail={"comment": "🚀"} if n % 2 else None, user_id="u")
                )
                for n in range(100)
                for ledger in (here, there)
            )
        )

    rows = await connection.fetch("select * from job_events order by position")
    previous = bytes(32)
    for row in rows:
        assert row["hash"] == recomputed(row, previous), row["position"]
        previous = row["hash"]
    in_sql = await connection.fetchrow(IN_SQL)
    assert in_sql is not None
    assert (in_sql["good"], in_sql["all"], len(rows)) == (200, 200, 200)


async def test_time_of_recording_never_goes_back(database: str, connection: Connection) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("job-1"))
        # As if the server's clock had been an hour ahead and was set right.
        await connection.execute("alter table job_events disable trigger user")
        await connection.execute("update job_events set recorded_at = recorded_at + interval '1 hour'")
        await connection.execute("alter table job_events enable trigger user")
        await ledger.receipts(events.submission("job-2"))

    moments = await connection.fetch("select recorded_at from job_events order by position")
    assert moments[0]["recorded_at"] == moments[1]["recorded_at"]
