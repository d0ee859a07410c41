"""Events as server-sent events (WHATWG HTML, 9.2): JSON in the wire's names, the uuid as the id.

An id is what a browser sends back as Last-Event-ID, so only what can be resumed from has one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from jobledger.model.signal import WIRE_NAMES
from jobledger.wire import signals

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SignalEvent(
    msgspec.Struct, frozen=True, kw_only=True, rename={**WIRE_NAMES, "recorded_at": "recordedAt"}
):
    """The data of an event ``signal``; texts as on the wire, "" is not given."""

    position: int
    uuid: str
    recorded_at: str
    """RFC 3339, UTC, to the millisecond."""

    job_id: str
    operator: str
    job_name: str
    namespace: str
    framework: str
    job_status: str
    time: str
    cm_index: str
    total: str
    hccl_json: str
    delete_time: str
    shared_tor_ip: str
    master_addr: str
    sid: str


_GIVEN: Final = tuple(
    name for name in SignalEvent.__struct_fields__ if name not in ("position", "uuid", "recorded_at")
)
_encoder = msgspec.json.Encoder()


def signal(message: bytes, *, position: int, uuid: UUID, recorded_at_ms: int) -> bytes:
    """A delivered signal as an event."""
    given = signals.decode(message)
    moment = _EPOCH + timedelta(milliseconds=recorded_at_ms)
    shown = SignalEvent(
        position=position,
        uuid=str(uuid),
        recorded_at=moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **{name: getattr(given, name) for name in _GIVEN},
    )
    return _event("signal", _encoder.encode(shown), uuid)


def skipped(position: int, uuid: UUID) -> bytes:
    """An event whose stored bytes cannot be read; one can resume after it all the same."""
    return _event("skipped", _encoder.encode({"position": position, "uuid": str(uuid)}), uuid)


def reset(*, reason: str, first: UUID | None) -> bytes:
    """The id that was given leads nowhere: what follows is a snapshot, forget what you knew."""
    return _event("reset", _encoder.encode({"reason": reason, "firstUuid": str(first) if first else ""}))


def end(*, reason: str) -> bytes:
    """The server ends the stream; connect again, the last id holds."""
    return _event("end", _encoder.encode({"reason": reason}))


def comment(text: str) -> bytes:
    """What no listener sees; it keeps the connection alive."""
    return f": {text}\n\n".encode()


def _event(kind: str, data: bytes, uuid: UUID | None = None) -> bytes:
    # JSON has no line breaks, which would end the data.
    name = f"id: {uuid}\n" if uuid is not None else ""
    return f"{name}event: {kind}\ndata: ".encode() + data + b"\n\n"
