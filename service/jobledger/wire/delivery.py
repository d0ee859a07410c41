"""What subscribers get, put together from stored bytes without decoding them.

A *message* is encoded bytes; a *frame* is a message behind gRPC's five-byte prefix (PROTOCOL-HTTP2,
"Length-Prefixed-Message").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final
from uuid import UUID

from jobledger.model import chain, event
from jobledger.wire import messages

_PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = _PREFIX.size

_HCCL_TAG: Final = b"\x52"  # field 10, length-delimited
_POSITION_TAG: Final = b"\xa0\x06"  # field 100, varint
_RECORDED_TAG: Final = b"\xa8\x06"  # field 101, varint


_CONTINUED: Final = 0x80
"""Seven bits a byte, the eighth says that more follow."""


@lru_cache(maxsize=1024)  # lengths and times come again and again
def varint(number: int) -> bytes:
    """A non-negative integer as protobuf writes it."""
    out = bytearray()
    while number >= _CONTINUED:
        out.append(number % _CONTINUED | _CONTINUED)
        number //= _CONTINUED
    out.append(number)
    return bytes(out)


def frame(message: bytes) -> bytes:
    """A message behind gRPC's prefix, uncompressed."""
    return _PREFIX.pack(0, len(message)) + message


def signal(*, stored: bytes, hccl: str | None, position: event.Position, recorded_at: datetime) -> bytes:
    """The message that subscribers get: the stored bytes with HcclJson and our own fields behind them.

    Protobuf allows the concatenation: fields may come in any order (encoding guide, "Last One Wins").
    """
    parts = [stored]
    if hccl is not None:
        text = hccl.encode()
        parts += (_HCCL_TAG, varint(len(text)), text)
    milliseconds = chain.microseconds(recorded_at) // 1000
    parts += (_POSITION_TAG, varint(position), _RECORDED_TAG, varint(milliseconds))
    return b"".join(parts)


def signal_size(stored: bytes, hccl: str | None) -> int:
    """Bytes of the delivered message without our own fields."""
    if hccl is None:
        return len(stored)
    length = len(hccl.encode())
    return len(stored) + len(_HCCL_TAG) + len(varint(length)) + length


OWN_FIELDS_BYTES: Final = 2 * (2 + 10)
"""Room that position and recordedAtUnixMs take at most: two bytes of tag and ten of varint each."""

LIST_OF_ONE_BYTES: Final = 1 + 5 + (1 + 1 + 20) + (1 + 1)
"""Room around a message in a list of one at most: its tag and length, ReportTime, JobTotalNum."""


def list_of(messages: Sequence[bytes], *, report_time_ms: int, jobs: int) -> bytes:
    """A JobSummarySignalList around encoded signals."""
    report = str(report_time_ms).encode()
    parts: list[bytes] = []
    for message in messages:
        parts += (b"\x0a", varint(len(message)), message)
    parts += (b"\x12", varint(len(report)), report, b"\x18", varint(jobs))
    return b"".join(parts)


def ledger_event(message: bytes) -> bytes:
    """A SubscribeResponse that carries an event."""
    return b"\x0a" + varint(len(message)) + message


def ledger_skipped(position: event.Position, uuid: UUID) -> bytes:
    """A SubscribeResponse that says which event could not be read."""
    return messages.SubscribeResponse(skipped={"position": position, "uuid": str(uuid)}).SerializeToString()


def ledger_caught_up(position: event.Position) -> bytes:
    """A SubscribeResponse that says that all up to a position was delivered."""
    return messages.SubscribeResponse(caughtUp={"position": position}).SerializeToString()


def ledger_heartbeat(position: event.Position, uuid: str, head: event.Position) -> bytes:
    """A SubscribeResponse that moves a quiet stream's cursor on."""
    beat = {"position": position, "uuid": uuid, "head": head}
    return messages.SubscribeResponse(heartbeat=beat).SerializeToString()
