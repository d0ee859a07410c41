"""Events on their way into the log, and as the log holds them.

::

    Submission  ──admission──▶  Draft  ──completion, from the job as it is──▶  RecordedEvent
    as given                    valid, masked                                  what is stored
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, NewType
from uuid import UUID

import msgspec

from jobledger.model import jsontext
from jobledger.model.signal import Signal

Position = NewType("Position", int)
"""A place in the log: 1, 2, 3 … without gaps, in commit order. 0 is before the first event."""


class Operator(StrEnum):
    """What an event says of its job."""

    ADD = "add"
    """The job is there, or changed."""

    DELETE = "delete"
    """The job is gone."""


class Encoded(NamedTuple):
    """A signal's two encodings; see ``wire.signals``."""

    given: bytes
    """As its content is compared."""

    stored: bytes
    """As the log keeps it."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a publisher gives; nothing of it was checked."""

    signal: Signal
    detail: str | None = None
    """The CWAI description as JSON text; None or empty if there is none."""

    tree: jsontext.Tree = None
    """What the description says, if its reader had that at hand: to read it costs as much as to check it."""

    region: str = ""
    account_id: str = ""
    user_id: str = ""
    completes_all: bool = False
    """What the signal does not give comes from the live job, status and rank table included (REST)."""

    encoded: Encoded | None = None
    """The signal's encodings, if its reader had them at hand: to make them costs as much as all checks."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event is in the log: committed, in the view, readable."""

    uuid: UUID
    position: Position
    duplicate: bool
    """The log held it before; position is that of the first."""


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event as the log holds it, complete; all that the fold may look at."""

    position: Position
    uuid: UUID
    signal: Signal
    detail: str | None
    """The masked CWAI description, JSON with sorted keys."""

    region: str
    account_id: str
    user_id: str
    recorded_at: datetime
    """The database's clock when it was being appended, UTC; never decreasing with position."""
