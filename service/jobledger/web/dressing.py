"""What every answer wears, whichever handler made it: request id, caching, CORS, gzip."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Final

from aiohttp import web

from jobledger import logs
from jobledger.web import envelope

GZIP_BYTES: Final = 16 * 1024
"""Bodies from which on gzip is worth its time: below, a page of a list, it saves less than it costs."""

INLINE_BYTES: Final = 256 * 1024
"""Bodies up to which that is done on the loop, in a millisecond or two; a thread's turn costs as much."""

VARY: Final = "Accept, Authorization, regionID, userID, accountID"
"""Headers on which an answer of the API depends."""

API: Final = "/v4/"

_GZIP: Final = 16 + zlib.MAX_WBITS
"""What zlib calls a gzip of the largest window."""

CALLERS_HEADERS: Final = f"Content-Type, If-None-Match, Last-Event-ID, {VARY}"
"""Headers that a browser's page may send us."""

PREFLIGHT_SECONDS: Final = 600
"""How long a browser may remember what OPTIONS said."""


class Dressing:
    """Puts headers on answers; ``origins`` are those whose pages may call us from a browser, ``*`` is all."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)
        origin = ("Origin",) if self._origins else ()
        self._vary = {True: (VARY, *origin), False: origin}
        """By whether it is of the API."""

    def dress(self, request: web.BaseRequest, answer: web.StreamResponse) -> None:
        """Give an answer that is not sent yet what it must wear."""
        headers = answer.headers
        headers.setdefault(envelope.REQUEST_ID_HEADER, logs.request_id())
        of_api = request.rel_url.raw_path.startswith(API)
        if of_api:
            headers.setdefault("Cache-Control", "private, no-cache")
        if self._origins:
            self._allow_origin(request, answer)
        vary = self._vary[of_api]
        if isinstance(answer, web.Response) and _large(answer):
            vary = (*vary, "Accept-Encoding")
            if _takes_gzip(request):
                _compress(answer)
        if vary:
            headers["Vary"] = ", ".join(vary)

    def _allow_origin(self, request: web.BaseRequest, answer: web.StreamResponse) -> None:
        origin = request.headers.get("Origin", "")
        if not origin or not self._origins & {origin, "*"}:
            return
        answer.headers["Access-Control-Allow-Origin"] = origin
        answer.headers["Access-Control-Expose-Headers"] = (
            f"ETag, X-Ledger-Position, {envelope.REQUEST_ID_HEADER}"
        )
        if request.method == "OPTIONS":
            answer.headers["Access-Control-Allow-Methods"] = answer.headers.get("Allow", "")
            answer.headers["Access-Control-Allow-Headers"] = CALLERS_HEADERS
            answer.headers["Access-Control-Max-Age"] = str(PREFLIGHT_SECONDS)


def _large(answer: web.Response) -> bool:
    return isinstance(answer.body, bytes) and len(answer.body) >= GZIP_BYTES


def _compress(answer: web.Response) -> None:
    if isinstance(answer.body, bytes) and len(answer.body) <= INLINE_BYTES:
        answer.body = zlib.compress(answer.body, zlib.Z_BEST_SPEED, wbits=_GZIP)
        answer.headers["Content-Encoding"] = "gzip"
    else:
        answer.enable_compression(web.ContentCoding.gzip)


def _takes_gzip(request: web.BaseRequest) -> bool:
    """Whether gzip may be sent: what is said of it goes before ``*`` (RFC 9110, 12.5.3)."""
    said: dict[str, str] = {}
    for choice in request.headers.get("Accept-Encoding", "").split(","):
        coding, _, quality = choice.replace(" ", "").lower().partition(";")
        said[coding] = quality
    quality = said.get("gzip", said.get("*", "q=0"))
    return quality not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
