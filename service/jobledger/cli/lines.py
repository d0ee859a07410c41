"""An event as a line of JSON: what ``publish`` reads, and the signal that ``subscribe`` prints."""

from __future__ import annotations

import json
import re
from typing import NoReturn

import msgspec

from jobledger import errors
from jobledger.client import messages
from jobledger.model import event, jsontext, signal

NOT_GIVEN = msgspec.Raw(b'""')

_RENAMED = {**signal.WIRE_NAMES, "account_id": "accountId", "user_id": "userId"}
_AT = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISFIT = re.compile(r"Expected `(?P<wanted>.*)`, got `(?P<got>.*)`")
_NAMED = re.compile(r"(?P<problem>unknown|missing required) field `(?P<name>.*)`")


class _Signal(msgspec.Struct, forbid_unknown_fields=True, rename=_RENAMED):
    uuid: str = ""
    job_id: str = ""
    job_name: str = ""
    namespace: str = ""
    framework: str = ""
    job_status: str = ""
    time: str | int = ""
    cm_index: str | int = ""
    total: str | int = ""
    hccl_json: msgspec.Raw = NOT_GIVEN
    delete_time: str | int = ""
    shared_tor_ip: msgspec.Raw = NOT_GIVEN
    master_addr: str = ""
    operator: str = ""
    sid: str = ""


class _Line(msgspec.Struct, forbid_unknown_fields=True, rename=_RENAMED):
    signal: _Signal
    detail: msgspec.Raw = NOT_GIVEN
    region: str = ""
    account_id: str = ""
    user_id: str = ""


_decoder = msgspec.json.Decoder(_Line)


def read(line: bytes) -> event.Submission:
    """The event that a line gives; everything else about it is checked by the service.

    Raises:
        errors.InvalidEvent: it is no such JSON; names the key at fault.
    """
    try:
        given = _decoder.decode(line)
    except msgspec.ValidationError as error:
        _wrong_shape(error, line)
    except msgspec.DecodeError as error:
        raise errors.InvalidEvent(
            field="JSON", problem=_why_malformed(line, error), remedy="one JSON object a line is expected"
        ) from error
    return event.Submission(
        signal=signal.Signal(
            uuid=given.signal.uuid,
            job_id=given.signal.job_id,
            job_name=given.signal.job_name,
            namespace=given.signal.namespace,
            framework=given.signal.framework,
            job_status=given.signal.job_status,
            time=str(given.signal.time),
            cm_index=str(given.signal.cm_index),
            total=str(given.signal.total),
            hccl_json=_text("signal.HcclJson", given.signal.hccl_json),
            delete_time=str(given.signal.delete_time),
            shared_tor_ip=_text("signal.sharedTorIp", given.signal.shared_tor_ip),
            master_addr=given.signal.master_addr,
            operator=given.signal.operator,
            sid=given.signal.sid,
        ),
        detail=_text("detail", given.detail) or None,
        region=given.region,
        account_id=given.account_id,
        user_id=given.user_id,
    )


def written(of: signal.Signal) -> dict[str, str]:
    """A signal under its wire names, as ``read`` takes it."""
    return {
        _RENAMED.get(name, name): value
        for name in _Signal.__struct_fields__
        if isinstance(value := getattr(of, name), str)
    }


def write(message: messages.Message) -> bytes:
    """A subscription's message as one line, without its end."""
    match message:
        case messages.Delivered():
            line: dict[str, object] = {
                "type": "event",
                "position": message.position,
                "uuid": message.uuid,
                "recordedAt": message.recorded_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "signal": written(message.signal),
            }
        case messages.CaughtUp():
            line = {"type": "caughtUp", "position": message.position}
        case messages.Skipped():
            line = {"type": "skipped", "position": message.position, "uuid": message.uuid}
        case messages.Heartbeat():
            line = {
                "type": "heartbeat",
                "position": message.position,
                "uuid": message.uuid,
                "head": message.head,
            }
    return msgspec.json.encode(line)


def _text(field: str, raw: msgspec.Raw) -> str:
    """JSON that may also be given as text: the text, or the JSON as it stands in the line."""
    given = bytes(raw).strip()
    if given == b"null":
        return ""
    try:
        return msgspec.json.decode(given, type=str) if given.startswith(b'"') else given.decode()
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise errors.InvalidEvent(
            field=field, problem=f"is not UTF-8 text ({error})", remedy="send it as UTF-8"
        ) from error


def _wrong_shape(error: msgspec.ValidationError, line: bytes) -> NoReturn:
    found = _AT.match(str(error))
    problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
    if (named := _NAMED.search(problem)) is not None:
        raise errors.InvalidEvent(
            field=f"{path}.{named['name']}" if path else named["name"],
            problem="is unknown" if named["problem"] == "unknown" else "is missing",
            remedy="see jobledger publish --help for the keys",
        ) from error
    value, remedy = None, "see jobledger publish --help"
    if (misfit := _MISFIT.fullmatch(problem)) is not None:
        value = _plain_value(line, path)
        problem = f"is {_kinds(misfit['got'])}"
        remedy = f"give {_kinds(misfit['wanted'])}"
    raise errors.InvalidEvent(field=path or "JSON", value=value, problem=problem, remedy=remedy) from error


def _kinds(words: str) -> str:
    return " or ".join(jsontext.KINDS.get(word, word) for word in words.split(" | "))


def _plain_value(line: bytes, path: str) -> str | None:
    """The value at a path of a line; None for an object or a list, which its kind says enough of."""
    value = msgspec.json.decode(line)
    for key in path.split(".") if path else ():
        value = value[key]
    match value:
        case None | dict() | list():
            return None
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


def _why_malformed(line: bytes, error: msgspec.DecodeError) -> str:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return str(error)
    # Python's parser lets through what is no Unicode text: half a surrogate pair.
    return "a string holds a lone surrogate, which is no text"
