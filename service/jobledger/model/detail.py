"""The CWAI description of a job.

Two texts, never mixed up:

- what a publisher **gives**: every key optional, null is not given, times in a zone. :func:`parse` reads it.
- what the log **stores**: only the keys that were given, sorted, times in UTC. :func:`encode` writes it,
  everything else here reads it. The fold of the log takes texts out of it and looks at no zone.

Identity (jobID, regionID, userID, accountID) is lifted out at the door: the log has columns for it, and a
second copy could contradict them.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from jobledger.model import jsontext
from jobledger.model.cwai import Detail
from jobledger.model.intake import LIMIT_BYTES, Parsed, parse

__all__ = [
    "LIMIT_BYTES",
    "Detail",
    "Parsed",
    "create_time",
    "decode",
    "encode",
    "finish_time",
    "parse",
    "without_derived",
]

STATUS_KEYS = ("status", "finishTime")
"""What a description says of the job's status; a new jobStatus ends it."""

RANK_KEYS = ("pods", "replicas")
"""What a description says of the job's ranks; a new HcclJson ends it."""


class _Times(
    msgspec.Struct, frozen=True, kw_only=True, rename={"create": "createTime", "finish": "finishTime"}
):
    create: datetime | None = None
    finish: datetime | None = None


_DETAIL = msgspec.json.Decoder(Detail)
_TIMES = msgspec.json.Decoder(_Times)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode(described: Detail) -> str:
    """The one text of a description, as it is stored and hashed."""
    return jsontext.write(described)


def decode(stored: str) -> Detail:
    """The description that a stored text holds; ``encode`` gives the text back.

    Keys of a newer version are passed over.

    Raises:
        msgspec.DecodeError: the text was not stored by us.
    """
    return _DETAIL.decode(stored)


def without_derived(stored: str, *, status_changed: bool, ranks_changed: bool) -> str:
    """The stored text without what a later event without a description has made untrue.

    Everything else stays to the byte, also keys of a newer version.
    """
    ended = (*(STATUS_KEYS if status_changed else ()), *(RANK_KEYS if ranks_changed else ()))
    if not any(f'"{key}":' in stored for key in ended):
        return stored
    members = _MEMBERS.decode(stored)
    return jsontext.write({key: member for key, member in members.items() if key not in ended})


def create_time(stored: str) -> datetime | None:
    """When the description says that the job was created; None if it does not. UTC."""
    return _utc(_TIMES.decode(stored).create)


def finish_time(stored: str) -> datetime | None:
    """When the description says that the job finished; None if it does not. UTC."""
    return _utc(_TIMES.decode(stored).finish)


def _utc(moment: datetime | None) -> datetime | None:
    return moment.astimezone(UTC) if moment is not None else None
