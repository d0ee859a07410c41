"""Whether the process lives, and whether it should be sent work; with real HTTP statuses."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from jobledger.ledger import tail
from jobledger.web import envelope

BEHIND_LIMIT_SECONDS: Final = 10.0
"""How long the log may go unfollowed: ten polls, beyond any pause of a healthy database."""

UNAVAILABLE: Final = 503


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``/healthz``."""

    status: str
    """``ok`` or ``draining``."""


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """Each must hold for readiness."""

    serving: bool
    """Nobody told the process to stop."""

    database: bool
    """The last look at the log succeeded."""

    complete: bool
    """No position is missing from the log."""

    following: bool
    """The log was followed to its end a moment ago."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The body of ``/readyz``."""

    ready: bool
    checks: Checks


class Health:
    """Answers ``/healthz`` and ``/readyz``."""

    def __init__(self, following: tail.Tail) -> None:
        self._tail = following
        self.draining = False
        """Set once the process was told to stop; never unset."""

    async def live(self, _request: web.BaseRequest, _path_id: str) -> web.Response:
        """200 until the process is told to stop."""
        if self.draining:
            return envelope.json_response(Liveness(status="draining"), status=UNAVAILABLE)
        return envelope.json_response(Liveness(status="ok"))

    async def ready(self, _request: web.BaseRequest, _path_id: str) -> web.Response:
        """200 while every check holds."""
        checks = Checks(
            serving=not self.draining,
            database=self._tail.available,
            complete=self._tail.loss is None,
            following=self._tail.behind_seconds <= BEHIND_LIMIT_SECONDS,
        )
        ready = all(msgspec.structs.astuple(checks))
        return envelope.json_response(
            Readiness(ready=ready, checks=checks), status=200 if ready else UNAVAILABLE
        )
