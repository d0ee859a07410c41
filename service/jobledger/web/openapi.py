"""``/openapi.json``: the API in OpenAPI 3.1, made from the structs that read requests and write answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

import jobledger
from jobledger.model import cwai, returnobj, searchkeys
from jobledger.web import envelope, health, jobs, listrequest, lists, reads, submissions
from jobledger.wire import eventstream

_ANSWERS: Final = (
    returnobj.JobObject,
    returnobj.EndedJobObject,
    returnobj.ListedJob,
    returnobj.EndedListedJob,
    jobs.Recorded,
    reads.History,
    envelope.Failure,
    envelope.Problem,
    health.Liveness,
    health.Readiness,
    eventstream.SignalEvent,
)
"""What is answered: every key is always there, and no other."""

_REQUESTS: Final = (cwai.Detail, listrequest.ListRequest)

_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_ID: Final[Mapping[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
}


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
        "components": {"schemas": _schemas()},
    }


class Document:
    """The handler of ``/openapi.json``."""

    def __init__(self) -> None:
        self._body = msgspec.json.encode(document())

    async def show(self, _request: web.BaseRequest, _path_id: str) -> web.Response:
        """GET: the document."""
        return web.Response(body=self._body, headers=envelope.JSON)


def _schemas() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(
        [*_ANSWERS, *_REQUESTS], ref_template="#/components/schemas/{name}"
    )
    answered = _reachable(schemas, [kind.__name__ for kind in _ANSWERS])
    for name in answered:
        if "properties" in schemas[name]:
            schemas[name]["required"] = list(schemas[name]["properties"])
            schemas[name]["additionalProperties"] = False
    for schema in schemas.values():
        for key, member in schema.get("properties", {}).items():
            member.pop("default", None)
            if key == "yaml":
                member["type"] = "object"
            if member.get("format") == "date-time":
                # Read in the configured zone, or with the offset that it bears.
                del member["format"]
                member["description"] = "YYYY-MM-DD HH:MM:SS in the configured zone, or RFC 3339"
    schemas["ListRequest"]["additionalProperties"] = False
    schemas["ListRequest"]["properties"]["status"] = _one_of(["", *searchkeys.STATUS_WORDS.values()])
    schemas["ListRequest"]["properties"]["sort"] = _one_of(["", "created", "finished", "changed", "name"])
    schemas["JobList"] = _job_list()
    schemas["Post"] = _post()
    return schemas


def _reachable(schemas: Mapping[str, Any], names: Sequence[str]) -> set[str]:
    """These schemas and all that they refer to."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            text = msgspec.json.encode(schemas[name]).decode()
            waiting += [other for other in schemas if f'"#/components/schemas/{other}"' in text]
    return found


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(words: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


def _job_list() -> dict[str, Any]:
    results = [_ref(f"{each}") for each in ("ListedJob", "EndedListedJob", "JobObject", "EndedJobObject")]
    count = {"type": "integer", "minimum": 0}
    return {
        "title": "JobList",
        "description": (lists.JobList.__doc__ or "").strip(),
        "type": "object",
        "properties": {
            "currentCount": count,
            "totalCount": count,
            "totalPage": count,
            "results": {"type": "array", "items": {"anyOf": results}},
            "cursor": _TEXT,
        },
        "required": [field.encode_name for field in msgspec.structs.fields(lists.JobList)],
        "additionalProperties": False,
    }


def _post() -> dict[str, Any]:
    signal = {key: {"type": "string"} for key in submissions.SIGNAL_KEYS}
    return {
        "title": "Post",
        "description": "A job as it is answered, every key optional; signal and uuid beside it.",
        "allOf": [_ref("Detail")],
        "type": "object",
        "properties": {
            "jobID": _ID,
            "regionID": _TEXT,
            "userID": _TEXT,
            "accountID": _TEXT,
            "uuid": {
                "type": "string",
                "description": "The idempotency key: a repeated one is no second event.",
            },
            "signal": {"type": "object", "properties": signal, "additionalProperties": False},
        },
    }


def _parameter(name: str, place: str, schema: Mapping[str, Any], said: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path" or name == "regionID",
        "schema": dict(schema),
        "description": said,
    }


_JOB_ID: Final = _parameter("jobID", "path", _ID)
_REGION: Final = _parameter("regionID", "query", {"type": "string", "minLength": 1})
_OWNERS: Final = tuple(
    _parameter(name, "header", _TEXT, "Narrows to this owner; set by the gateway.")
    for name in ("userID", "accountID")
)
_AS_OF: Final = _parameter(
    "asOf", "query", {"type": "string", "maxLength": 64}, "A position, an event's uuid, or an RFC 3339 time."
)
_DELETED: Final = _parameter("includeDeleted", "query", {"type": "boolean"}, "Whether ended jobs are shown.")


def _paths() -> dict[str, Any]:
    one = [_JOB_ID, _REGION, *_OWNERS]
    queried = [
        _parameter(name, "query", schema) for name, schema in _list_properties().items() if name != "regionID"
    ]
    return {
        "/v4/cwai/job": {
            "post": _operation("record", "Record an add.", "Recorded", list(_OWNERS), body="Post")
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
                "delete", "Record a delete.", "Recorded", [*one, _parameter("uuid", "query", _TEXT)]
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
                    _parameter("cursor", "query", _TEXT),
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
    }


def _list_properties() -> dict[str, Any]:
    return _schemas()["ListRequest"]["properties"]


def _operation(
    name: str,
    said: str,
    answer: str,
    parameters: Sequence[Mapping[str, Any]],
    *,
    other: str = "",
    body: str = "",
) -> dict[str, Any]:
    shown = [_ref(answer), _ref(other)] if other else [_ref(answer)]
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
                "content": {"application/json": {"schema": {"oneOf": [success, _ref("Failure")]}}},
            },
            "default": {
                "description": "A failure, for who accepts problems.",
                "content": {envelope.PROBLEM: {"schema": _ref("Problem")}},
            },
        },
    }
    if name == "show":
        made["responses"]["304"] = {"description": "If-None-Match names the newest answer."}
    if body:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return made


def _stream() -> dict[str, Any]:
    return {
        "operationId": "follow",
        "summary": "Every event, as server-sent events: signal, reset, skipped, end.",
        "parameters": [
            _parameter("Last-Event-ID", "header", _TEXT, "The last id that was handled."),
            _parameter("lastEventID", "query", _TEXT, "The same, for who cannot send headers."),
            _parameter("startFrom", "query", _one_of(["snapshot", "earliest", "latest"])),
        ],
        "responses": {
            "200": {
                "description": "The stream; the data of an event signal is a SignalEvent.",
                "content": {
                    "text/event-stream": {"schema": _TEXT},
                    "application/json": {"schema": _ref("Failure")},
                },
            }
        },
    }


def _health(name: str, answer: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref(answer)}}
    return {
        "operationId": name,
        "summary": f"{answer}, with real HTTP statuses.",
        "responses": {
            "200": {"description": "Yes.", "content": content},
            "503": {"description": "No.", "content": content},
        },
    }
