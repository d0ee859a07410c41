"""A posted job as an event: the CWAI shape, an optional ``signal`` beside it, an optional ``uuid``.

Identity and the signal are read here, the description is handed on as it is: admission reads it. Nothing
was masked yet, so no message shows a value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec

from jobledger import errors
from jobledger.model import event, jsontext
from jobledger.model.signal import Signal

SIGNAL_KEYS: Final = {
    "jobStatus": "job_status",
    "HcclJson": "hccl_json",
    "namespace": "namespace",
    "jobName": "job_name",
    "frameWork": "framework",
    "time": "time",
    "cmIndex": "cm_index",
    "total": "total",
    "deleteTime": "delete_time",
    "sharedTorIp": "shared_tor_ip",
    "masterAddr": "master_addr",
    "sid": "sid",
}
"""The keys of ``signal``, as the wire spells them, and our fields. jobId, uuid and operator are not among
them: the body and the method say those."""

JSON_AS_TEXT: Final = ("HcclJson", "sharedTorIp")
"""Keys whose text is JSON on the wire: the value itself will do too."""

_verbatim = msgspec.json.Encoder(decimal_format="number")


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """What a body says, "" where it says nothing."""

    job_id: str
    region: str
    user_id: str
    account_id: str
    signal: Signal
    """With the body's uuid, without a job id."""

    detail: str | None
    """The description as JSON text; None if there is none, so that the job's is kept."""

    tree: jsontext.Tree
    """What it says."""


def read(text: str) -> Posted:
    """What a posted body says.

    Raises:
        errors.EventError: It is no JSON, or a key of ours is malformed or unknown.
    """
    tree = jsontext.read(text, "body")
    if not isinstance(tree, dict):
        raise _wrong("body", "is no JSON object", "send the job as one")
    job_id, region, user_id, account_id, uuid = (
        _text(key, tree.pop(key, None)) for key in ("jobID", "regionID", "userID", "accountID", "uuid")
    )
    return Posted(
        job_id=job_id,
        region=region,
        user_id=user_id,
        account_id=account_id,
        signal=_signal(tree.pop("signal", None), uuid),
        detail=jsontext.write(tree) if tree else None,
        tree=tree or None,
    )


def _signal(given: jsontext.Tree, uuid: str) -> Signal:
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise _wrong("signal", "is no object", 'give one, such as {"jobStatus":"running"}')
    fields: dict[str, str] = {}
    for key, value in given.items():
        if key not in SIGNAL_KEYS:
            place = jsontext.member("signal", key)
            raise _wrong(place, "is not a key of signal", f"allowed are {', '.join(SIGNAL_KEYS)}")
        fields[SIGNAL_KEYS[key]] = _wire_text(key, value)
    return msgspec.structs.replace(Signal(uuid=uuid, operator=event.Operator.ADD), **fields)


def _wire_text(key: str, value: jsontext.Tree) -> str:
    """A signal's value as the wire has it, where everything is text."""
    match value:
        case bool():
            pass
        case int() if key not in JSON_AS_TEXT:
            return str(value)
        case dict() | list() if key in JSON_AS_TEXT:
            # In the given order: a rank table is kept as it was said.
            return _verbatim.encode(value).decode()
        case str() | None:
            return value or ""
        case int() | Decimal() | dict() | list():
            pass
    kinds = "a string or the JSON itself" if key in JSON_AS_TEXT else "a string or an integer"
    raise _wrong(f"signal.{key}", "has the wrong type", f"give {kinds}")


def _text(key: str, value: jsontext.Tree) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(key, "is no string", "give one")
    return value


def _wrong(field: str, problem: str, remedy: str) -> errors.InvalidEvent:
    return errors.InvalidEvent(field=field, problem=problem, remedy=remedy)
