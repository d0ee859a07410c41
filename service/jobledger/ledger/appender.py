"""Group commit: what queues while one transaction commits is the next one's batch.

One appender a process, one batch at a time. A caller that gives up leaves its events in the queue: they
are recorded whole or, if the process dies first, not at all; a retry with the same uuids finds out.

::

    append() ──▶ queue ──▶ batch ──▶ transaction ──┬─ committed ──▶ receipts, wake
                (bounded)                          ├─ refused by the data ──▶ halved, down to the one at fault
                                                   ├─ Postgres away ──▶ DatabaseUnavailable
                                                   └─ COMMIT's outcome unknown ──▶ lock, look the uuids up
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from jobledger import errors
from jobledger.ledger import admission, ahead, batch, beside, fairqueue
from jobledger.model import completion, event
from jobledger.model.principal import Principal
from jobledger.store import engine, eventlog

ANSWER_SECONDS: Final = 0.01
"""How long callers wait for their answer after the commit while the next batch is worked out."""

SENT_SECONDS: Final = 0.001
"""Between two looks whether Postgres has taken all of a batch: while callers are told nothing is sent."""

SENT_LOOKS: Final = 20
"""So many; a Postgres that takes no more keeps nobody waiting for long whose events are recorded."""

FEW_ANSWERS: Final = 8
"""So few callers are told at once: that keeps no batch waiting."""

RESOLVE_SECONDS: Final = 20.0
"""How long to find out what became of a COMMIT whose answer was lost."""

RESOLVE_PAUSE_SECONDS: Final = 0.2

_Result: TypeAlias = batch.Outcome | errors.Unavailable
"""What becomes of one event, or that nothing did."""

_log = logging.getLogger(__name__)


class _OutcomeUnknown(Exception):
    """COMMIT was sent and its answer lost."""

    def __init__(self, sent: batch.Batch) -> None:
        super().__init__()
        self.sent = sent


class Appender:
    """The one way into the log."""

    def __init__(
        self,
        *,
        dsn: str,
        pool: engine.ReadPool,
        admission: admission.Admission,
        rules: batch.Rules,
        queue_events: int,
        queue_bytes: int,
        on_commit: Callable[[batch.Written], None],
    ) -> None:
        self._dsn = dsn
        self._admission = admission
        self._rules = rules
        self._on_commit = on_commit
        self._queue = fairqueue.FairQueue(limit_events=queue_events, limit_bytes=queue_bytes)
        self._ahead = ahead.Ahead(self._queue, pool, rules)
        self._closing = False
        self._connection: engine.Own | None = None
        self._answers: list[tuple[fairqueue.Waiting, list[_Result]]] = []
        self._answering: asyncio.Handle | None = None
        self.events = 0
        """Events that it committed."""

        self.batches = 0
        """Transactions in which it did so."""

    @property
    def queued_events(self) -> int:
        """Events that wait."""
        return self._queue.events + sum(len(waiting.drafts) for waiting in self._ahead.taken)

    @property
    def queued_bytes(self) -> int:
        """About what they take."""
        return self._queue.size_bytes + sum(waiting.size_bytes for waiting in self._ahead.taken)

    async def append(
        self, submissions: Sequence[event.Submission | errors.EventError], principal: Principal
    ) -> list[batch.Outcome]:
        """Record events; the outcomes come in their order, after all of them are durable and in the view.

        An event that could not even be decoded comes as its error and is handed through. Safe to cancel:
        the events are then recorded or not, each batch wholly.

        Raises:
            errors.Overloaded: Too much is waiting; nothing was recorded.
            errors.DatabaseUnavailable: Postgres is away; nothing was recorded, unless the text says that the
                outcome is unknown. Retry with the same uuids.
            errors.ShuttingDown: This process goes away; nothing was recorded.
        """
        admitted = await self._admitted(submissions, principal)
        del submissions  # the queue counts what drafts take, and nothing else
        drafts = [draft for draft in admitted if isinstance(draft, completion.Draft)]
        outcomes = iter(await self._enqueue(drafts, principal.publisher) if drafts else [])
        return [next(outcomes) if isinstance(each, completion.Draft) else each for each in admitted]

    async def _admitted(
        self, submissions: Sequence[event.Submission | errors.EventError], principal: Principal
    ) -> list[completion.Draft | errors.EventError]:
        described = sum(
            [len(each.detail or "") for each in submissions if isinstance(each, event.Submission)]
        )
        return await beside.the_loop(
            lambda: [self._admit(each, principal) for each in submissions], described
        )

    def _admit(
        self, submission: event.Submission | errors.EventError, principal: Principal
    ) -> completion.Draft | errors.EventError:
        if isinstance(submission, errors.EventError):
            return submission
        try:
            return self._admission.admit(submission, publisher=principal.publisher)
        except errors.EventError as error:
            return error

    async def _enqueue(self, drafts: Sequence[completion.Draft], publisher: str) -> list[batch.Outcome]:
        if self._closing:
            raise errors.ShuttingDown
        size = sum(draft.size_bytes for draft in drafts)
        waiting = fairqueue.Waiting(publisher, drafts, size, asyncio.get_running_loop().create_future())
        self._queue.put(waiting)
        return await waiting.done

    async def run(self) -> None:
        """Write batches until :meth:`close` and an empty queue; wakes on arrival."""
        try:
            while True:
                while (following := await self._ahead.take()).requests:
                    await self._write(following)
                if self._closing:
                    return
                await self._queue.holds(1)
        finally:
            self._answer()
            self._drop_connection()
            for waiting in (*self._ahead.emptied(), *self._queue.emptied()):
                waiting.fail(errors.ShuttingDown())

    def close(self) -> None:
        """Take no more; :meth:`run` ends when what is queued is recorded."""
        self._closing = True
        self._queue.wake()

    async def _write(self, following: ahead.Following) -> None:
        taken = following.requests
        drafts = [draft for waiting in taken for draft in waiting.drafts]
        try:
            outcomes = iter(await self._record(drafts, following.batch))
        except Exception:  # noqa: BLE001 - the outermost loop of appending
            # A bug. Whoever waits must not wait for ever, and whoever comes next must not suffer from it.
            _log.exception("a batch of %d events could not be recorded", len(drafts))
            self._drop_connection()
            for waiting in taken:
                waiting.fail(errors.Unavailable("recording failed; retry with the same uuids"))
        except BaseException:
            for waiting in taken:
                waiting.fail(errors.ShuttingDown())
            raise
        else:
            self._answers += ((waiting, [next(outcomes) for _ in waiting.drafts]) for waiting in taken)
            if not self.queued_events or len(self._answers) <= FEW_ANSWERS:
                self._answer()
            elif self._answering is None:
                self._answering = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer)

    def _answer(self) -> None:
        """Tell the callers whose batch is recorded.

        They send, decode and check what comes next, all in this thread: while Postgres writes the next batch
        that costs no time, before it does. So they are told when it has begun to, or after a moment.
        """
        if self._answering is not None:
            self._answering.cancel()
            self._answering = None
        answers, self._answers = self._answers, []
        for waiting, results in answers:
            _settle(waiting, results)

    def _answer_during_the_write(self, connection: engine.Own) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._answering = asyncio.get_running_loop().call_soon(self._answer_when_sent, connection)

    def _answer_when_sent(self, connection: engine.Own, looks: int = SENT_LOOKS) -> None:
        """Tell the callers once Postgres has all of the batch that is being sent, or after a moment."""
        if looks and engine.unsent_bytes(connection):
            self._answering = asyncio.get_running_loop().call_later(
                SENT_SECONDS, self._answer_when_sent, connection, looks - 1
            )
        else:
            self._answer()

    async def _record(
        self, drafts: Sequence[completion.Draft], ready: batch.Batch | None = None
    ) -> list[_Result]:
        """Record drafts; one that cannot be fails alone, found by halving.

        That is one with data that the database's rules refuse, or of a job whose row in the view was spoiled.
        Should Postgres go away meanwhile, those that are recorded stay so.
        """
        try:
            return [*await self._transact(drafts, ready)]
        except errors.Unavailable as error:
            return [error] * len(drafts)
        except (engine.DataRefused, msgspec.MsgspecError) as error:
            if len(drafts) > 1:
                middle = len(drafts) // 2
                return await self._record(drafts[:middle]) + await self._record(drafts[middle:])
            [draft] = drafts
            if isinstance(error, engine.DataRefused):
                what = "Postgres refuses its data"
            else:
                what = "the view's row of its job was spoiled, which `jobledger rebuild` mends"
            _log.error(
                "event %s of job %r is not recorded: %s: %s", draft.uuid, draft.signal.job_id, what, error
            )
            reason = f"{draft.uuid} was not recorded: {what}; the service's log says more"
            return [errors.EventError(field="event", reason=reason)]

    async def _transact(
        self, drafts: Sequence[completion.Draft], ready: batch.Batch | None
    ) -> list[batch.Outcome]:
        try:
            recorded = await self._attempt_afresh(drafts, ready)
        except _OutcomeUnknown as lost:
            recorded = await self._resolve(drafts, lost)
        self.batches += 1
        self.events += sum(
            isinstance(each, event.Receipt) and not each.duplicate for each in recorded.outcomes
        )
        self._on_commit(recorded.written)
        return recorded.outcomes

    async def _attempt_afresh(
        self, drafts: Sequence[completion.Draft], ready: batch.Batch | None
    ) -> batch.Batch:
        """One transaction; a second one if the connection had died while it was idle."""
        reused = self._connection
        try:
            return await self._attempt(drafts, ready)
        except errors.AppendLockHeld:
            raise
        except errors.DatabaseUnavailable:
            if reused is None:
                raise
            return await self._attempt(drafts)

    async def _attempt(
        self, drafts: Sequence[completion.Draft], ready: batch.Batch | None = None
    ) -> batch.Batch:
        connection = await self._connected()
        recorded: batch.Batch | None = None
        try:
            with engine.translated():
                async with _undone_if_it_fails(connection):
                    await eventlog.begin(connection)
                    worked_out = await self._worked_out(connection, drafts, ready)
                    self._answer_during_the_write(connection)
                    self._ahead.follow(worked_out)
                    await worked_out.write(connection)
                recorded = worked_out
                await eventlog.commit(connection)
        except errors.DatabaseUnavailable as error:
            self._drop_connection()
            if recorded is None:
                raise
            raise _OutcomeUnknown(recorded) from error
        return recorded

    async def _worked_out(
        self, connection: engine.Own, drafts: Sequence[completion.Draft], ready: batch.Batch | None
    ) -> batch.Batch:
        """The drafts worked out; anew, if what was worked out before the lock does not follow any more."""
        if ready is not None and await ready.extend(connection, drafts[len(ready.outcomes) :]):
            return ready
        anew = batch.Batch(self._rules)
        await anew.extend(connection, drafts)
        return anew

    async def _resolve(self, drafts: Sequence[completion.Draft], lost: _OutcomeUnknown) -> batch.Batch:
        """What became of a COMMIT whose answer was lost.

        Whoever holds the append lock knows that the old transaction has ended: only then is a uuid that is
        not there one that will not come. Recording the batch again asks exactly that, and in the same
        breath appends what is not there.
        """
        _log.warning(
            "the connection was lost during COMMIT; finding out what became of it: %s", lost.__cause__
        )
        sent = [lost.sent]
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                while True:
                    try:
                        again = await self._attempt(drafts)
                        again.outcomes = await self._first_answer(sent) or again.outcomes
                    except _OutcomeUnknown as unknown:
                        sent.append(unknown.sent)
                    except errors.DatabaseUnavailable:
                        pass
                    else:
                        return again
                    await asyncio.sleep(RESOLVE_PAUSE_SECONDS)
        except TimeoutError:
            message = (
                "Postgres went away during COMMIT and the outcome is unknown; retry with the same uuids: "
                "what was recorded is then answered as a duplicate"
            )
            raise errors.DatabaseUnavailable(message) from lost

    async def _first_answer(self, sent: Sequence[batch.Batch]) -> list[batch.Outcome] | None:
        """The outcomes of that batch of which the log holds the rows: they are no duplicates, though there.

        The hash tells: another process may have recorded the same uuids, at the same positions even.
        """
        connection = await self._connected()
        with engine.translated():
            for each in sent:
                end = each.end
                if each.written.rows and await eventlog.hash_at(connection, end.position) == end.hash:
                    return each.outcomes
        return None

    async def _connected(self) -> engine.Own:
        if self._connection is None or self._connection.is_closed():
            self._connection = await engine.connect_for_writing(self._dsn)
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


@contextlib.asynccontextmanager
async def _undone_if_it_fails(connection: engine.Own) -> AsyncGenerator[None]:
    """Roll back what began in the block; if even that fails the connection is lost, and all of it with it."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(errors.DatabaseUnavailable), engine.translated():
            await eventlog.rollback(connection)
        raise


def _settle(waiting: fairqueue.Waiting, results: Sequence[_Result]) -> None:
    """Tell the caller; one whose request is in by half sends it again, and hears of duplicates."""
    outcomes: list[batch.Outcome] = []
    for result in results:
        if isinstance(result, errors.Unavailable):
            waiting.fail(result)
            return
        outcomes.append(result)
    waiting.succeed(outcomes)
