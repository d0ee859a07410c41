"""The hash chain, and what makes two events the same: the formulas that an outsider can recompute.

::

    hash(n) = sha256(hash(n-1) ‖ int8(position) ‖ uuid ‖ content_hash ‖ int8(recorded_at in µs)
                     ‖ lp(signal) ‖ lp(hccl) ‖ lp(detail)
                     ‖ lp(region) ‖ lp(account_id) ‖ lp(user_id) ‖ lp(publisher))

    lp(b) = int4(length of b) ‖ b, and int4(-1) for null; integers are big-endian two's complement.
"""

from __future__ import annotations

import hashlib
import struct
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

GENESIS = bytes(32)
"""The hash before the first event."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLACE = struct.Struct(">q16s32sq")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


@lru_cache(maxsize=1024)  # all events of a batch have one
def microseconds(moment: datetime) -> int:
    """Whole microseconds since 1970, exact: ``timestamp()`` is a float and is not."""
    return (moment - EPOCH) // _MICROSECOND


def length_prefixed(*parts: bytes | None) -> bytes:
    """Parts that cannot run into each other: each behind its length, null apart from empty."""
    pieces: list[bytes] = []
    for part in parts:
        if part is None:
            pieces.append(_NULL)
        else:
            pieces += (_LENGTH.pack(len(part)), part)
    return b"".join(pieces)


@lru_cache(maxsize=4096)
def _identity(*texts: str) -> bytes:
    """Texts behind their lengths that are the same for many events: names of regions, users, publishers."""
    return length_prefixed(*(text.encode() for text in texts))


def _utf8(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def content_hash(*, signal: bytes, detail: str | None, region: str, account_id: str, user_id: str) -> bytes:
    """What a publisher said, as it said it: equal for an honest retry, different for anything else.

    ``signal`` is the given one in field order, HcclJson included, unknown fields last, without uuid and
    without our own fields; ``detail`` is masked, with sorted keys. Nothing was completed yet.
    """
    said = length_prefixed(signal, _utf8(detail)) + _identity(region, account_id, user_id)
    return hashlib.sha256(said).digest()


def link(
    *,
    previous: bytes,
    position: int,
    uuid: UUID,
    content_hash: bytes,
    recorded_at: datetime,
    signal: bytes,
    hccl: str | None,
    detail: str | None,
    region: str,
    account_id: str,
    user_id: str,
    publisher: str,
) -> bytes:
    """The hash of one row over its stored bytes and the hash of the row before it."""
    place = _PLACE.pack(position, uuid.bytes, content_hash, microseconds(recorded_at))
    stored = length_prefixed(signal, _utf8(hccl), _utf8(detail))
    identity = _identity(region, account_id, user_id, publisher)
    return hashlib.sha256(b"".join((previous, place, stored, identity))).digest()
