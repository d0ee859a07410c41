"""``/openapi.json``: the API in OpenAPI 3.1, made from the structs that read requests and write answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

import jobledger
from jobledger.model import selection
from jobledger.web import envelope, jobs, reads, schemas


def document() -> dict[str, Any]:
    """The whole document, fresh."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "JobLedger",
            "version": jobledger.__version__,
            "description": "The CWAI job API over a ledger of job events. Failures are HTTP 200 with "
            "statusCode 900; who sends Accept: application/problem+json gets real statuses and problems.",
        },
        "paths": _paths(),
        "components": {"schemas": schemas.components()},
    }


class Document:
    """The handler of ``/openapi.json``."""

    def __init__(self) -> None:
        self._body = msgspec.json.encode(document())

    async def show(self, _request: web.BaseRequest, _path_id: str) -> web.Response:
        """GET: the document."""
        return web.Response(body=self._body, headers=envelope.JSON)


def _parameter(name: str, place: str, schema: Mapping[str, Any], said: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": name in ("jobID", "regionID"),
        "schema": dict(schema),
        "description": said,
    }


_JOB_ID: Final = _parameter("jobID", "path", schemas.ID)
_QUERIED_ID: Final = _parameter("jobID", "query", schemas.ID)
_REGION: Final = _parameter(
    "regionID", "query", schemas.REGION, "May stand in the header regionID instead, or in both alike."
)
_RECORDED: Final = {
    "path.jobID": "$response.body#/returnObj/jobID",
    "query.regionID": "$request.body#/regionID",
}
"""What was just recorded, as the next call names it."""

_OWNERS: Final = tuple(
    _parameter(name, "header", schemas.LINE, "Narrows to this owner; set by the gateway.")
    for name in ("userID", "accountID")
)
_AS_OF: Final = _parameter(
    "asOf", "query", schemas.AS_OF, "A position, an event's uuid, or an RFC 3339 time."
)
_DELETED: Final = _parameter("includeDeleted", "query", {"type": "boolean"}, "Whether ended jobs are shown.")

_IF_NONE_MATCH: Final = _parameter(
    "If-None-Match",
    "header",
    schemas.LINE,
    "An earlier answer's ETag: the same again is a 304.",
)
_REQUEST_ID: Final = {
    envelope.REQUEST_ID_HEADER: {
        "description": "The request's own, or one that was made for it.",
        "schema": schemas.LINE,
    }
}
_POSITION: Final = {
    jobs.POSITION_HEADER: {"description": "Where the event is in the log.", "schema": {"type": "integer"}}
}
_ETAG: Final = {"ETag": {"description": "Of this answer; none on a failure.", "schema": schemas.LINE}}


def _paths() -> dict[str, Any]:
    one = [_JOB_ID, _REGION, *_OWNERS]
    queried = [
        _parameter(name, "query", {**schema, **_line(schema)})
        for name, schema in schemas.list_parameters().items()
    ]
    return {
        "/v4/cwai/job": {
            "get": _operation(
                "showByQuery",
                "The same as by path.",
                "JobObject",
                [_QUERIED_ID, *one[1:], _AS_OF, _DELETED],
                other="EndedJobObject",
            ),
            "delete": _operation(
                "deleteByQuery",
                "The same as by path.",
                "Recorded",
                [_QUERIED_ID, *one[1:], _parameter("uuid", "query", schemas.UUID)],
            ),
            "post": _operation("record", "Record an add.", "Recorded", list(_OWNERS), body="Post"),
        },
        "/v4/cwai/job/{jobID}": {
            "get": _operation(
                "show",
                "A job as it is, or was.",
                "JobObject",
                [*one, _AS_OF, _DELETED],
                other="EndedJobObject",
            ),
            "delete": _operation(
                "delete", "Record a delete.", "Recorded", [*one, _parameter("uuid", "query", schemas.UUID)]
            ),
        },
        "/v4/cwai/job/{jobID}/events": {
            "get": _operation(
                "history",
                "Every event of a job.",
                "History",
                [
                    *one,
                    _parameter(
                        "pageSize", "query", {"type": "integer", "minimum": 1, "maximum": reads.HISTORY_PAGE}
                    ),
                    _parameter("cursor", "query", {"type": "string", "pattern": "^[0-9]{0,18}$"}),
                ],
            )
        },
        "/v4/cwai/job/list": {
            "post": _operation("search", "A list of jobs.", "JobList", list(_OWNERS), body="ListRequest")
        },
        "/v4/cwai/jobs": {
            "get": _operation("list", "A list of jobs.", "JobList", [_REGION, *queried, *_OWNERS])
        },
        "/v4/cwai/events": {"get": _stream()},
        "/healthz": {"get": _health("live", "Liveness")},
        "/readyz": {"get": _health("ready", "Readiness")},
        "/metrics": {"get": _text("measure", "What Prometheus scrapes.", "text/plain", schemas.TEXT)},
        "/openapi.json": {"get": _text("describe", "This document.", "application/json", {"type": "object"})},
    }


def _line(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a query adds to a plain text."""
    return schemas.LINE if schema.get("type") == "string" and not {"format", "enum"} & schema.keys() else {}


def _operation(
    name: str,
    said: str,
    answer: str,
    parameters: Sequence[Mapping[str, Any]],
    *,
    other: str = "",
    body: str = "",
) -> dict[str, Any]:
    shown = [schemas.ref(answer), schemas.ref(other)] if other else [schemas.ref(answer)]
    success = {
        "type": "object",
        "properties": {"statusCode": {"const": envelope.SUCCESS}, "returnObj": {"anyOf": shown}},
        "required": ["statusCode", "returnObj"],
        "additionalProperties": False,
    }
    made: dict[str, Any] = {
        "operationId": name,
        "summary": said,
        "parameters": list(parameters),
        "responses": {
            "200": {
                "description": "What was asked for, or why not.",
                "headers": dict(_REQUEST_ID),
                "content": {"application/json": {"schema": {"oneOf": [success, schemas.ref("Failure")]}}},
            },
            "default": {
                "description": "A failure, for who accepts problems.",
                "headers": dict(_REQUEST_ID),
                "content": {envelope.PROBLEM: {"schema": schemas.ref("Problem")}},
            },
        },
    }
    if answer == "Recorded":
        made["responses"]["200"]["headers"] |= _POSITION
    if name.startswith("show"):
        made["parameters"].append(_IF_NONE_MATCH)
        made["responses"]["200"]["headers"] |= _ETAG
        made["responses"]["304"] = {
            "description": "If-None-Match names the newest answer.",
            "headers": _REQUEST_ID | _ETAG,
        }
    if name == "record":
        made["responses"]["200"]["links"] = {
            then: {"operationId": then, "parameters": _RECORDED} for then in ("show", "history", "delete")
        }
    if body:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas.ref(body)}},
        }
    return made


def _stream() -> dict[str, Any]:
    return {
        "operationId": "follow",
        "summary": "Every event, as server-sent events: signal, reset, skipped, end.",
        "parameters": [
            _parameter("Last-Event-ID", "header", schemas.LINE, "The last id that was handled."),
            _parameter("lastEventID", "query", schemas.LINE, "The same, for who cannot send headers."),
            _parameter("startFrom", "query", schemas.one_of(["", *selection.StartFrom])),
        ],
        "responses": {
            "200": {
                "description": "The stream; the data of an event signal is a SignalEvent.",
                "content": {
                    "text/event-stream": {"schema": schemas.LINE},
                    "application/json": {"schema": schemas.ref("Failure")},
                },
            }
        },
    }


def _health(name: str, answer: str) -> dict[str, Any]:
    content = {"application/json": {"schema": schemas.ref(answer)}}
    return {
        "operationId": name,
        "summary": f"{answer}, with real HTTP statuses.",
        "responses": {
            "200": {"description": "Yes.", "content": content},
            "503": {"description": "No.", "content": content},
        },
    }


def _text(name: str, said: str, media: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    answered = {"description": said, "content": {media: {"schema": dict(schema)}}}
    return {"operationId": name, "summary": said, "responses": {"200": answered}}
