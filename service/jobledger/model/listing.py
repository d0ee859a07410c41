"""What a list of jobs asks for: which, in which order, from where on. The same for SQL and for folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from jobledger.model import job, searchkeys

NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)
"""Where a job that has not finished stands in the order of finishing: before all others."""

Value: TypeAlias = datetime | str
Place: TypeAlias = tuple[Value, str]
"""A job's place in an order: the value that is sorted by, then its id, both by code point."""


class Sort(StrEnum):
    """What a list is sorted by; ties by job id, in the same direction."""

    CREATED = "created"
    FINISHED = "finished"
    CHANGED = "changed"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """From the first moment on, up to the second, both included; None is open."""

    start: datetime | None = None
    end: datetime | None = None

    def holds(self, moment: datetime | None) -> bool:
        """Whether a moment lies in it; one that is not there lies in the open one alone."""
        if moment is None:
            return self.start is None and self.end is None
        return (self.start is None or self.start <= moment) and (self.end is None or moment <= self.end)


ALWAYS: Final = Between()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which jobs; "" lets all through."""

    region: str
    job_status: str = ""
    shown_status: str = ""
    name_prefix: str = ""
    namespace: str = ""
    user_id: str = ""
    account_id: str = ""
    queue_id: str = ""
    resource_group_id: str = ""
    train_frame: str = ""
    created: Between = ALWAYS
    finished: Between = ALWAYS
    changed: Between = ALWAYS
    ended_too: bool = False
    """Whether jobs that a delete ended are among them."""

    only_user: str = ""
    """The caller's: jobs of another user are left out, those of none are not."""

    only_account: str = ""

    def passes(self, folded: job.Job) -> bool:
        """Whether a job is one of them."""
        keys = searchkeys.of(folded)
        equal = (
            (self.region, folded.region),
            (self.job_status, folded.signal.job_status),
            (self.shown_status, keys.shown_status),
            (self.namespace, folded.signal.namespace),
            (self.user_id, folded.user_id),
            (self.account_id, folded.account_id),
            (self.queue_id, keys.queue_id),
            (self.resource_group_id, keys.resource_group_id),
            (self.train_frame, keys.train_frame),
        )
        return (
            (folded.live or self.ended_too)
            and all(not wanted or wanted == found for wanted, found in equal)
            and keys.shown_name.startswith(self.name_prefix)
            and (not self.only_user or folded.user_id in ("", self.only_user))
            and (not self.only_account or folded.account_id in ("", self.only_account))
            and self.created.holds(folded.create_time)
            and self.finished.holds(keys.finish_time)
            and self.changed.holds(folded.changed_at)
        )


_VALUES: Final[dict[Sort, Callable[[job.Job], Value]]] = {
    Sort.CREATED: lambda folded: folded.create_time,
    Sort.FINISHED: lambda folded: searchkeys.of(folded).finish_time or NEVER,
    Sort.CHANGED: lambda folded: folded.changed_at,
    Sort.NAME: lambda folded: searchkeys.of(folded).shown_name,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """In which order."""

    sort: Sort = Sort.CREATED
    descending: bool = True

    def place(self, folded: job.Job) -> Place:
        """Where a job stands."""
        return _VALUES[self.sort](folded), folded.job_id

    def behind(self, place: Place, other: Place) -> bool:
        """Whether a place comes after another."""
        return place < other if self.descending else place > other
