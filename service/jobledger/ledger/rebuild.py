"""Rebuild: make the view again from the log, while appends go on.

::

    page of jobs ── row = fold up to the head of that moment? ── no ─▶ shadow (job, folded to there)
    shadow rows that the log went on from: fold again, until few are left
    append lock ─▶ fold the last few ─▶ replace rows, record that ─▶ commit

A row that is right stays right, since an append folds on from it; only those that differ are kept in the
shadow and replaced, in the table itself, so that prepared statements live on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jobledger.ledger import past, verify
from jobledger.model import event
from jobledger.store import engine, eventlog, proof

CATCH_UP_JOBS: Final = 100
"""So few rows may be behind when the append lock is taken: folding them takes milliseconds."""

CATCH_UP_ROUNDS: Final = 100
"""After so many rounds appends are held up for however many rows are left."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was made again."""

    jobs: int
    """Jobs that were folded."""

    differed: int
    """Of them, rows that were not as the log says, and now are."""


async def run(connection: engine.Connection, *, on_progress: verify.OnProgress) -> Report:
    """Make the view what the log says; the connection is for nothing else and is closed afterwards.

    Raises:
        errors.DatabaseUnavailable: Postgres is away, or the append lock is held; nothing was changed.
    """
    with engine.translated():
        await proof.begin_shadow(connection)
        jobs, differed = await _fill(connection, on_progress)
        if not differed:
            return Report(jobs=jobs, differed=0)
        for _ in range(CATCH_UP_ROUNDS):
            async with proof.moment(connection) as head:
                behind = await proof.behind_shadow(connection, count=CATCH_UP_JOBS * 10)
                await _shadow(connection, behind, head)
            if len(behind) <= CATCH_UP_JOBS:
                break
        await eventlog.begin(connection)
        try:
            # A statement of its own: one that waited for the lock would see the log as it was before.
            head = await eventlog.last(connection)
            while behind := await proof.behind_shadow(connection, count=CATCH_UP_JOBS * 10):
                await _shadow(connection, behind, head)
            await proof.replace(connection, head)
            await eventlog.commit(connection)
        except BaseException:
            if not connection.is_closed():
                await eventlog.rollback(connection)
            raise
    return Report(jobs=jobs, differed=differed)


async def _fill(connection: engine.Connection, on_progress: verify.OnProgress) -> tuple[int, int]:
    """Look at every job; how many there are, and how many of them went into the shadow."""
    after, done, differed = "", 0, 0
    about = await proof.about_jobs(connection)
    while True:
        async with proof.moment(connection) as head:
            found = await proof.shown(connection, after=after, count=verify.PAGE_JOBS)
            states = await past.states(connection, [each.job_id for each in found], head)
            wrong = [each.job_id for each in found if proof.differing(each, states.get(each.job_id))]
            if wrong:
                made = [states[job_id] for job_id in wrong if job_id in states]
                await proof.shadow(connection, wrong, made, folded_to=head)
        done += sum(each.job_id in states for each in found)
        differed += len(wrong)
        if len(found) < verify.PAGE_JOBS:
            return done, differed
        after = found[-1].job_id
        on_progress(verify.Progress(what="jobs", done=done, total=max(about, done)))


async def _shadow(connection: engine.Connection, job_ids: Sequence[str], head: event.Position) -> None:
    states = await past.states(connection, job_ids, head)
    await proof.shadow(connection, job_ids, states.values(), folded_to=head)
