"""Two replicas on one Postgres, whatever is done to them, against a model of a few lines.

The model: the log is a list of uuids; a subscriber is owed what it was told, and then the log after that; a
job is the fold of its events. hypothesis chooses what happens, the same in each run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from jobledger import app, errors
from jobledger.ledger import batch
from jobledger.model import event
from tests.integration import test_verify
from tests.support import clusterd, events, following, polling, postgres, services

T = TypeVar("T")

REPLICAS = 2
SECONDS = 60.0
"""How long anything may take; on a quiet machine nothing takes one."""

ROLLED_BACK = "rolled-back"
"""A job with this name makes Postgres fail the transaction that records it, as if the lock were taken."""

FAULT = f"""
    create function fail() returns trigger language plpgsql as $$ begin
        raise exception 'as asked' using errcode = 'lock_not_available';
    end $$;
    create trigger fails after insert on job_events for each row
        when (new.job_name = '{ROLLED_BACK}') execute function fail();
"""

replicas = st.integers(0, REPLICAS - 1)
clients = st.sampled_from(("client-a", "client-b", "client-c"))
jobs = st.sampled_from(("job-1", "job-2", "job-3"))
states = st.sampled_from(("pending", "running", "complete"))
submissions = st.one_of(
    st.builds(events.submission, jobs, job_status=states), st.builds(events.deletion, jobs)
)
starts = st.sampled_from(("earliest", "latest", "snapshot"))
batches = st.lists(submissions, min_size=1, max_size=4)


@dataclass(slots=True)
class Model:
    """What must be."""

    log: list[event.Submission] = field(default_factory=list[event.Submission])
    jobs: dict[str, tuple[str, int, int, bool]] = field(default_factory=dict[str, tuple[str, int, int, bool]])
    """id → status, position of its last add, of its last event, alive."""

    @property
    def uuids(self) -> list[str]:
        return [each.signal.uuid for each in self.log]

    @property
    def snapshot(self) -> list[str]:
        """What a subscriber that takes a snapshot is told first."""
        adds = sorted(add for _, add, _, alive in self.jobs.values() if alive)
        return [self.log[add - 1].signal.uuid for add in adds]

    def record(self, submission: event.Submission) -> None:
        """One more event."""
        self.log.append(submission)
        signal, position = submission.signal, len(self.log)
        known = self.jobs.get(signal.job_id)
        if signal.operator == "add":
            self.jobs[signal.job_id] = (signal.job_status, position, position, True)
        elif known is not None and known[3]:
            self.jobs[signal.job_id] = (known[0], known[1], position, False)


class Replica:
    """A service, in a task of its own so that any rule can stop it."""

    def __init__(self, database: str) -> None:
        self._stop = asyncio.Event()
        self._started: asyncio.Future[app.Service] = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(database))

    async def _serve(self, database: str) -> None:
        async with services.running(database) as service:
            self._started.set_result(service)
            await self._stop.wait()

    async def service(self) -> app.Service:
        """The service, once it runs."""
        await asyncio.wait([self._started, self._serving], return_when=asyncio.FIRST_COMPLETED)
        return self._started.result()

    async def stop(self) -> None:
        """Shut down in order."""
        self._stop.set()
        await self._serving


class Ledger(stateful.RuleBasedStateMachine):
    """All of it happens on one loop, which runs while a rule waits and stands still between rules."""

    def __init__(self, server: postgres.Postgres) -> None:
        super().__init__()
        self.model = Model()
        self.subscribers: dict[str, following.Subscriber] = {}
        self.unhandled: list[dict[str, Any]] = []
        self.stack = contextlib.AsyncExitStack()
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: self.unhandled.append(context))
        self.run(self._begin(server))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, SECONDS))

    async def _begin(self, server: postgres.Postgres) -> None:
        self.database = await self.stack.enter_async_context(server.database())
        self.connection = await asyncpg.connect(self.database)
        self.stack.push_async_callback(self.connection.close)
        await self.connection.execute(FAULT)
        self.replicas = [Replica(self.database) for _ in range(REPLICAS)]
        for replica in self.replicas:
            await replica.service()

    @stateful.rule(given=batches, replica=replicas)
    def append(self, given: list[event.Submission], replica: int) -> None:
        self._note(given, self.run(self._append(replica, given)))

    @stateful.rule(one=batches, other=batches)
    def append_at_both_at_once(self, one: list[event.Submission], other: list[event.Submission]) -> None:
        async def both() -> tuple[list[batch.Outcome], list[batch.Outcome]]:
            return await asyncio.gather(self._append(0, one), self._append(1, other))

        first, second = self.run(both())
        self._note([*one, *other], [*first, *second])

    @stateful.rule(given=batches, replica=replicas)
    def append_beside_one_that_will_not_do(self, given: list[event.Submission], replica: int) -> None:
        refused, *outcomes = self.run(self._append(replica, [events.submission(""), *given]))
        assert isinstance(refused, errors.InvalidEvent)
        self._note(given, outcomes)

    @stateful.rule(given=batches, replica=replicas)
    def append_what_is_rolled_back(self, given: list[event.Submission], replica: int) -> None:
        poisoned = [*given, events.submission("job-1", job_name=ROLLED_BACK)]

        async def once() -> None:
            service = await self.replicas[replica].service()
            await service.appender.append(poisoned, events.PUBLISHER)

        with pytest.raises(errors.DatabaseUnavailable):
            self.run(once())

    @stateful.precondition(lambda self: bool(self.model.log))
    @stateful.rule(nth=st.integers(0, 1_000), replica=replicas)
    def append_again(self, nth: int, replica: int) -> None:
        place = nth % len(self.model.log)
        [outcome] = self.run(self._append(replica, [self.model.log[place]]))
        assert isinstance(outcome, event.Receipt)
        assert (outcome.position, outcome.duplicate) == (place + 1, True)

    @stateful.rule(client=clients, replica=replicas, start=starts, lists=st.booleans())
    def subscribe(self, client: str, replica: int, start: str, lists: bool) -> None:  # noqa: FBT001
        """Anew; the stream that the client may have is taken over."""
        earlier = self.subscribers.get(client)
        self.subscribers[client] = subscriber = following.Subscriber(
            client,
            after=0 if start == "earliest" else len(self.model.log),
            snapshot=self.model.snapshot if start == "snapshot" else [],
        )
        self.run(self._connect(subscriber, replica, lists=lists, start_from=start))
        if earlier is not None and earlier.connection is not None:
            self.run(_ended(earlier.connection, "CANCELLED", "takeover"))

    @stateful.rule(client=clients, replica=replicas, lists=st.booleans())
    def come_back(self, client: str, replica: int, lists: bool) -> None:  # noqa: FBT001
        """After the last uuid that it was told, whether its stream was cut or still runs."""
        subscriber = self.subscribers.get(client)
        if subscriber is not None:
            earlier = subscriber.connection
            where = subscriber.resume(self.model.uuids, self.model.snapshot)
            self.run(self._connect(subscriber, replica, lists=lists, **where))
            if earlier is not None:
                self.run(_ended(earlier, "CANCELLED", "takeover"))

    @stateful.rule(client=clients)
    def disconnect(self, client: str) -> None:
        subscriber = self.subscribers.get(client)
        if subscriber is not None and subscriber.connection is not None:
            self.run(subscriber.connection.close())
            subscriber.before, subscriber.connection = subscriber.told, None

    @stateful.rule(replica=replicas)
    def restart(self, replica: int) -> None:
        """Streams of that replica are told; their clients come back at the other."""

        async def restarted() -> None:
            await self.replicas[replica].stop()
            self.replicas[replica] = Replica(self.database)
            await self.replicas[replica].service()

        self.run(restarted())
        for subscriber in self.subscribers.values():
            cut = subscriber.connection
            if cut is not None and cut.replica == replica:
                self.run(_ended(cut, "UNAVAILABLE", "shutdown"))
                where = subscriber.resume(self.model.uuids, self.model.snapshot)
                self.run(self._connect(subscriber, 1 - replica, lists=cut.lists, **where))

    @stateful.rule()
    def lose_every_session(self) -> None:
        """Streams go on; nobody is told."""
        self.run(
            self.connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        )

    @stateful.rule()
    def settle(self) -> None:
        """Everybody has been told exactly what was due, and the view is the fold."""

        def all_told() -> None:
            log = self.model.uuids
            for subscriber in self.subscribers.values():
                if subscriber.connection is not None:
                    assert subscriber.told == subscriber.due(log), subscriber.client_id

        async def check() -> None:
            await polling.eventually(all_told, SECONDS / 2)
            stored = await self.connection.fetch("select uuid::text from job_events order by position")
            assert [row["uuid"] for row in stored] == self.model.uuids
            rows = await self.connection.fetch(
                "select job_id, job_status, signal_positions[1], last_position, deleted_at is null from jobs"
            )
            assert {row[0]: tuple(row)[1:] for row in rows} == self.model.jobs

        self.run(check())

    def teardown(self) -> None:
        try:
            self.settle()
            self.run(self._end())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
        assert not self.unhandled, self.unhandled

    async def _end(self) -> None:
        for subscriber in self.subscribers.values():
            if subscriber.connection is not None:
                await subscriber.connection.close()
        for replica in self.replicas:
            await replica.stop()
        report = await test_verify.verified(self.database)
        assert (report.finding, report.events) == (None, len(self.model.log))
        await self.stack.aclose()

    async def _append(self, replica: int, given: Sequence[event.Submission]) -> list[batch.Outcome]:
        """As a publisher does: again, with the same uuids, until it is answered."""
        service = await self.replicas[replica].service()
        while True:
            with contextlib.suppress(errors.DatabaseUnavailable):
                return await service.appender.append(given, events.PUBLISHER)
            await asyncio.sleep(polling.POLL_SECONDS)

    def _note(self, given: Sequence[event.Submission], outcomes: Sequence[batch.Outcome]) -> None:
        """Write down what was recorded; positions go on without a gap."""
        receipts = [each for each in outcomes if isinstance(each, event.Receipt)]
        assert len(receipts) == len(given), outcomes
        for receipt, submission in sorted(
            zip(receipts, given, strict=True), key=lambda pair: pair[0].position
        ):
            assert str(receipt.uuid) == submission.signal.uuid
            self.model.record(submission)
            assert receipt.position == len(self.model.log)

    async def _connect(
        self, subscriber: following.Subscriber, replica: int, *, lists: bool, **where: str
    ) -> None:
        """Open a stream; again while it is refused because Postgres is away."""
        service = await self.replicas[replica].service()
        client = clusterd.Subscriber(services.grpc_address(service), own_connection=True)
        while True:
            call = client.stream(client_id=subscriber.client_id, lists=lists, **where)
            told = await clusterd.initial(call)
            if "start-position" in told:
                break
            end = await clusterd.ended(call)
            assert end.status.name == "UNAVAILABLE", end
        assert int(told["start-position"]) == subscriber.after
        subscriber.connection = following.Connection(replica, client, call, lists)


async def _ended(connection: following.Connection, status: str, reason: str) -> None:
    end = await connection.reading
    assert end is not None
    assert (end.status.name, end.trailers["ledger-reason"]) == (status, reason)
    await connection.client.close()


def test_whatever_happens_the_log_the_streams_and_the_view_agree(postgres: postgres.Postgres) -> None:
    class OnThisServer(Ledger):
        def __init__(self) -> None:
            super().__init__(postgres)

    stateful.run_state_machine_as_test(
        OnThisServer,
        settings=hypothesis.settings(
            max_examples=int(os.environ.get("JOBLEDGER_TEST_MACHINES", "6")),
            stateful_step_count=30,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=(hypothesis.HealthCheck.too_slow,),
            phases=(hypothesis.Phase.generate,),
        ),
    )
