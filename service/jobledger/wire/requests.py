"""What callers send, and the receipts that they get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from jobledger import errors
from jobledger.model import event, selection
from jobledger.wire import messages, signals

_STARTS: Final = {
    1: selection.StartFrom.SNAPSHOT,
    2: selection.StartFrom.EARLIEST,
    3: selection.StartFrom.LATEST,
}
_EVENT_FIELDS: Final = ("detail", "region", "accountId", "userId")


def _decoded(message_class: Any, data: bytes) -> Any:
    try:
        found = message_class.FromString(data)
        problem = messages.mistyped(found)
    except DecodeError as error:
        found, problem = None, str(error)
    if problem:
        name = message_class.DESCRIPTOR.name
        message = f"the request is not a {name}: {problem}; encode it with the service's .proto file"
        raise errors.InvalidRequest(message)
    return found


def decode_append(data: bytes) -> list[event.Submission | errors.EventError]:
    """The events of an AppendRequest, in order; one that cannot be decoded is its error.

    Raises:
        errors.InvalidRequest: The bytes are no AppendRequest at all.
    """
    found = _decoded_at_once(data)
    if found is None:
        found = [_decode_event(part) for part in _decoded(messages.AppendRequestParts, data).events]
    return found


def _decoded_at_once(data: bytes) -> list[event.Submission | errors.EventError] | None:
    """The events of a request that is encoded as nearly all are; None if anything is odd about it.

    Nothing is odd when what is left without unknown fields takes as many bytes as came: no field stood
    there twice, with another wire type, or without need.
    """
    try:
        request = messages.AppendRequest.FromString(data)
    except DecodeError:
        return None
    request.DiscardUnknownFields()
    return [_submission(each) for each in request.events] if request.ByteSize() == len(data) else None


def _submission(message: Any) -> event.Submission:
    signal, encoded = signals.of_message(message.signal)
    return event.Submission(
        signal=signal,
        detail=message.detail or None,
        region=message.region,
        account_id=message.accountId,
        user_id=message.userId,
        encoded=encoded,
    )


def _decode_event(data: bytes) -> event.Submission | errors.EventError:
    remedy = "encode the event with jobledger/v1/ledger.proto"
    try:
        parts = messages.EventParts.FromString(data)
    except DecodeError as error:
        return errors.InvalidEvent(field="event", problem=f"cannot be decoded: {error}", remedy=remedy)
    if problem := messages.mistyped(parts):
        return errors.InvalidEvent(field="event", problem=problem, remedy=remedy)
    texts: dict[str, str] = {}
    for name in _EVENT_FIELDS:
        try:
            texts[name] = getattr(parts, name).decode()
        except UnicodeDecodeError:
            return errors.InvalidEvent(field=name, problem="is not UTF-8", remedy="send text as UTF-8")
    try:
        signal = signals.decode(parts.signal)
    except errors.EventError as error:
        return error
    return event.Submission(
        signal=signal,
        detail=texts["detail"] or None,
        region=texts["region"],
        account_id=texts["accountId"],
        user_id=texts["userId"],
    )


def encode_receipts(receipts: Iterable[event.Receipt | errors.EventError]) -> bytes:
    """An AppendResponse with one receipt an event, in order."""
    response = messages.AppendResponse()
    for receipt in receipts:
        match receipt:
            case event.Receipt():
                response.receipts.add(
                    uuid=str(receipt.uuid), position=receipt.position, duplicate=receipt.duplicate
                )
            case errors.EventError():
                response.receipts.add(
                    error={"code": receipt.code, "field": receipt.field, "reason": receipt.reason}
                )
    return response.SerializeToString()


def _filter(message: Any) -> selection.Filter:
    asked = selection.Filter(
        namespaces=frozenset(message.namespace),
        job_ids=frozenset(message.jobId),
        frameworks=frozenset(message.frameWork),
        operators=frozenset(message.operator),
    )
    # An empty set is an object each time.
    return selection.EVERYTHING if asked.everything else asked


def _start(number: int) -> selection.StartFrom | None:
    """Where to start; None if the caller did not say."""
    if number == 0:
        return None
    try:
        return _STARTS[number]
    except KeyError:
        message = f"startFrom {number} is unknown; use 1 (snapshot), 2 (earliest) or 3 (latest)"
        raise errors.InvalidRequest(message) from None


def decode_client_info(data: bytes) -> selection.StreamRequest:
    """A ClientInfo: who subscribes or registers, and from where.

    Raises:
        errors.InvalidRequest: The bytes are no ClientInfo, or startFrom is unknown.
    """
    message = _decoded(messages.ClientInfo, data)
    return selection.StreamRequest(
        role=message.role,
        client_id=message.clientId,
        after=message.lastSeenUuid,
        epoch=message.ledgerEpoch,
        start_from=_start(message.startFrom),
        filter=_filter(message.filter),
    )


def decode_subscribe(data: bytes) -> selection.StreamRequest:
    """A SubscribeRequest of our own service; it has no role and no client id.

    Raises:
        errors.InvalidRequest: The bytes are no SubscribeRequest, or startFrom is unknown.
    """
    message = _decoded(messages.SubscribeRequest, data)
    return selection.StreamRequest(
        after=message.after,
        epoch=message.epoch,
        start_from=_start(message.startFrom),
        filter=_filter(message.filter),
    )


def encode_status(*, code: int, info: str, client_id: str) -> bytes:
    """The answer to Register."""
    return messages.Status(code=code, info=info, clientId=client_id).SerializeToString()
