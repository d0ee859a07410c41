"""The view of one job, and the fold that makes it.

``evolve`` is the only way in which a job changes: append, rebuild and as-of call it with the same
events and get the same job. It looks at nothing else.

::

    none ──add──▶ live ──add──▶ live ──delete──▶ ended ──add──▶ live (a new life, nothing of the old)
    none, ended ──delete──▶ as before

A rank table may come in parts. The one that holds is the last that was complete, joined; the other fields
are the newest part's. ``signal_positions``::

    whole                  [9]
    first parts            [1 2]            no table yet
    all of 3 have come     [1 2 3]          these are the table
    the next generation    [1 2 3 | 5 6]    1 to 3 are the table until the third one comes
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

import msgspec
from msgspec.structs import replace

from jobledger.model import detail, event, parts
from jobledger.model.signal import ENDED_STATUSES, Signal


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the log says of one job up to ``last_position``."""

    job_id: str
    region: str
    account_id: str
    user_id: str
    signal: Signal
    """The newest add's signal, without uuid, HcclJson and unknown fields."""

    hccl_digest: bytes | None
    """sha256 of the present HcclJson, of a joined table that of the parts' sha256s; None if there is none.
    The text itself is in the log."""

    detail: str | None
    """The CWAI description that holds, as detail.encode writes it; what no longer holds is taken out."""

    create_time: datetime
    """UTC; fixed by the life's first add."""

    ended_at: datetime | None
    """When the present run of complete/failed began, or a job deleted before that was deleted. UTC."""

    version: int
    """Events of this life so far, its delete included."""

    last_position: event.Position
    last_uuid: UUID
    changed_at: datetime
    """When the last event was recorded. UTC."""

    deleted_at: datetime | None
    """When its delete was recorded; None while it lives. UTC."""

    signal_positions: tuple[event.Position, ...]
    """The adds that make the current state, ascending: the table's, then the parts of the next one."""

    arriving: parts.Generation | None
    """The parts that came last, the table itself once they are complete; None if the newest add is whole."""

    @property
    def live(self) -> bool:
        """Whether no delete has ended it."""
        return self.deleted_at is None

    @property
    def table_positions(self) -> tuple[event.Position, ...]:
        """The adds whose HcclJson, joined, is the rank table; none before the first complete one."""
        if self.arriving is None:
            return self.signal_positions
        count = len(self.arriving.places)
        if self.arriving.complete:
            return self.signal_positions[-count:]
        return self.signal_positions[:-count]


def digest(hccl_json: str) -> bytes | None:
    """What tells one HcclJson from another without keeping it."""
    return hashlib.sha256(hccl_json.encode()).digest() if hccl_json else None


@lru_cache(maxsize=1024)  # an event's times are asked for several times, and a job's come again
def epoch_seconds(text: str) -> datetime | None:
    """The moment that a signal's time field names; None for an empty one."""
    return datetime.fromtimestamp(int(text), UTC) if text else None


def numbers(signal: Signal) -> tuple[datetime | None, datetime | None, int | None, int | None]:
    """A signal's time, deleteTime, cmIndex and total as columns hold them; None for what was not given.

    Raises:
        ValueError: One is no number.
        OverflowError: A time is none that a datetime holds.
        OSError: The same, on some platforms.
    """
    return (
        epoch_seconds(signal.time),
        epoch_seconds(signal.delete_time),
        int(signal.cm_index) if signal.cm_index else None,
        int(signal.total) if signal.total else None,
    )


def evolve(job: Job | None, recorded: event.RecordedEvent) -> Job | None:
    """The job after one more event of it; events come in position order."""
    alive = job if job is not None and job.live else None
    match recorded.signal.operator:
        case event.Operator.ADD:
            return _added(alive, recorded)
        case event.Operator.DELETE if alive is not None:
            return _deleted(alive, recorded)
        case _:
            return job


def _added(alive: Job | None, recorded: event.RecordedEvent) -> Job:
    signal = recorded.signal
    arriving = _arriving(alive, signal)
    if arriving is None:
        positions, hccl_digest = (recorded.position,), digest(signal.hccl_json)
    else:
        positions, hccl_digest = _positions(alive, arriving, recorded.position), arriving.digest
        if not arriving.complete:
            hccl_digest = alive.hccl_digest if alive is not None else None
    described = recorded.detail
    if described is None and alive is not None and alive.detail is not None:
        described = detail.without_derived(
            alive.detail,
            status_changed=signal.job_status != alive.signal.job_status,
            ranks_changed=hccl_digest != alive.hccl_digest,
        )
    return Job(
        job_id=signal.job_id,
        region=recorded.region,
        account_id=recorded.account_id,
        user_id=recorded.user_id,
        signal=replace(signal, uuid="", hccl_json="", unknown=b""),
        hccl_digest=hccl_digest,
        detail=described,
        create_time=alive.create_time if alive is not None else _create_time(recorded),
        ended_at=_ended_at(alive, recorded),
        version=alive.version + 1 if alive is not None else 1,
        last_position=recorded.position,
        last_uuid=recorded.uuid,
        changed_at=recorded.recorded_at,
        deleted_at=None,
        signal_positions=positions,
        arriving=arriving,
    )


def _arriving(alive: Job | None, signal: Signal) -> parts.Generation | None:
    """The generation that the newest add belongs to; None if it is whole."""
    part = parts.of(signal)
    if (
        part is None
        or alive is None
        or alive.arriving is None
        or (signal.job_status, signal.time) != (alive.signal.job_status, alive.signal.time)
        or not alive.arriving.takes(part)
    ):
        return part
    return alive.arriving.with_part(part)


def _positions(
    alive: Job | None, arriving: parts.Generation, position: event.Position
) -> tuple[event.Position, ...]:
    before = len(arriving.places) - 1
    came = alive.signal_positions[-before:] if alive is not None and before else ()
    table = alive.table_positions if alive is not None and not arriving.complete else ()
    return (*table, *came, position)


def _deleted(alive: Job, recorded: event.RecordedEvent) -> Job:
    ended_at = alive.ended_at
    if ended_at is None:
        ended_at = epoch_seconds(recorded.signal.delete_time) or recorded.recorded_at
    return replace(
        alive,
        signal=replace(alive.signal, operator=event.Operator.DELETE, delete_time=recorded.signal.delete_time),
        ended_at=ended_at,
        version=alive.version + 1,
        last_position=recorded.position,
        last_uuid=recorded.uuid,
        changed_at=recorded.recorded_at,
        deleted_at=recorded.recorded_at,
    )


def _create_time(recorded: event.RecordedEvent) -> datetime:
    given = detail.create_time(recorded.detail) if recorded.detail is not None else None
    return given or epoch_seconds(recorded.signal.time) or recorded.recorded_at


def _ended_at(alive: Job | None, recorded: event.RecordedEvent) -> datetime | None:
    if recorded.signal.job_status not in ENDED_STATUSES:
        return None
    if alive is not None and alive.ended_at is not None:
        return alive.ended_at
    return epoch_seconds(recorded.signal.delete_time) or recorded.recorded_at
