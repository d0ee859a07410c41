"""What may be sent and what is answered, as JSON Schema, made from the structs that read and write it.

Three formats stand where a pattern would say too little: ``cwai-time`` is ``YYYY-MM-DD HH:MM:SS`` in the
configured zone or RFC 3339, ``as-of`` a position, an event's uuid or an RFC 3339 time, ``cursor`` what the
page before gave. Each may be "", which is not given, and in a body so is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from jobledger.ledger import admission
from jobledger.model import cwai, listing, returnobj, searchkeys
from jobledger.model.signal import JOB_STATUSES
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

TEXT: Final[Mapping[str, Any]] = {"type": "string"}
LINE: Final[Mapping[str, Any]] = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}
"""A text outside of a body."""

ID: Final[Mapping[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": admission.JOB_ID_CHARACTERS,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
}
REGION: Final[Mapping[str, Any]] = {**ID, "maxLength": admission.NAME_CHARACTERS}
UUID: Final[Mapping[str, Any]] = {
    "type": "string",
    "pattern": r"^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?$",
    "description": "The idempotency key: a repeated one is no second event.",
}
AS_OF: Final[Mapping[str, Any]] = {"type": "string", "maxLength": 64, "format": "as-of"}

_TIME: Final[Mapping[str, Any]] = {
    "type": "string",
    "format": "cwai-time",
    "description": "YYYY-MM-DD HH:MM:SS in the configured zone, or RFC 3339",
}
_NUMBER_AS_TEXT: Final[Mapping[str, Any]] = {"type": "string", "pattern": "^([+-]?[0-9]{1,18})?$"}
_JSON_OBJECT: Final[Mapping[str, Any]] = {"type": "string", "format": "json-object"}


def components() -> dict[str, Any]:
    """Every schema by its name, fresh."""
    _, schemas = msgspec.json.schema_components(
        [*_ANSWERS, *_REQUESTS], ref_template="#/components/schemas/{name}"
    )
    schemas = _named(schemas)
    answered = _reachable(schemas, [kind.__name__ for kind in _ANSWERS])
    for name, schema in schemas.items():
        if "properties" not in schema:
            continue
        schema["additionalProperties"] = False
        for key, member in schema["properties"].items():
            member.pop("default", None)
            if key == "yaml":
                member["type"] = "object"
        if name in answered:
            schema["required"] = list(schema["properties"])
        elif name != "ListRequest":
            schema["properties"] = {key: _given(member) for key, member in schema["properties"].items()}
    schemas["ListRequest"] |= {
        "properties": {
            "regionID": REGION,
            **list_parameters(),
        },
        "required": ["regionID"],
    }
    schemas["JobList"] = _job_list()
    schemas["Post"] = _post(schemas.pop("Detail")["properties"])
    return schemas


def _named(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """The same with names for callers: what is given and what is answered are called alike in our modules."""
    text = msgspec.json.encode(schemas)
    for module, name in ((returnobj, b""), (cwai, b"Given")):
        text = text.replace(f"{module.__name__}.".encode(), name)
    return msgspec.json.decode(text)


def _given(member: Mapping[str, Any]) -> dict[str, Any]:
    """What may be sent for a member of a description: a number may be a text."""
    if member.get("format") == "date-time":
        member = _TIME
    if member.get("maximum") == cwai.LARGEST_INT64:
        return {"anyOf": [member, _NUMBER_AS_TEXT]}
    return dict(member)


def list_parameters() -> dict[str, Any]:
    """What a list may be asked for, by name, but for the region."""
    _, schemas = msgspec.json.schema_components([listrequest.ListRequest])
    properties: dict[str, Any] = schemas["ListRequest"]["properties"]
    del properties["regionID"]
    for member in properties.values():
        member.pop("default", None)
    times = {f"{what}{end}" for what in ("created", "finished", "changed") for end in ("From", "To")}
    return {
        **{key: {**_TIME, **member} if key in times else member for key, member in properties.items()},
        "status": one_of(["", *searchkeys.STATUS_WORDS.values()]),
        "sort": one_of(["", *listing.Sort]),
        "cursor": {**properties["cursor"], "format": "cursor"},
        "asOf": AS_OF,
    }


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


def ref(name: str) -> dict[str, Any]:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def one_of(words: Sequence[str]) -> dict[str, Any]:
    """One of these words."""
    return {"type": "string", "enum": list(words)}


def _job_list() -> dict[str, Any]:
    results = [ref(f"{each}") for each in ("ListedJob", "EndedListedJob", "JobObject", "EndedJobObject")]
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
            "cursor": TEXT,
        },
        "required": [field.encode_name for field in msgspec.structs.fields(lists.JobList)],
        "additionalProperties": False,
    }


def _post(described: Mapping[str, Any]) -> dict[str, Any]:
    name = {"type": "string", "maxLength": admission.NAME_CHARACTERS, "pattern": r"^[^\x00]*$"}
    signal = {
        **{key: {"type": ["string", "integer"]} for key in submissions.SIGNAL_KEYS},
        **{key: {**name, "type": ["string", "integer"]} for key in ("jobName", "namespace", "frameWork")},
        "jobStatus": one_of(["", *JOB_STATUSES]),
        "time": _decimal(admission.LATEST_SECOND),
        "deleteTime": _decimal(admission.LATEST_SECOND),
        "cmIndex": _decimal(admission.LARGEST_PART),
        "total": _decimal(admission.LARGEST_PART),
        "HcclJson": {"anyOf": [{"type": "object"}, _JSON_OBJECT]},
        "sharedTorIp": {"anyOf": [TEXT, {"type": "object"}, {"type": "array"}]},
    }
    return {
        "title": "Post",
        "description": "A job as it is answered, optional but for its names; signal and uuid beside it.",
        "type": "object",
        "properties": {
            **described,
            "name": name,
            "queueID": name,
            "jobID": ID,
            "regionID": REGION,
            "userID": name,
            "accountID": name,
            "uuid": UUID,
            "signal": {
                "type": "object",
                "properties": signal,
                "additionalProperties": False,
            },
        },
        "required": ["jobID", "regionID"],
        "additionalProperties": False,
    }


def _decimal(largest: int) -> dict[str, Any]:
    """A whole number, or its text."""
    digits = len(str(largest)) - 1
    text = {"type": "string", "pattern": f"^(0|[1-9][0-9]{{0,{digits - 1}}})?$"}
    return {"anyOf": [text, {"type": "integer", "minimum": 0, "maximum": largest}]}
