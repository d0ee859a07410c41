"""What is read of one job: what it is now, what it was, and every event of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
from aiohttp import web

from jobledger.ledger import beside, past
from jobledger.model import cwai, event, job, ranktable, returnobj
from jobledger.model.principal import Scope
from jobledger.store import engine, eventlog, history, ledgerinfo, listing
from jobledger.store import jobs as view
from jobledger.web import changes, entitytags, envelope, identity, lookups, parameters

SMALL_BYTES: Final = beside.INLINE_CHARACTERS
"""Descriptions and rank tables up to which a job is read with others; a larger one is by itself."""

HISTORY_PAGE: Final = 500
"""Events of a job in one answer."""


class Change(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """One event of a job."""

    uuid: str
    position: int
    operator: str
    job_status: str
    recorded_at: str
    """RFC 3339, UTC, to the microsecond."""

    changed: tuple[str, ...]
    """Names of what is different from the event before; of a life's first event, all that it gives."""


class History(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``returnObj`` of a job's events, in the order of their positions."""

    current_count: int
    results: tuple[Change, ...]
    cursor: str
    """For the next ones; "" at the end."""


class Reads:
    """The reading handlers of ``/v4/cwai/job/{jobID}``."""

    def __init__(self, *, pool: engine.ReadPool, identify: identity.Identify, zone: tzinfo) -> None:
        self._pool = pool
        self._identify = identify
        self._zone = zone
        self._zone_name = str(zone)
        self._heads = lookups.Lookups(pool, view.heads)
        self._small = lookups.Lookups(pool, partial(view.small_with_rank_table, limit_bytes=SMALL_BYTES))
        self._bodies = entitytags.Bodies[tuple[str, bool]]()

    async def show(self, request: web.BaseRequest, path_id: str) -> web.Response:
        """GET: the job as it is now, or was."""
        self._identify(request).require(Scope.READ)
        given = parameters.Parameters(request, path_id)
        job_id, region = given.job_id(), given.region()
        owners = identity.owners(given)
        ended_too, as_of = given.flag("includeDeleted"), given.query("asOf")
        if as_of:
            return await self._show_past(request, given, owners, as_of=as_of, ended_too=ended_too)
        asked = (job_id, ended_too)
        kept = self._bodies.get(asked)
        found = None
        at_once = kept is None and not entitytags.asks(request)
        if at_once:
            # Whatever its tag would be, there is no answer yet: nothing is to be looked at before.
            found = await self._small.find(job_id)
        if found is None:
            head = await self._heads.find(job_id)
            if head is None or head.region != region or not (head.live or ended_too):
                raise identity.no_job(job_id, region)
            owners.narrow(user_id=head.user_id, account_id=head.account_id)
            etag = self._tag(head.epoch, head.last_position, ended_too=ended_too)
            if entitytags.has(request, etag):
                return web.Response(status=304, headers={"ETag": etag})
            if kept is not None and kept.etag == etag:
                return _answer(kept)
            found = (None if at_once else await self._small.find(job_id)) or await self._alone(job_id)
        if found is None or found.job.region != region or not (found.job.live or ended_too):
            raise identity.no_job(job_id, region)
        owners.narrow(user_id=found.job.user_id, account_id=found.job.account_id)
        etag = self._tag(found.epoch, found.job.last_position, ended_too=ended_too)
        kept = entitytags.Kept(etag, await self._body(found.job, found.rank_tables, ended_too=ended_too))
        self._bodies.keep(asked, kept)
        return _answer(kept)

    async def _alone(self, job_id: str) -> view.WithRankTables | None:
        async with self._pool.connection(patience_seconds=engine.CALLER_PATIENCE_SECONDS) as connection:
            return await view.with_rank_tables(connection, job_id)

    async def _show_past(
        self,
        request: web.BaseRequest,
        given: parameters.Parameters,
        owners: identity.Owners,
        *,
        as_of: str,
        ended_too: bool,
    ) -> web.Response:
        job_id, region = given.job_id(), given.region()
        async with listing.moment(self._pool) as connection:
            at = await past.resolve(connection, as_of)
            shown = (await past.states(connection, [job_id], at)).get(job_id)
            if shown is None or shown.region != region or not (shown.live or ended_too):
                raise identity.no_job(job_id, region, at=at)
            owners.narrow(user_id=shown.user_id, account_id=shown.account_id)
            epoch = (await ledgerinfo.read(connection)).epoch
            etag = self._tag(epoch, shown.last_position, as_of, ended_too=ended_too)
            if entitytags.has(request, etag):
                return web.Response(status=304, headers={"ETag": etag})
            rank_tables = await eventlog.rank_table(connection, shown.table_positions)
        body = await self._body(shown, rank_tables, ended_too=ended_too)
        return web.Response(body=body, headers={**envelope.JSON, "ETag": etag})

    def _tag(self, epoch: UUID, position: int, as_of: str = "", *, ended_too: bool) -> str:
        return entitytags.tag(epoch, position, self._zone_name, as_of, ended_too, "application/json")

    async def _body(self, shown: job.Job, rank_tables: Sequence[str], *, ended_too: bool) -> bytes:
        def made() -> bytes:
            built = returnobj.build(shown, ranktable.join(rank_tables), self._zone)
            if ended_too:
                built = returnobj.with_delete_time(built, shown, self._zone)
            return envelope.encoded(built)

        size = len(shown.detail or "") + sum(map(len, rank_tables))
        return await beside.the_loop(made, size)

    async def history(self, request: web.BaseRequest, path_id: str) -> web.Response:
        """GET events: what was said of the job, in order."""
        self._identify(request).require(Scope.READ)
        given = parameters.Parameters(request, path_id)
        job_id, region = given.job_id(), given.region()
        owners = identity.owners(given)
        size = given.number("pageSize", default=HISTORY_PAGE, largest=HISTORY_PAGE)
        after = given.number("cursor", default=0, smallest=0, largest=2**63 - 1)
        head = await self._heads.find(job_id)
        if head is None or head.region != region:
            raise identity.no_job(job_id, region)
        owners.narrow(user_id=head.user_id, account_id=head.account_id)
        of = history.Reader(job_id, region, *owners)
        async with listing.moment(self._pool) as connection:
            previous = await history.before(connection, of, up_to=after) if after else None
            told = changes.Changes(past.recorded_event(previous) if previous is not None else None)
            results: list[Change] = []
            more = False
            async with contextlib.aclosing(past.of_job(connection, of, after=after)) as recorded:
                async for each in recorded:
                    if more := len(results) == size:
                        break
                    results.append(_change(each, told.next(each)))
        shown = History(
            current_count=len(results),
            results=tuple(results),
            cursor=str(results[-1].position) if more else "",
        )
        return envelope.success(shown)


def _answer(kept: entitytags.Kept) -> web.Response:
    return web.Response(body=kept.body, headers={**envelope.JSON, "ETag": kept.etag})


def _change(recorded: event.RecordedEvent, changed: Sequence[str]) -> Change:
    return Change(
        uuid=str(recorded.uuid),
        position=recorded.position,
        operator=recorded.signal.operator,
        job_status=recorded.signal.job_status,
        recorded_at=recorded.recorded_at.astimezone(UTC)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        changed=tuple(changed),
    )
