"""One append transaction: from the lock to the rows, for a batch of drafts.

::

    lock ─▶ head, known uuids, current jobs ─▶ complete, evolve, hash (memory only) ─▶ log and view

A batch is written in the transaction and under the lock of ``eventlog.begin``; nothing is committed here.
Order is everything: the head is read in a statement after the lock, and nothing is awaited between reading it
and writing what follows from it but those statements. What was worked out before the lock (``ledger.ahead``)
counts only if the head is then the one that it goes on from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from jobledger import errors
from jobledger.ledger import logrow
from jobledger.model import completion, event, job, ranktable
from jobledger.store import appends, engine, eventlog

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


class Batch:
    """Events that go on from one end of the log: worked out in memory, then written.

    A draft that is refused leaves no gap and touches no other.
    """

    def __init__(self, rules: Rules, *, after: Batch | None = None) -> None:
        """Begin one that follows what the log holds or, if it is given, the batch that is being written."""
        self._rules = rules
        self._before: appends.End | None = None
        self.start: appends.End | None = None
        """What it goes on from; None until :meth:`extend` has asked, unless it follows another."""

        self.outcomes: list[Outcome] = []
        """In the drafts' order; they hold once it is written and committed."""

        self._position = event.Position(0)
        self._hash = b""
        self._rows: list[eventlog.Row] = []
        self._changed: dict[str, job.Job] = {}
        self._known: dict[UUID, appends.Known] = {}
        self._jobs: dict[str, job.Job] = {}
        self._rank_tables: dict[int, str] = {}
        self._viewed: set[str] = set()
        if after is not None:
            self._go_on_from(after)

    @property
    def end(self) -> appends.End:
        """The log's, once this is written; something was asked."""
        assert self.start is not None  # noqa: S101 - see above
        if not self._rows:
            return self.start
        last = self._rows[-1]
        return self.start._replace(
            position=event.Position(last.position),
            uuid=last.uuid,
            hash=last.hash,
            recorded_at=last.recorded_at,
        )

    @property
    def written(self) -> Written:
        """What it adds to the log; something was asked."""
        assert self.start is not None  # noqa: S101 - see above
        return Written(self.start.position, self.start.uuid, self._rows)

    async def extend(
        self, connection: engine.Connection, drafts: Sequence[completion.Draft], *, ahead: bool = False
    ) -> bool:
        """Work out more drafts; False, and nothing is done, if the log does not end where this begins.

        Needs the append lock, unless ``ahead``: then the batch before may still be under way.

        Raises:
            msgspec.MsgspecError: A job's row in the view was spoiled.
        """
        recorded_at = await self.ask(connection, drafts, ahead=ahead)
        if recorded_at is None:
            return False
        for draft in drafts:  # each with its outcome, should a later one raise
            self.outcomes.append(self.record(draft, recorded_at))
        return True

    async def ask(
        self, connection: engine.Connection, drafts: Sequence[completion.Draft], *, ahead: bool = False
    ) -> datetime | None:
        """Learn what log and view hold of drafts; when they are recorded, None if :meth:`extend` is False."""
        state = await appends.state(
            connection, {draft.uuid for draft in drafts}, {draft.signal.job_id for draft in drafts}
        )
        if self.start is None:
            self._start_from(state.end)
        elif state.end != self.start and not (ahead and state.end == self._before):
            return None
        # What follows from the batch before, and from this one, is newer than what was asked.
        self._viewed.update(state.jobs)
        self._known = {**state.known, **self._known}
        self._jobs = {**state.jobs, **self._jobs}
        self._rank_tables = {**await self._asked_rank_tables(connection, drafts), **self._rank_tables}
        return max(state.now, self.end.recorded_at or state.now).astimezone(UTC)

    def record(self, draft: completion.Draft, recorded_at: datetime) -> Outcome:
        """Work one draft out that :meth:`ask` asked about."""
        earlier = self._known.get(draft.uuid)
        if earlier is not None:
            return _repeated(draft, earlier)
        try:
            return self._append(draft, recorded_at)
        except errors.EventError as error:
            return error

    async def write(self, connection: engine.Connection) -> None:
        """Add it to the log and the view; nothing else was appended since it was worked out."""
        if self._rows:
            await appends.write(connection, self._rows, self._changed.values(), before=self._viewed)

    def _start_from(self, end: appends.End) -> None:
        self.start, self._position, self._hash = end, end.position, end.hash

    def _go_on_from(self, after: Batch) -> None:
        self._before = after.start
        self._start_from(after.end)
        self._known = {row.uuid: after._known[row.uuid] for row in after._rows}
        self._rank_tables = {row.position: row.hccl or "" for row in after._rows}
        self._jobs = dict(after._changed)
        self._viewed = set(after._changed)

    async def _asked_rank_tables(
        self, connection: engine.Connection, drafts: Sequence[completion.Draft]
    ) -> Mapping[int, str]:
        """By position, the HcclJson of those jobs that a description will take it from."""
        described = {
            each.job_id: each
            for draft in drafts
            if (each := self._jobs.get(draft.signal.job_id)) is not None
            and completion.needs_rank_table(draft, each)
        }
        wanted = {at for each in described.values() for at in each.signal_positions}
        missing = wanted.difference(self._rank_tables)
        return await eventlog.hccl(connection, missing) if missing else {}

    def _append(self, draft: completion.Draft, recorded_at: datetime) -> event.Receipt:
        current = self._jobs.get(draft.signal.job_id)
        completed = completion.complete(
            draft,
            current=current,
            rank_table=self._rank_table(draft, current),
            default_region=self._rules.default_region,
            recorded_at=recorded_at,
        )
        position = event.Position(self._position + 1)
        row = logrow.make(
            draft,
            completed,
            current=current,
            position=position,
            previous=self._hash,
            recorded_at=recorded_at,
            limit_bytes=self._rules.event_limit_bytes,
        )
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
                recorded_at=recorded_at,
            ),
        )
        self._rows.append(row)
        self._position = position
        self._hash = row.hash
        self._known[draft.uuid] = appends.Known(position, draft.content_hash)
        if evolved is not None and evolved is not current:
            self._jobs[evolved.job_id] = self._changed[evolved.job_id] = evolved
            self._rank_tables[position] = completed.signal.hccl_json
        return event.Receipt(uuid=draft.uuid, position=position, duplicate=False)

    def _rank_table(self, draft: completion.Draft, current: job.Job | None) -> str:
        if current is None or not completion.needs_rank_table(draft, current):
            return ""
        return ranktable.join([self._rank_tables[at] for at in current.table_positions])


def _repeated(draft: completion.Draft, earlier: appends.Known) -> Outcome:
    """The uuid decides before anything else is looked at, so that an honest retry never conflicts."""
    if earlier.content_hash == draft.content_hash:
        return event.Receipt(uuid=draft.uuid, position=earlier.position, duplicate=True)
    return errors.EventConflict(
        field="signal.uuid",
        reason=f"{draft.uuid} is at position {earlier.position} with other content; "
        "send a new event under a new uuid",
    )
