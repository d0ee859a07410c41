"""What every REST answer comes in, and what our errors are in it: one table.

Failures are HTTP 200 too: the official client throws the body away on any other status.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec
from aiohttp import web

from jobledger import errors, logs

SUCCESS: Final = 800
FAILURE: Final = 900
JSON: Final = {"Content-Type": "application/json; charset=utf-8"}

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()

T = TypeVar("T")


class ErrorCode(StrEnum):
    """Every errorCode of the CWAI contract."""

    BAD_REQUEST = "Cwai.Api.BadRequest"
    """A parameter is missing, malformed, repeated or contradictory; or the method is wrong."""

    NOT_FOUND = "Cwai.Api.NotFound"
    """No such job in this region, or no such path."""

    STATUS_UNAUTHORIZED = "Cwai.Api.StatusUnauthorized"
    """Not this user's or account's job, or not permitted."""

    INTERNAL_SERVER_ERROR = "Cwai.Api.InternalServerError"
    """Our fault, or not now."""


class Success(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename="camel"):
    """A call that did what it was asked to."""

    status_code: int = SUCCESS
    return_obj: T


class Failure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A call that did nothing."""

    status_code: int = FAILURE
    error_code: ErrorCode
    message: str


ERROR_CODES: Final[tuple[tuple[type[errors.LedgerError], ErrorCode], ...]] = (
    (errors.EventError, ErrorCode.BAD_REQUEST),
    (errors.InvalidRequest, ErrorCode.BAD_REQUEST),
    (errors.NotFound, ErrorCode.NOT_FOUND),
    (errors.NotPermitted, ErrorCode.STATUS_UNAUTHORIZED),
)
"""Errors that are the caller's to mend, told in their own words. The first class that fits decides; every
other exception is an InternalServerError."""

OUR_FAULT: Final[tuple[tuple[type[errors.LedgerError], str], ...]] = (
    (errors.Overloaded, "overloaded, retry after 1 s"),
    (errors.DatabaseUnavailable, "the database is not available, retry"),
    (errors.ShuttingDown, "this server is shutting down, retry"),
    (errors.Unavailable, "not available now, retry"),
)
"""What is said instead of the error's own words, which may be the driver's."""

UNEXPECTED: Final = "something went wrong here"

_FIELDS: Final = {
    "region": "regionID",
    "accountId": "accountID",
    "userId": "userID",
    "signal.jobId": "jobID",
    "signal.uuid": "uuid",
}
"""Fields of an event that a REST caller knows by another name."""


def json_response(
    answer: msgspec.Struct, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """The answer as JSON, every character as itself."""
    return web.Response(body=_encoder.encode(answer), status=status, headers={**JSON, **(headers or {})})


def success(return_obj: msgspec.Struct, *, headers: dict[str, str] | None = None) -> web.Response:
    """A success with its object."""
    return json_response(Success(return_obj=return_obj), headers=headers)


def failure(error: Exception) -> web.Response:
    """A failure in the table's words; what is our fault is logged here, under the id that the caller gets."""
    for kind, code in ERROR_CODES:
        if isinstance(error, kind):
            return json_response(Failure(error_code=code, message=_words(error)))
    request_id = logs.request_id()
    said = f"{_log_ours(error, request_id)} (request {request_id})"
    return json_response(Failure(error_code=ErrorCode.INTERNAL_SERVER_ERROR, message=said))


def _log_ours(error: Exception, request_id: str) -> str:
    for kind, text in OUR_FAULT:
        if isinstance(error, kind):
            _log.warning("request %s was turned away: %s", request_id, error)
            return text
    _log.error("request %s failed", request_id, exc_info=error)
    return UNEXPECTED


def _words(error: Exception) -> str:
    if not isinstance(error, errors.EventError):
        return str(error)
    return f"{_FIELDS.get(error.field, error.field.removeprefix('detail.'))}: {error.reason}"
