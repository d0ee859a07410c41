"""ETags: whether a caller has a job's newest answer already, and the bodies of those that were asked for."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from aiohttp import web

from jobledger import __version__

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Memory for bodies: some twenty thousand jobs of usual size."""

LARGEST_KEPT: Final = 1024 * 1024

Key = TypeVar("Key", bound=Hashable)


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


def asks(request: web.BaseRequest) -> bool:
    """Whether the caller wants an answer only if it is another one."""
    return "If-None-Match" in request.headers


class Kept(NamedTuple):
    """The newest answer about a job that somebody got."""

    etag: str
    body: bytes


class Bodies(Generic[Key]):
    """The newest answers by what was asked for, the least recently used go first; bounded in bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self.size_bytes = 0

    def get(self, asked: Key) -> Kept | None:
        """An answer that is kept; it may be outdated."""
        kept = self._kept.get(asked)
        if kept is not None:
            self._kept.move_to_end(asked)
        return kept

    def keep(self, asked: Key, answer: Kept) -> None:
        """Keep an answer for the next who asks, instead of an older one."""
        before = self._kept.pop(asked, None)
        if before is not None:
            self.size_bytes -= len(before.body)
        if len(answer.body) > LARGEST_KEPT:
            return
        self._kept[asked] = answer
        self.size_bytes += len(answer.body)
        while self.size_bytes > KEPT_BYTES:
            self.size_bytes -= len(self._kept.popitem(last=False)[1].body)
