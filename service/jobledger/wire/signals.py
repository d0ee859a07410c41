"""A signal and its stored bytes."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from google.protobuf import unknown_fields
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from jobledger import errors
from jobledger.model import event
from jobledger.model.signal import WIRE_NAMES, Signal
from jobledger.wire import messages

_KNOWN_NUMBERS: Final = frozenset(field.number for field in messages.JobSummarySignal.DESCRIPTOR.fields)
_texts: Final = attrgetter(
    *(WIRE_NAMES.get(name, name) for name in Signal.__struct_fields__ if name != "unknown")
)
"""A message's fields in the order of a signal's: by position, both take half of the time that names would."""

_GROUP_WIRE_TYPES: Final = frozenset({3, 4})
"""Start and end of a group (protobuf encoding guide): gone from proto3, and not every client skips them."""


def decode(data: bytes) -> Signal:
    """A signal as it was sent, without our own fields.

    Raises:
        errors.InvalidEvent: The bytes are not a JobSummarySignal; names the field if one is not UTF-8.
    """
    try:
        message = messages.JobSummarySignal.FromString(data)
    except DecodeError as error:
        raise _undecodable(data, error) from None
    return _from_message(message, unknown=_unknown(message))


def _undecodable(data: bytes, error: DecodeError) -> errors.InvalidEvent:
    remedy = "encode the event with JobLedger's or ClusterD's job.proto"
    try:
        parts = messages.SignalParts.FromString(data)
    except DecodeError:
        return errors.InvalidEvent(field="signal", problem=f"cannot be decoded: {error}", remedy=remedy)
    for descriptor, value in parts.ListFields():
        if isinstance(value, bytes):
            try:
                value.decode()
            except UnicodeDecodeError:
                text = value.decode(errors="backslashreplace")
                remedy = "send text as UTF-8"
                return errors.InvalidEvent(
                    field=f"signal.{descriptor.name}", value=text, problem="is not UTF-8", remedy=remedy
                )
    return errors.InvalidEvent(field="signal", problem=f"cannot be decoded: {error}", remedy=remedy)


def of_message(message: Any) -> tuple[Signal, event.Encoded]:
    """The signal that a message without unknown fields holds, which it takes apart, and its encodings."""
    signal = _from_message(message, unknown=b"")
    message.ClearField("uuid")
    given = message.SerializeToString()
    message.uuid = signal.uuid
    message.ClearField("HcclJson")
    return signal, event.Encoded(given, message.SerializeToString())


def _from_message(message: Any, *, unknown: bytes) -> Signal:
    return Signal(*_texts(message), unknown=unknown)


def _unknown(message: Any) -> bytes:
    """The fields that our release does not know, as encoded, in the order in which they came."""
    fields = unknown_fields.UnknownFieldSet(message)
    if not len(fields):
        return b""
    for field in fields:
        if field.field_number in _KNOWN_NUMBERS:
            problem = f"field {field.field_number} has wire type {field.wire_type}"
            remedy = "encode the signal with ClusterD's job.proto"
            raise errors.InvalidEvent(field="signal", problem=problem, remedy=remedy)
        if field.wire_type in _GROUP_WIRE_TYPES:
            problem = f"unknown field {field.field_number} is a group"
            raise errors.InvalidEvent(field="signal", problem=problem, remedy="use proto3, which has none")
    bare = messages.JobSummarySignal()
    bare.CopyFrom(message)
    for descriptor in messages.JobSummarySignal.DESCRIPTOR.fields:
        bare.ClearField(descriptor.name)
    return bare.SerializeToString()


def _to_message(signal: Signal, *, uuid: str, hccl_json: str) -> Any:
    return messages.JobSummarySignal(
        uuid=uuid,
        jobId=signal.job_id,
        jobName=signal.job_name,
        namespace=signal.namespace,
        frameWork=signal.framework,
        jobStatus=signal.job_status,
        time=signal.time,
        cmIndex=signal.cm_index,
        total=signal.total,
        HcclJson=hccl_json,
        deleteTime=signal.delete_time,
        sharedTorIp=signal.shared_tor_ip,
        masterAddr=signal.master_addr,
        operator=signal.operator,
        sid=signal.sid,
    )


def stored_signal(signal: Signal) -> bytes:
    """The signal as the log keeps it: without HcclJson, which has a column of its own."""
    return _to_message(signal, uuid=signal.uuid, hccl_json="").SerializeToString() + signal.unknown


def given_signal(signal: Signal) -> bytes:
    """The signal as its content is compared: with HcclJson, without uuid."""
    return _to_message(signal, uuid="", hccl_json=signal.hccl_json).SerializeToString() + signal.unknown


def read_signal(stored: bytes, hccl: str | None) -> Signal:
    """A signal from its stored bytes and its HcclJson.

    Raises:
        errors.InvalidEvent: The bytes are not a signal: the row was spoiled by hand.
    """
    try:
        message = messages.JobSummarySignal.FromString(stored)
    except DecodeError as error:
        raise errors.InvalidEvent(
            field="signal", problem=f"cannot be read: {error}", remedy="restore the row from a backup"
        ) from None
    signal = _from_message(message, unknown=_unknown(message))
    return signal if hccl is None else replace(signal, hccl_json=hccl)


def readable(stored: bytes) -> bool:
    """Whether stored bytes are a signal that every client can parse."""
    try:
        messages.JobSummarySignal.FromString(stored)
    except DecodeError:
        return False
    return True
