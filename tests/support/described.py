"""What schemathesis must know beyond ``/openapi.json``: values of our formats, and what no schema can say.

Read by schemathesis alone, as its hooks.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final, cast

import schemathesis
from hypothesis import strategies

CONFIGURATION: Final = """
[[operations]]
# The history of an ended job is what a ledger is for.
include-operation-id = "history"
checks.use_after_free.enabled = false
"""

_STATUS_WORDS: Final = ("", "Pending", "Running", "Succeeded", "Failed", None)
_LARGEST_DETAILED_PAGE: Final = 50
_TIMES: Final = ("createTime", "finishTime", "startTime")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?")

_moments = strategies.datetimes(
    min_value=datetime(1990, 1, 1),  # noqa: DTZ001 - hypothesis wants it so
    max_value=datetime(2025, 1, 1),  # noqa: DTZ001 - the same
).map(lambda moment: moment.replace(microsecond=0))
_objects = strategies.dictionaries(strategies.text("abc", max_size=3), strategies.integers())

schemathesis.openapi.format("cwai-time", _moments.map(str))
schemathesis.openapi.format("as-of", _moments.map(lambda moment: moment.replace(tzinfo=UTC).isoformat()))
schemathesis.openapi.format("json-object", _objects.map(json.dumps))
# A cursor is opaque; "" is the only one that can be made up.
schemathesis.openapi.format("cursor", strategies.just(""))


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def filter_case(_context: schemathesis.HookContext, case: Any) -> bool:
    """Whether a case keeps the rules that no schema can say; tests of ours have those."""
    operation: str = case.operation.definition.raw.get("operationId")
    if case.method == "OPTIONS" and operation == "search":
        # A job may be called list: it is read and deleted there, which the document has under {jobID}.
        return False
    given: Any = case.body if operation in ("record", "search") else case.query
    if not isinstance(given, dict):
        return True
    said: dict[str, Any] = {**given}
    match operation:
        case "record":
            signal: Any = said.get("signal")
            told = isinstance(signal, dict) and "jobStatus" in signal
            return not _is_loose(said) and _times_fit(said) and (told or said.get("status") in _STATUS_WORDS)
        case "show":
            # An ended job is there for who asks for it.
            return str(said.get("includeDeleted")).lower() != "true"
        case _:
            detailed, size = (str(said.get(name)).lower() for name in ("detail", "pageSize"))
            many = detailed == "true" and size.isdecimal() and int(size) > _LARGEST_DETAILED_PAGE
            return not many and not _is_loose(said)


def _is_loose(value: Any) -> bool:
    """Whether something is null, which is not given, or a number is 1.0, an integer to a schema."""
    return value is None or isinstance(value, float) or any(map(_is_loose, _members(value).values()))


def _times_fit(value: Any) -> bool:
    """Whether every time has its format, which schemathesis forgets where it mixes in values of its own."""
    return all(
        _times_fit(member) and (key not in _TIMES or _TIME.fullmatch(str(member)) is not None)
        for key, member in _members(value).items()
    )


def _members(value: Any) -> dict[Any, Any]:
    match value:
        case dict():
            return {**value}
        case list():
            return dict(enumerate(cast("list[Any]", value)))
        case _:
            return {}
