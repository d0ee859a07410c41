"""Where a stream starts and which events it carries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class StartFrom(StrEnum):
    """Where a stream starts when no last seen uuid is given."""

    SNAPSHOT = "snapshot"
    """The signals that make the current state of every live job, then live."""

    EARLIEST = "earliest"
    """The first event that is still kept."""

    LATEST = "latest"
    """Only what comes after now."""


class Keys(msgspec.Struct, frozen=True, gc=False):
    """What a filter looks at in an event."""

    job_id: str
    operator: str
    namespace: str
    framework: str
    left_namespace: str | None
    """The namespace that the job was in before this event; None if it stayed."""

    left_framework: str | None
    """The framework that it had before this event; None if it kept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events a stream carries: OR inside a field, AND between fields, empty means everything."""

    namespaces: frozenset[str] = frozenset()
    job_ids: frozenset[str] = frozenset()
    frameworks: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()

    @property
    def everything(self) -> bool:
        """Whether it lets all events through."""
        return not (self.namespaces or self.job_ids or self.frameworks or self.operators)

    def matches(self, keys: Keys) -> bool:
        """Whether an event passes; what its job left with it counts too, so that followers hear of it."""
        return (
            (not self.job_ids or keys.job_id in self.job_ids)
            and (not self.operators or keys.operator in self.operators)
            and (
                not self.namespaces
                or keys.namespace in self.namespaces
                or keys.left_namespace in self.namespaces
            )
            and (
                not self.frameworks
                or keys.framework in self.frameworks
                or keys.left_framework in self.frameworks
            )
        )


EVERYTHING = Filter()
"""The filter of a stream that asked for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What a subscriber asks for, as sent; ``""`` and None mean not given."""

    role: str = ""
    client_id: str = ""
    after: str = ""
    """The last seen uuid, unchecked."""

    epoch: str = ""
    """The ledger epoch under which it was received, unchecked."""

    start_from: StartFrom | None = None
    filter: Filter = EVERYTHING
