"""What is reported of jobs over REST."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from jobledger import errors
from jobledger.ledger import appender, beside
from jobledger.model import cwai, event
from jobledger.model.principal import Principal, Scope
from jobledger.model.signal import Signal
from jobledger.store import engine
from jobledger.store import jobs as view
from jobledger.web import body, envelope, identity, parameters, submissions

POSITION_HEADER: Final = "X-Ledger-Position"
"""Header of every write's answer: where the event is in the log."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """``returnObj`` of a write: the event is in the log and in the view."""

    job_id: str
    uuid: str
    position: int
    duplicate: bool
    """The log held it before; position is that of the first."""


class Jobs:
    """The writing handlers; each takes the request and the path's last segment, undecoded."""

    def __init__(
        self,
        *,
        appender: appender.Appender,
        pool: engine.ReadPool,
        identify: identity.Identify,
        request_limit_bytes: int,
    ) -> None:
        self._appender = appender
        self._pool = pool
        self._identify = identify
        self._request_limit_bytes = request_limit_bytes

    async def record(self, request: web.BaseRequest, path_id: str) -> web.Response:
        """POST: record an add; the body is the job."""
        principal = self._identify(request)
        principal.require(Scope.PUBLISH)
        return await self._append(await self._posted(request, path_id), principal)

    async def _posted(self, request: web.BaseRequest, path_id: str) -> event.Submission:
        given = parameters.Parameters(request, path_id)
        user_id, account_id = given.header("userID"), given.header("accountID")
        text = await body.read(request, limit_bytes=self._request_limit_bytes)
        posted = await beside.the_loop(lambda: submissions.read(text), len(text))
        identity.same_owner("userID", user_id, posted.user_id)
        identity.same_owner("accountID", account_id, posted.account_id)
        job_id, region = given.job_id(in_body=posted.job_id), given.region(in_body=posted.region)
        await self._narrow_live(job_id, user_id=user_id, account_id=account_id)
        return event.Submission(
            signal=msgspec.structs.replace(
                posted.signal, job_id=job_id, uuid=given.uuid(in_body=posted.signal.uuid)
            ),
            detail=posted.detail,
            tree=posted.tree,
            region=region,
            user_id=posted.user_id or user_id,
            account_id=posted.account_id or account_id,
            completes_all=True,
        )

    async def delete(self, request: web.BaseRequest, path_id: str) -> web.Response:
        """DELETE: record a delete, also of a job that nobody knows."""
        principal = self._identify(request)
        principal.require(Scope.PUBLISH)
        given = parameters.Parameters(request, path_id)
        job_id, region = given.job_id(), given.region()
        user_id, account_id = given.header("userID"), given.header("accountID")
        await self._narrow_live(job_id, user_id=user_id, account_id=account_id)
        submission = event.Submission(
            signal=Signal(uuid=given.uuid(), job_id=job_id, operator=event.Operator.DELETE), region=region
        )
        try:
            return await self._append(submission, principal)
        except errors.EventConflict as error:
            if error.field != "region":
                raise
            raise identity.no_job(job_id, region) from error

    async def _append(self, submission: event.Submission, principal: Principal) -> web.Response:
        job_id = submission.signal.job_id
        appending = self._appender.append([submission], principal)
        # What a body was read into is ten times its size, and the appender alone needs it, for a moment.
        del submission
        [outcome] = await appending
        if isinstance(outcome, errors.EventError):
            raise outcome
        recorded = Recorded(
            job_id=job_id,
            uuid=str(outcome.uuid),
            position=outcome.position,
            duplicate=outcome.duplicate,
        )
        return envelope.success(recorded, headers={POSITION_HEADER: str(outcome.position)})

    async def _narrow_live(self, job_id: str, *, user_id: str, account_id: str) -> None:
        """Refuse a write to somebody else's live job.

        Looked at before the append and not under its lock: the headers narrow, they prove nothing.
        """
        if not (user_id or account_id):
            return
        async with self._pool.connection(patience_seconds=engine.CALLER_PATIENCE_SECONDS) as connection:
            current = (await view.current(connection, [job_id])).get(job_id)
        if current is not None and current.live:
            identity.same_owner("userID", user_id, current.user_id)
            identity.same_owner("accountID", account_id, current.account_id)
