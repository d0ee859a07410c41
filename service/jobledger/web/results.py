"""The jobs of a list's page as JSON. What is large is made beside the loop, so that nobody waits for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import tzinfo
from typing import Final

import msgspec

from jobledger.ledger import beside
from jobledger.model import job, ranktable, returnobj
from jobledger.store import engine, eventlog

HCCL_BYTES: Final = 8 * 1024 * 1024
"""Rank tables that are read at a time."""

KEPT_COUNTS: Final = 100_000
"""Rank tables whose number of servers is remembered, by their digest: some 15 MB."""

_encoder = msgspec.json.Encoder()


class Results:
    """Makes the members of ``results``, each by itself: the encoder holds back everybody while it works."""

    def __init__(self, pool: engine.ReadPool, zone: tzinfo) -> None:
        self._pool = pool
        self._zone = zone
        self._kept: OrderedDict[bytes, int] = OrderedDict()

    async def listed(self, jobs: Sequence[job.Job], *, ended_too: bool) -> Sequence[msgspec.Raw]:
        """The jobs as a list shows them."""
        counts = await self._counts(jobs)

        def made() -> Sequence[msgspec.Raw]:
            return [self._listed(each, counts.get(each.hccl_digest, 0), ended_too=ended_too) for each in jobs]

        return await beside.the_loop(made, _described(jobs))

    async def whole(self, jobs: Sequence[job.Job], *, ended_too: bool) -> Sequence[msgspec.Raw]:
        """The jobs with all that there is of each."""
        tables: dict[str, list[str]] = {}
        owners: dict[int, str] = {
            at: each.job_id for each in jobs if each.hccl_digest is not None for at in each.table_positions
        }
        async with aclosing(_rows(self._pool, owners)) as found:
            async for rows in found:
                for row in rows:
                    tables.setdefault(owners[row.position], []).append(row.hccl or "")

        def made() -> Sequence[msgspec.Raw]:
            return [self._whole(each, tables.get(each.job_id, ()), ended_too=ended_too) for each in jobs]

        in_tables = sum(len(text) for table in tables.values() for text in table)
        return await beside.the_loop(made, _described(jobs) + in_tables)

    def _listed(self, each: job.Job, servers: int, *, ended_too: bool) -> msgspec.Raw:
        shown = returnobj.listed(each, servers, self._zone)
        if ended_too:
            shown = returnobj.listed_with_delete_time(shown, each, self._zone)
        return msgspec.Raw(_encoder.encode(shown))

    def _whole(self, each: job.Job, table: Sequence[str], *, ended_too: bool) -> msgspec.Raw:
        shown = returnobj.build(each, ranktable.join(table), self._zone)
        if ended_too:
            shown = returnobj.with_delete_time(shown, each, self._zone)
        return msgspec.Raw(_encoder.encode(shown))

    async def _counts(self, jobs: Sequence[job.Job]) -> Mapping[bytes | None, int]:
        """How many servers the jobs' rank tables have, by digest; each part of one says it of all."""
        digests = {
            each.hccl_digest: each.table_positions[-1]
            for each in jobs
            if each.hccl_digest is not None and each.table_positions
        }
        counts: dict[bytes | None, int] = {}
        unknown: dict[int, bytes] = {}
        for digest, position in digests.items():
            if (count := self._kept.get(digest)) is None:
                unknown[position] = digest
            else:
                counts[digest] = count
                self._kept.move_to_end(digest)
        async with aclosing(_rows(self._pool, unknown)) as found:
            async for rows in found:
                for row, count in zip(rows, await _counted(rows), strict=True):
                    digest = unknown[row.position]
                    counts[digest] = self._kept[digest] = count
        while len(self._kept) > KEPT_COUNTS:
            self._kept.popitem(last=False)
        return counts


def _described(jobs: Sequence[job.Job]) -> int:
    return sum(len(each.detail or "") for each in jobs)


async def _counted(rows: Sequence[eventlog.Stored]) -> Sequence[int]:
    texts = [row.hccl or "" for row in rows]
    return await beside.the_loop(lambda: [ranktable.read(text).count for text in texts], sum(map(len, texts)))


async def _rows(
    pool: engine.ReadPool, positions: Mapping[int, object]
) -> AsyncGenerator[Sequence[eventlog.Stored]]:
    """The events at these positions, bit by bit."""
    ahead = sorted(positions)
    while ahead:
        async with pool.connection(patience_seconds=engine.CALLER_PATIENCE_SECONDS) as connection:
            rows = await eventlog.at(connection, ahead, size_bytes=HCCL_BYTES)
        if not rows:
            break
        yield rows
        await asyncio.sleep(0)
        ahead = ahead[len(rows) :]
