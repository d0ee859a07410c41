"""The protobuf classes of our two services, made by google's upb from the generated descriptors."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields

from jobledger._proto import google_proto_descriptor_pool
from jobledger._proto import job as _job  # noqa: F401  # pyright: ignore[reportUnusedImport] - registers job.proto
from jobledger._proto.jobledger import v1 as _v1  # noqa: F401  # pyright: ignore[reportUnusedImport] - and ledger.proto

pool: Final = google_proto_descriptor_pool.default_google_proto_descriptor_pool
"""Our descriptors, apart from the process-wide pool, where ClusterD's own ``job.proto`` may be loaded."""


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _parts_class(source: str) -> Any:
    """A message with the wire form of ``source`` whose texts and messages are left as bytes.

    It reads what the real one refuses as a whole, and so finds the part that is at fault.
    """
    parts = descriptor_pb2.DescriptorProto()
    pool.FindMessageTypeByName(source).CopyToProto(parts)
    for field in parts.field:
        if field.type in {field.TYPE_STRING, field.TYPE_MESSAGE}:
            field.type = field.TYPE_BYTES
            field.ClearField("type_name")
    file = descriptor_pb2.FileDescriptorProto(
        name=f"parts/{source}.proto", package="parts", syntax="proto3", message_type=[parts]
    )
    own_pool = descriptor_pool.DescriptorPool()
    own_pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(own_pool.FindMessageTypeByName(f"parts.{parts.name}"))


JobSummarySignal: Final = _class("job.JobSummarySignal")
JobSummarySignalList: Final = _class("job.JobSummarySignalList")
ClientInfo: Final = _class("job.ClientInfo")
Status: Final = _class("job.Status")
AppendResponse: Final = _class("jobledger.v1.AppendResponse")
SubscribeRequest: Final = _class("jobledger.v1.SubscribeRequest")
SubscribeResponse: Final = _class("jobledger.v1.SubscribeResponse")

AppendRequest: Final = _class("jobledger.v1.AppendRequest")
AppendRequestParts: Final = _parts_class("jobledger.v1.AppendRequest")
EventParts: Final = _parts_class("jobledger.v1.Event")
SignalParts: Final = _parts_class("job.JobSummarySignal")


def mistyped(message: Any) -> str:
    """What is wrong with a field that was sent with another wire type than ours, "" if none was.

    Protobuf passes over such a field as over an unknown one: a cursor that was misspelt would be none at all.
    """
    for field in unknown_fields.UnknownFieldSet(message):
        if field.field_number in message.DESCRIPTOR.fields_by_number:
            return f"field {field.field_number} has wire type {field.wire_type}"
    for name in _inner(message.DESCRIPTOR):
        if message.HasField(name) and (problem := mistyped(getattr(message, name))):
            return problem
    return ""


@cache
def _inner(descriptor: Any) -> tuple[str, ...]:
    """The fields of a request that are messages; none of ours is repeated."""
    return tuple(each.name for each in descriptor.fields if each.type == each.TYPE_MESSAGE)
