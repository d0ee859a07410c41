"""A request's body, as text: bounded, in time, and JSON at least by its label."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import HttpVersion11, web

from jobledger import errors

IDLE_SECONDS: Final = 30.0
"""How long a body may pause: a client that is gone without a word holds its memory no longer."""


async def read(request: web.BaseRequest, *, limit_bytes: int) -> str:
    """The body as text; no more than the limit is ever held.

    Raises:
        errors.UnsupportedMedia: It is labelled as something else.
        errors.BodyTooLarge: It is larger than the limit.
        errors.InvalidRequest: It is not UTF-8, or does not arrive.
        ConnectionError: The client is gone.
    """
    _check_label(request)
    if request.content_length is not None and request.content_length > limit_bytes:
        raise _too_large(f"has {request.content_length} bytes", limit_bytes)
    await _invite(request)
    try:
        return (await _received(request, limit_bytes)).decode()
    except UnicodeDecodeError as error:
        problem = f"the body is not UTF-8 at byte {error.start}; send JSON in UTF-8"
    raise errors.InvalidRequest(problem)


async def _received(request: web.BaseRequest, limit_bytes: int) -> bytes:
    if request.content.is_eof():  # as bodies mostly are when their handler begins
        whole = request.content.read_nowait()
        if len(whole) > limit_bytes:
            raise _too_large("is larger", limit_bytes)
        return whole
    received = bytearray()
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                chunk = await request.content.readany()
        except TimeoutError:
            raise errors.InvalidRequest(
                f"nothing more of the body came for {IDLE_SECONDS:g} s; send it again"
            ) from None
        if not chunk:
            return bytes(received)
        received += chunk
        if len(received) > limit_bytes:
            raise _too_large("is larger", limit_bytes)


def _check_label(request: web.BaseRequest) -> None:
    kind = request.content_type
    # Without one, aiohttp says application/octet-stream. A form is what curl and a hostile web page send.
    if request.headers.get("Content-Type") and not (kind == "application/json" or kind.endswith("+json")):
        raise errors.UnsupportedMedia(
            f"the body is {errors.shown(kind)}; send Content-Type: application/json"
        )
    charset = request.charset
    if charset and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
        raise errors.UnsupportedMedia(f"the body's charset is {errors.shown(charset)}; send UTF-8")
    coding = request.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise errors.UnsupportedMedia(f"the body is encoded as {errors.shown(coding)}; send it as it is")


async def _invite(request: web.BaseRequest) -> None:
    """Answer a client that asks whether to send its body, as curl does from 1 MiB on."""
    expected = request.headers.get("Expect", "")
    if expected.lower() == "100-continue" and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def _too_large(what: str, limit_bytes: int) -> errors.BodyTooLarge:
    return errors.BodyTooLarge(f"the body {what}; the limit is {limit_bytes} bytes")
