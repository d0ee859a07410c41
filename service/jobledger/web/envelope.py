"""What every REST answer comes in, and what our errors are in it: one table.

Failures are HTTP 200 too: the official client throws the body away on any other status. Who asks for
``application/problem+json`` gets the real status, and the same words as an RFC 9457 problem.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Generic, TypeVar

import msgspec
from aiohttp import web

from jobledger import errors, logs

SUCCESS: Final = 800
FAILURE: Final = 900
JSON: Final = {"Content-Type": "application/json; charset=utf-8"}
PROBLEM: Final = "application/problem+json"

REQUEST_ID_HEADER: Final = "X-Request-Id"
"""Header of every answer: the id under which the log has the request's lines."""

RETRY_AFTER_SECONDS: Final = 1
"""When to try again what could not be done now."""

_log = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()

_NOT_WANTED: Final = re.compile(r"q\s*=\s*0(\.0*)?")

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


class Problem(msgspec.Struct, frozen=True, kw_only=True, rename={"error_code": "errorCode"}):
    """A failure as RFC 9457 has it, for who asks for it."""

    type: str = "about:blank"
    """No kind beside those of HTTP; errorCode tells them apart."""

    title: str
    """The status in words."""

    status: int
    detail: str
    """The message of the envelope."""

    error_code: ErrorCode


ERROR_CODES: Final[tuple[tuple[type[errors.LedgerError], ErrorCode, HTTPStatus], ...]] = (
    (errors.EventConflict, ErrorCode.BAD_REQUEST, HTTPStatus.CONFLICT),
    (errors.EventTooLarge, ErrorCode.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.EventError, ErrorCode.BAD_REQUEST, HTTPStatus.BAD_REQUEST),
    (errors.WrongMethod, ErrorCode.BAD_REQUEST, HTTPStatus.METHOD_NOT_ALLOWED),
    (errors.BodyTooLarge, ErrorCode.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.UnsupportedMedia, ErrorCode.BAD_REQUEST, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (errors.InvalidRequest, ErrorCode.BAD_REQUEST, HTTPStatus.BAD_REQUEST),
    (errors.NotFound, ErrorCode.NOT_FOUND, HTTPStatus.NOT_FOUND),
    (errors.NotPermitted, ErrorCode.STATUS_UNAUTHORIZED, HTTPStatus.FORBIDDEN),
)
"""Errors that are the caller's to mend, told in their own words; the status is a problem's. The first class
that fits decides; every other exception is an InternalServerError."""

OUR_FAULT: Final[tuple[tuple[type[errors.LedgerError], str], ...]] = (
    (errors.Overloaded, "overloaded, retry after 1 s"),
    (errors.DatabaseUnavailable, "the database is not available, retry"),
    (errors.ShuttingDown, "this server is shutting down, retry"),
    (errors.Unavailable, "not available now, retry"),
)
"""What is said instead of the error's own words, which may be the driver's; a problem's status is 503, and
500 for what is not listed."""

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
    answer: msgspec.Struct, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The answer as JSON, every character as itself."""
    return web.Response(body=_encoder.encode(answer), status=status, headers={**JSON, **(headers or {})})


def success(return_obj: msgspec.Struct, *, headers: Mapping[str, str] | None = None) -> web.Response:
    """A success with its object."""
    return json_response(Success(return_obj=return_obj), headers=headers)


def encoded(return_obj: msgspec.Struct) -> bytes:
    """The body of a success."""
    return _encoder.encode(Success(return_obj=return_obj))


def wants_problem(request: web.BaseRequest) -> bool:
    """Whether the caller asks for real statuses and problems."""
    for given in request.headers.getall("Accept", []):
        for choice in given.split(","):
            media, *parameters = (part.strip().lower() for part in choice.split(";"))
            if media == PROBLEM:
                return not any(_NOT_WANTED.fullmatch(each) for each in parameters)
    return False


def failure(error: Exception, *, problem: bool = False) -> web.Response:
    """A failure in the table's words; what is our fault is logged here, under the id that the caller gets."""
    request_id = logs.request_id()
    code, status, message = _told(error, request_id)
    headers = {REQUEST_ID_HEADER: request_id, "Cache-Control": "no-store"}
    if not problem:
        return json_response(Failure(error_code=code, message=message), headers=headers)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, errors.WrongMethod):
        headers["Allow"] = ", ".join(error.allowed)
    told = Problem(title=status.phrase, status=status, detail=message, error_code=code)
    return json_response(told, status=status, headers={**headers, "Content-Type": PROBLEM})


def _told(error: Exception, request_id: str) -> tuple[ErrorCode, HTTPStatus, str]:
    for kind, code, status in ERROR_CODES:
        if isinstance(error, kind):
            return code, status, _words(error)
    said = f"{_log_ours(error, request_id)} (request {request_id})"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, tuple(kind for kind, _ in OUR_FAULT)):
        status = HTTPStatus.SERVICE_UNAVAILABLE
    return ErrorCode.INTERNAL_SERVER_ERROR, status, said


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
