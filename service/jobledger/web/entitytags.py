"""ETags: whether a caller has a job's newest answer already, and the bodies of those that were asked for."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from aiohttp import web

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Memory for bodies: some twenty thousand jobs of usual size."""

LARGEST_KEPT: Final = 1024 * 1024


def tag(epoch: str, position: int, *representation: object) -> str:
    """The ETag of a job's answer: another epoch, event or way of showing it is another one."""
    said = hashlib.sha256(repr(representation).encode()).hexdigest()[:12]
    return f'"{epoch[:13]}-{position}-{said}"'


def has(request: web.BaseRequest, etag: str) -> bool:
    """Whether the caller says that it has this one (RFC 9110, 13.1.2)."""
    given = ",".join(request.headers.getall("If-None-Match", []))
    return (
        any(each.strip().removeprefix("W/") in (etag, "*") for each in given.split(",")) if given else False
    )


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
