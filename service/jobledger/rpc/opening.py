"""What the headers of a call say: which method it is and how long it may take, or why it is none."""

from __future__ import annotations

import binascii
from collections.abc import Container
from typing import Final, NamedTuple

from grpclib import const, metadata

from jobledger import errors

SHORTEST_TIMEOUT_SECONDS: Final = 0.001
"""A deadline closer than this has passed before a handler runs."""

CONTENT_TYPE: Final = ("content-type", "application/grpc+proto")
"""Of every answer."""

CONTENT_TYPES: Final = ("application/grpc", "application/grpc+proto")
"""Of a request."""


class Opening(NamedTuple):
    """What a call asks for."""

    path: str
    timeout_seconds: float | None
    refusal: Answer | None = None
    """What it is answered instead of being served; an empty one stands for a reset."""


Answer = list[tuple[str, str]]


class Headers(list[tuple[str, str]]):
    """A call's headers, with what they say once that was read: a client's next call may have the same."""

    opening: Opening | None = None


def read(headers: list[tuple[str, str]], methods: Container[str]) -> Opening:
    """What the headers say."""
    if not isinstance(headers, Headers):
        return _read(headers, methods)
    if headers.opening is None:
        headers.opening = _read(headers, methods)
    return headers.opening


def refused(status: const.Status, message: str, *, http: int = 200) -> Answer:
    """All of a call's answer."""
    return [
        (":status", str(http)),
        CONTENT_TYPE,
        ("grpc-status", str(status.value)),
        ("grpc-message", metadata.encode_grpc_message(message)),
    ]


def _read(headers: list[tuple[str, str]], methods: Container[str]) -> Opening:
    names = dict(headers)
    if ":method" not in names or ":path" not in names:
        return Opening("", None, [])
    timeouts = [value for name, value in headers if name == "grpc-timeout"]
    try:
        timeout = min(map(metadata.decode_timeout, timeouts), default=None)
    except ValueError:
        message = f"grpc-timeout {errors.shown(timeouts[0])} is no duration"
        return Opening("", None, refused(const.Status.INVALID_ARGUMENT, message))
    refusal = _refusal(names, methods) or _bad_binary(headers)
    if refusal is None and timeout is not None and timeout < SHORTEST_TIMEOUT_SECONDS:
        message = "the deadline had passed when the call arrived"
        refusal = refused(const.Status.DEADLINE_EXCEEDED, message)
    return Opening(names[":path"], timeout, refusal)


def _refusal(names: dict[str, str], methods: Container[str]) -> Answer | None:
    if names[":method"] != "POST":
        return [(":status", "405")]
    if names.get("content-type") not in CONTENT_TYPES:
        return refused(const.Status.UNKNOWN, "send content-type: application/grpc", http=415)
    if names.get("te") != "trailers":
        return refused(const.Status.UNKNOWN, "send te: trailers", http=400)
    if names[":path"] not in methods:
        return refused(const.Status.UNIMPLEMENTED, "Method not found")
    return None


def _bad_binary(headers: list[tuple[str, str]]) -> Answer | None:
    for name, value in headers:
        if name.endswith("-bin"):
            try:
                metadata.decode_bin_value(value.encode("latin-1"))
            except binascii.Error:
                message = f"metadata {name} is not base64; encode its bytes"
                return refused(const.Status.INVALID_ARGUMENT, message)
    return None
