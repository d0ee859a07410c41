"""Lists of jobs: as they are, as they were, page by page of one moment."""

from __future__ import annotations

from datetime import tzinfo
from typing import Final

import msgspec
from aiohttp import web

from jobledger import errors
from jobledger.ledger import walk
from jobledger.model import jsontext, listing
from jobledger.model.principal import Scope
from jobledger.store import engine
from jobledger.web import body, cursor, envelope, identity, listrequest, parameters, results

BODY_BYTES: Final = 64 * 1024
"""A list's request is a few hundred bytes."""


class JobList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``returnObj`` of a list."""

    current_count: int
    total_count: int
    """How many jobs the list has, on all pages, at its moment."""

    total_page: int
    results: tuple[msgspec.Raw, ...]
    """Each a ListedJob, an EndedListedJob, a JobObject or an EndedJobObject."""

    cursor: str
    """For the next page of the same moment; "" on the last one."""


class Lists:
    """The handlers of ``/v4/cwai/job/list`` and ``/v4/cwai/jobs``."""

    def __init__(self, *, pool: engine.ReadPool, identify: identity.Identify, zone: tzinfo) -> None:
        self._identify = identify
        self._zone = zone
        self._walks = walk.Walks(pool)
        self._results = results.Results(pool, zone)

    async def query(self, request: web.BaseRequest, _path_id: str) -> web.Response:
        """GET: the parameters in the query."""
        self._identify(request).require(Scope.READ)
        given = parameters.Parameters(request, "")
        named = {name: given.query(name) for name in given.names()}
        return await self._answer(given, listrequest.read(named, as_text=True))

    async def search(self, request: web.BaseRequest, _path_id: str) -> web.Response:
        """POST: the parameters in the body, a JSON object."""
        self._identify(request).require(Scope.READ)
        given = parameters.Parameters(request, "")
        text = await body.read(request, limit_bytes=BODY_BYTES)
        tree = jsontext.read(text, "body") if text.strip() else {}
        if not isinstance(tree, dict):
            raise errors.InvalidRequest("the body is no JSON object; send the list's parameters as one")
        for name in given.names():
            if name != "regionID":
                raise errors.InvalidRequest(f"{errors.shown(name)} belongs into the body of a POST")
        return await self._answer(given, listrequest.read(tree, as_text=False))

    async def _answer(self, given: parameters.Parameters, asked: listrequest.ListRequest) -> web.Response:
        wanted = listrequest.filter_of(
            asked,
            region=given.region(in_body=asked.region_id),
            only_user=given.header("userID"),
            only_account=given.header("accountID"),
            zone=self._zone,
        )
        found, further = await self._page(asked, wanted, listrequest.order_of(asked))
        shown = self._results.whole if asked.detail else self._results.listed
        return envelope.success(
            JobList(
                current_count=len(found.jobs),
                total_count=found.total,
                total_page=-(-found.total // asked.page_size),
                results=tuple(await shown(found.jobs, ended_too=asked.include_deleted)),
                cursor=cursor.write(further, wanted, listrequest.order_of(asked)) if further else "",
            )
        )

    async def _page(
        self, asked: listrequest.ListRequest, wanted: listing.Filter, order: listing.Order
    ) -> tuple[walk.Page, cursor.Place | None]:
        """A page, and where the next one begins."""
        limit, page_no, as_of = asked.page_size, asked.page_no, asked.as_of
        offset = (page_no - 1) * limit
        if asked.cursor:
            place = cursor.read(asked.cursor, wanted, order)
            if page_no not in (1, place.page_no):
                raise errors.InvalidRequest(
                    f"cursor goes on at page {place.page_no}, pageNo is {page_no}; give one of them"
                )
            if as_of not in ("", place.as_of):
                raise errors.InvalidRequest(
                    f"cursor is of another moment than asOf {errors.shown(as_of)}; give one of them"
                )
            page_no, as_of = place.page_no, place.as_of
            pinned = walk.Walk(wanted=wanted, order=order, at=place.at, expires=not as_of)
            found = await self._walks.go_on(pinned, after=place.after, limit=limit, total=place.total)
        elif as_of:
            at = await self._walks.at(as_of)
            then = walk.Walk(wanted=wanted, order=order, at=at, expires=False)
            found = await self._walks.go_on(then, after=None, offset=offset, limit=limit, total=None)
        else:
            found = await self._walks.present(wanted, order, offset=offset, limit=limit)
        if found.last is None:
            return found, None
        return found, cursor.Place(
            at=found.at, total=found.total, page_no=page_no + 1, after=found.last, as_of=as_of
        )
