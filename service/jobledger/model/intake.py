"""A description as a publisher gives it, read at the door, key by key.

Nothing was masked yet: no message here may show the value of a place that can hold a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import TypeAlias, cast

import msgspec

from jobledger import errors
from jobledger.model import cwai, jsontext, moment

LIMIT_BYTES = 4 * 1024 * 1024
"""The largest description as given, in UTF-8, unless the caller names another limit."""

FIELD = "detail"
"""What a description is called in errors."""

IDENTITY = ("jobID", "regionID", "userID", "accountID")
"""Keys of the document that are kept in columns, not in the description."""

_UNQUOTABLE = ("envs", "command", "output", "logOutput", "imageName", "comment", "datasets")
"""Keys under which a refused value is not shown: it may be, or hold, a secret."""

_Reader: TypeAlias = "Callable[[object, str, tzinfo], object]"
"""Turns a member as given into what the shape takes; None for not given. Takes value, path, zone."""

_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher gave: the description, and the identity that stood in it ("" if not given)."""

    detail: cwai.Detail
    job_id: str
    region: str
    user_id: str
    account_id: str


def parse(text: str, zone: tzinfo, *, limit_bytes: int = LIMIT_BYTES, tree: jsontext.Tree = None) -> Parsed:
    """What the text says, every key checked; its secrets are still in it, so mask it before all else.

    Args:
        text: A JSON object as given.
        zone: Where its times without an offset are meant.
        limit_bytes: The most that the text may take in UTF-8.
        tree: What the text says, if its reader had that at hand.

    Raises:
        errors.InvalidEvent: it cannot be recorded; names the field, the value where that is safe, a remedy.
        errors.EventTooLarge: it has more bytes than the limit.
    """
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > limit_bytes:
        raise errors.EventTooLarge(field=FIELD, size_bytes=size_bytes, limit_bytes=limit_bytes)
    if tree is None:
        tree = jsontext.read(text, FIELD)
    if not isinstance(tree, dict):
        raise _wrong_kind(FIELD, tree, "an object")
    identity = [_identity(tree.get(key), f"{FIELD}.{key}") for key in IDENTITY]
    members = {key: member for key, member in tree.items() if key not in IDENTITY}
    given = _members(members, cwai.Detail, FIELD, zone)
    try:
        described = msgspec.convert(given, type=cwai.Detail)
    except msgspec.ValidationError as error:
        message = str(error)
    else:
        job_id, region, user_id, account_id = identity
        return Parsed(detail=described, job_id=job_id, region=region, user_id=user_id, account_id=account_id)
    raise _refusal(message, given)


def _identity(value: object, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong_kind(path, value, "a string")
    return value


def _members(value: object, kind: type[msgspec.Struct], path: str, zone: tzinfo) -> object:
    """The given members of an object, each as the shape takes it; other values are left to the shape."""
    if not isinstance(value, dict):
        return value
    readers = _READERS[kind]
    result: dict[str, object] = {}
    for key, member in cast("dict[str, object]", value).items():
        if key not in readers:
            raise _unknown_key(key, readers, path)
        if member is None:
            continue
        reader = readers[key]
        read = member if reader is None else reader(member, f"{path}.{key}", zone)
        if read is not None:
            result[key] = read
    return result


def _one(kind: type[msgspec.Struct]) -> _Reader:
    return lambda value, path, zone: _members(value, kind, path, zone)


def _many(kind: type[msgspec.Struct]) -> _Reader:
    def read(value: object, path: str, zone: tzinfo) -> object:
        if not isinstance(value, list):
            return value
        items = cast("list[object]", value)
        if kind in _AS_GIVEN and all(_is_as_it_should_be(item, kind) for item in items):
            return items
        return [_members(item, kind, f"{path}[{at}]", zone) for at, item in enumerate(items)]

    return read


def _is_as_it_should_be(value: object, kind: type[msgspec.Struct]) -> bool:
    """Whether an object of a kind in :data:`_AS_GIVEN` has no member that is unknown or null."""
    if not isinstance(value, dict):
        return False
    members = cast("dict[str, object]", value)
    return members.keys() <= _READERS[kind].keys() and None not in members.values()


def _time(value: object, path: str, zone: tzinfo) -> datetime | None:
    if not isinstance(value, str):
        raise _wrong_kind(path, value, "a string")
    try:
        return moment.read(value, zone) if value else None
    except ValueError as error:
        raise errors.InvalidEvent(
            field=path,
            value=value,
            problem=str(error),
            remedy="give YYYY-MM-DD HH:MM:SS, or RFC 3339 with an offset such as 2023-10-13T11:22:01+08:00",
        ) from error


def _word(value: object, _path: str, _zone: tzinfo) -> object:
    return None if value == "" else value


def _number(value: object, path: str, _zone: tzinfo) -> object:
    """An integer, also as text: the document's table says String, its example has numbers."""
    if not isinstance(value, str):
        return value
    if not value:
        return None
    if not _INTEGER.fullmatch(value):
        raise errors.InvalidEvent(
            field=path, value=value, problem="is no integer", remedy="give an integer, or one as text"
        )
    return int(value)


def _verbatim(value: object, path: str, _zone: tzinfo) -> msgspec.Raw:
    if not isinstance(value, dict):
        raise _wrong_kind(path, value, "an object")
    return msgspec.Raw(jsontext.write(cast("object", value)).encode())


def _readers(kind: type[msgspec.Struct], **special: _Reader) -> Mapping[str, _Reader | None]:
    return {
        wire: special.get(name)
        for name, wire in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    }


_READERS: Mapping[type[msgspec.Struct], Mapping[str, _Reader | None]] = {
    cwai.Detail: _readers(
        cwai.Detail,
        datasets=_many(cwai.Dataset),
        envs=_many(cwai.Env),
        resources=_one(cwai.Resources),
        output=_one(cwai.Output),
        log_output=_one(cwai.Output),
        pods=_many(cwai.Pod),
        status=_word,
        create_time=_time,
        finish_time=_time,
    ),
    cwai.Dataset: _readers(cwai.Dataset),
    cwai.Env: _readers(cwai.Env),
    cwai.Resources: _readers(
        cwai.Resources, **dict.fromkeys(cwai.Resources.__struct_fields__, cast("_Reader", _number))
    ),
    cwai.Output: _readers(cwai.Output),
    cwai.Pod: _readers(cwai.Pod, yaml=_verbatim, start_time=_time, finish_time=_time),
}
"""The keys of each object, by their spelling in the document; None where the shape takes them as given."""

_AS_GIVEN = frozenset(kind for kind, readers in _READERS.items() if not any(readers.values()))
"""Objects all of whose members the shape takes as given."""


def _unknown_key(key: str, known: Mapping[str, object], path: str) -> errors.InvalidEvent:
    allowed = [*known, *IDENTITY] if path == FIELD else list(known)
    spellings = {name.casefold(): name for name in allowed}
    near = difflib.get_close_matches(key[:64].casefold(), spellings, n=1)
    guess = f"did you mean {spellings[near[0]]}? " if near else ""
    return errors.InvalidEvent(
        field=jsontext.member(path, key),
        problem="is not a key of this object",
        remedy=f"{guess}allowed are {', '.join(allowed)}",
    )


def _wrong_kind(path: str, value: object, wanted: str) -> errors.InvalidEvent:
    return errors.InvalidEvent(field=path, problem=f"is {_kind(value)}", remedy=f"give {wanted}")


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return "a number"


def _refusal(message: str, given: object) -> errors.InvalidEvent:
    """The words of msgspec, such as ``Expected `str`, got `int` - at `$.envs[0].value``, as ours."""
    found = _PLACE.fullmatch(message)
    problem, path = (found["problem"], found["path"] or "") if found else (message, "")
    wanted, got = _expectation(problem)
    return errors.InvalidEvent(
        field=FIELD + path, value=_quotable(given, path), problem=got, remedy=f"give {wanted}"
    )


def _expectation(problem: str) -> tuple[str, str]:
    words = cast("list[str]", re.findall(r"`(\w+)`", problem))
    wanted = jsontext.KINDS.get(words[0], words[0]) if words else "what the document says"
    if len(words) > 1:
        return wanted, f"is {jsontext.KINDS.get(words[1], words[1])}"
    bound = re.search(r"[<>]= (-?\d+)", problem)
    return (f"{wanted} {bound.group()}", "is out of range") if bound else (wanted, "does not fit")


def _quotable(given: object, path: str) -> str | None:
    """The value at a path as text, if it is a plain one and its place holds no secrets."""
    steps = _STEP.findall(path)
    if not steps or steps[0][0] in _UNQUOTABLE:
        return None
    value: object = given
    for key, at in steps:
        value = cast("dict[str, object]", value)[key] if key else cast("list[object]", value)[int(at)]
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
