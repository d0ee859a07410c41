"""ETags: whether a caller has a job's newest answer already, and the bodies of those that were asked for."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from functools import lru_cache
from typing import Final
from uuid import UUID

from aiohttp import web

from jobledger import __version__

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Memory for bodies: some twenty thousand jobs of usual size."""

LARGEST_KEPT: Final = 1024 * 1024


def tag(epoch: UUID, position: int, *representation: str | bool) -> str:
    """The ETag of a job's answer: another epoch, event, release or way of showing it is another one."""
    return f'"{position}-{_shown(epoch, representation)}"'


@lru_cache(maxsize=1024)
def _shown(epoch: UUID, representation: tuple[str | bool, ...]) -> str:
    return hashlib.sha256(repr((__version__, str(epoch), *representation)).encode()).hexdigest()[:24]


def has(request: web.BaseRequest, etag: str) -> bool:
    """Whether the caller says that it has this one (RFC 9110, 13.1.2)."""
    for given in request.headers.getall("If-None-Match", ()):
        if given == etag or any(each.strip().removeprefix("W/") in (etag, "*") for each in given.split(",")):
            return True
    return False


class Bodies:
    """The bodies of answers by their ETag, the least recently used go first; bounded in bytes."""

    def __init__(self) -> None:
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self.size_bytes = 0

    def get(self, etag: str) -> bytes | None:
        """A body that is kept."""
        body = self._bodies.get(etag)
        if body is not None:
            self._bodies.move_to_end(etag)
        return body

    def keep(self, etag: str, body: bytes) -> None:
        """Keep a body for the next who asks."""
        if len(body) > LARGEST_KEPT or etag in self._bodies:
            return
        self._bodies[etag] = body
        self.size_bytes += len(body)
        while self.size_bytes > KEPT_BYTES:
            self.size_bytes -= len(self._bodies.popitem(last=False)[1])
