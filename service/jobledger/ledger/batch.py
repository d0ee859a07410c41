"""One append transaction: from the lock to the rows, for a batch of drafts.

::

    lock ─▶ head, known uuids, current jobs ─▶ complete, evolve, hash (memory only) ─▶ log and view

Needs the transaction and the lock of ``eventlog.begin``; commits nothing itself. Order is everything here:
the head is read in a statement after the lock, and nothing is awaited between reading it and writing what
follows from it but those statements.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from jobledger import errors
from jobledger.model import chain, completion, event, job, ranktable
from jobledger.store import appends, engine, eventlog
from jobledger.wire import delivery, signals

Outcome: TypeAlias = event.Receipt | errors.EventError
"""What becomes of one event."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch added to the log."""

    after: event.Position
    """The head that it goes on from; 0 for an empty log."""

    after_uuid: UUID | None
    """Of the event there."""

    rows: Sequence[eventlog.Row]
    """Maybe none."""

    @property
    def head(self) -> event.Position:
        """The new one."""
        return event.Position(self.after + len(self.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the appender must know beside the log."""

    default_region: str
    event_limit_bytes: int
    """The largest event, as a JobSummarySignalList of one with its position fields."""


@dataclass(slots=True)
class _Recording:
    """The end of the log as it grows in memory, and what will be written."""

    rules: Rules
    position: int
    hash: bytes
    recorded_at: datetime
    known: dict[UUID, appends.Known]
    jobs: dict[str, job.Job]
    rank_tables: dict[int, str]
    rows: list[eventlog.Row]
    changed: dict[str, job.Job]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch that is worked out, and not written yet."""

    outcomes: list[Outcome]
    """In the drafts' order; they hold once it is written and committed."""

    written: Written
    changed: Collection[job.Job]
    """The jobs as they are then."""

    before: Container[str]
    """The ids of those that the view holds already."""


async def prepare(
    connection: engine.Connection, drafts: Sequence[completion.Draft], rules: Rules
) -> Prepared:
    """Work a batch out. A draft that is refused leaves no gap and touches no other."""
    state = await appends.state(
        connection, {draft.uuid for draft in drafts}, {draft.signal.job_id for draft in drafts}
    )
    recording = _Recording(
        rules=rules,
        position=state.position,
        hash=state.hash,
        recorded_at=max(state.now, state.recorded_at or state.now).astimezone(UTC),
        known=dict(state.known),
        jobs=dict(state.jobs),
        rank_tables=dict(await _rank_tables(connection, drafts, state.jobs)),
        rows=[],
        changed={},
    )
    outcomes = [_outcome(recording, draft) for draft in drafts]
    written = Written(state.position, state.uuid, recording.rows)
    return Prepared(outcomes, written, recording.changed.values(), state.jobs)


async def write(connection: engine.Connection, prepared: Prepared) -> None:
    """Add a batch to the log and the view, in the transaction in which it was prepared."""
    if prepared.written.rows:
        await appends.write(connection, prepared.written.rows, prepared.changed, before=prepared.before)


async def _rank_tables(
    connection: engine.Connection, drafts: Sequence[completion.Draft], current: Mapping[str, job.Job]
) -> dict[int, str]:
    """By position, the HcclJson of those jobs that a description will take it from."""
    described = {
        each.job_id: each
        for draft in drafts
        if (each := current.get(draft.signal.job_id)) is not None and completion.needs_rank_table(draft, each)
    }
    positions = [at for each in described.values() for at in each.signal_positions]
    return dict(await eventlog.hccl(connection, positions)) if positions else {}


def _outcome(recording: _Recording, draft: completion.Draft) -> Outcome:
    earlier = recording.known.get(draft.uuid)
    if earlier is not None:
        return _repeated(draft, earlier)
    try:
        return _append(recording, draft)
    except errors.EventError as error:
        return error


def _repeated(draft: completion.Draft, earlier: appends.Known) -> Outcome:
    """The uuid decides before anything else is looked at, so that an honest retry never conflicts."""
    if earlier.content_hash == draft.content_hash:
        return event.Receipt(uuid=draft.uuid, position=earlier.position, duplicate=True)
    return errors.EventConflict(
        field="signal.uuid",
        reason=f"{draft.uuid} is at position {earlier.position} with other content; "
        "send a new event under a new uuid",
    )


def _append(recording: _Recording, draft: completion.Draft) -> event.Receipt:
    current = recording.jobs.get(draft.signal.job_id)
    completed = completion.complete(
        draft,
        current=current,
        rank_table=_rank_table(recording, draft, current),
        default_region=recording.rules.default_region,
        recorded_at=recording.recorded_at,
    )
    position = event.Position(recording.position + 1)
    row = _row(recording, draft, completed, position, current)
    evolved = job.evolve(
        current,
        event.RecordedEvent(
            position=position,
            uuid=draft.uuid,
            signal=completed.signal,
            detail=completed.detail,
            region=completed.region,
            account_id=completed.account_id,
            user_id=completed.user_id,
            recorded_at=recording.recorded_at,
        ),
    )
    recording.rows.append(row)
    recording.position = position
    recording.hash = row.hash
    recording.known[draft.uuid] = appends.Known(position, draft.content_hash)
    if evolved is not None and evolved is not current:
        recording.jobs[evolved.job_id] = evolved
        recording.changed[evolved.job_id] = evolved
        recording.rank_tables[position] = completed.signal.hccl_json
    return event.Receipt(uuid=draft.uuid, position=position, duplicate=False)


def _rank_table(recording: _Recording, draft: completion.Draft, current: job.Job | None) -> str:
    if current is None or not completion.needs_rank_table(draft, current):
        return ""
    return ranktable.join([recording.rank_tables[at] for at in current.table_positions])


def _row(
    recording: _Recording,
    draft: completion.Draft,
    completed: completion.Completed,
    position: event.Position,
    current: job.Job | None,
) -> eventlog.Row:
    signal = completed.signal
    stored = draft.stored if signal is draft.signal else None
    if stored is None:
        stored = signals.stored_signal(signal)
    hccl = signal.hccl_json or None
    size = delivery.signal_size(stored, hccl)
    delivered = size + delivery.OWN_FIELDS_BYTES + delivery.LIST_OF_ONE_BYTES
    if delivered > recording.rules.event_limit_bytes:
        raise errors.EventTooLarge(
            field="signal", size_bytes=delivered, limit_bytes=recording.rules.event_limit_bytes
        )
    alive = current if current is not None and current.live else None
    # By position, in the order of its fields: with 28 names it takes three times as long.
    return eventlog.Row(
        position,
        draft.uuid,
        signal.job_id,
        signal.operator,
        signal.job_status,
        signal.job_name,
        signal.namespace,
        signal.framework,
        *job.numbers(signal),
        signal.shared_tor_ip,
        signal.master_addr,
        signal.sid,
        completed.region,
        completed.account_id,
        completed.user_id,
        draft.publisher,
        hccl,
        completed.detail,
        stored,
        draft.content_hash,
        size,
        _left(alive, "namespace", signal.namespace),
        _left(alive, "framework", signal.framework),
        recording.recorded_at,
        chain.link(
            previous=recording.hash,
            position=position,
            uuid=draft.uuid,
            content_hash=draft.content_hash,
            recorded_at=recording.recorded_at,
            signal=stored,
            hccl=hccl,
            detail=completed.detail,
            region=completed.region,
            account_id=completed.account_id,
            user_id=completed.user_id,
            publisher=draft.publisher,
        ),
        draft.servers if signal.hccl_json is draft.signal.hccl_json else ranktable.servers(signal.hccl_json),
    )


def _left(alive: job.Job | None, name: str, now: str) -> str | None:
    """What a live job had before the event and has no longer: whoever followed it must hear of that."""
    before: str | None = getattr(alive.signal, name) if alive is not None else None
    return before if before != now else None
