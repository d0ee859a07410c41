"""Publishers, readers and subscribers that go on over every fault, and remember all they were told.

What must hold afterwards: what was acknowledged is in the log where it was said to be; every subscriber got
the log, each event once, in order; every REST answer was an envelope.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg
import grpc
import grpc.aio

from jobledger import errors
from jobledger.client import connection, publishing
from jobledger.model import event
from tests.support import clusterd, events, polling

ANSWER_SECONDS = 4.0
"""How long a client waits for an answer before it asks again."""

PAUSE_SECONDS = 0.05
"""Between two tries, and between two events of a publisher: about twenty a second each."""

KNOWN_FAILURES = {"Cwai.Api.InternalServerError"}
"""What may be answered to a well-formed request for a job that is there."""


@dataclass(slots=True)
class Follower:
    """A stock client that resumes by ``last-seen-uuid`` whenever its stream ends."""

    address: str
    after: str
    lists: bool = False
    client_id: str = field(default_factory=lambda: str(uuid4()))
    uuids: list[str] = field(default_factory=list[str])
    ends: Counter[str] = field(default_factory=Counter[str])

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            try:
                await self._connected()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                self.ends[str(error.code()) if isinstance(error, grpc.aio.AioRpcError) else "?"] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _connected(self) -> None:
        async with clusterd.subscriber(self.address, own_connection=True) as client:
            last = self.uuids[-1] if self.uuids else self.after
            where = {"last_seen_uuid": last} if last else {"start_from": "earliest"}
            call = client.stream(lists=self.lists, client_id=self.client_id, **where)
            while (message := await call.read()) is not clusterd.EOF:
                signals = message.jobSummarySignals if self.lists else [message]
                self.uuids += [signal.uuid for signal in signals]
            raise AssertionError(await clusterd.ended(call))


@dataclass(slots=True)
class Load:
    """What runs against one gRPC and one HTTP address."""

    grpc: str
    url: str
    followers: list[Follower] = field(default_factory=list[Follower])
    acknowledged: dict[str, int] = field(default_factory=dict[str, int])
    """uuid → position, as the receipts say."""
    jobs: list[str] = field(default_factory=list[str])
    """Ids of jobs whose add was acknowledged."""
    answers: Counter[str] = field(default_factory=Counter[str])
    """REST answers by their code, and what came instead of one."""
    refusals: Counter[str] = field(default_factory=Counter[str])
    stopping: bool = False

    async def append(self, submission: event.Submission) -> event.Receipt:
        """Record an event by gRPC, again and again under the same uuid until it is acknowledged."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    [outcome] = await publishing.append(connection.Address.parse(self.grpc), [submission])
            except (errors.ServerUnreachable, errors.ServerRefused, TimeoutError) as error:
                # A database that is away is told as UNAVAILABLE, which the client calls unreachable.
                self.refusals[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            assert isinstance(outcome, event.Receipt), outcome
            self._keep(str(outcome.uuid), outcome.position)
            self.jobs.append(submission.signal.job_id)
            return outcome

    async def post(self, session: aiohttp.ClientSession, job_id: str) -> None:
        """Record an event by REST, the same way."""
        body = {"jobID": job_id, "name": "train", "status": "Running", "uuid": str(uuid4())}
        while True:
            answer = await self.ask(session, "POST", "", json=body)
            if answer is not None and answer["statusCode"] == 800:
                recorded = answer["returnObj"]
                self._keep(recorded["uuid"], recorded["position"])
                self.jobs.append(job_id)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def ask(
        self, session: aiohttp.ClientSession, method: str, path: str, **more: Any
    ) -> dict[str, Any] | None:
        """One request; the envelope, or None if no answer came. Anything but an envelope is a failure."""
        url = f"{self.url}/v4/cwai/job{path}?regionID=default"
        try:
            async with session.request(method, url, **more) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.answers[type(error).__name__] += 1
            return None
        assert response.status == 200, (response.status, text)
        answer: dict[str, Any] = json.loads(text)
        assert answer["statusCode"] in {800, 900}, answer
        code = answer.get("errorCode", "800")
        self.answers[code] += 1
        assert code == "800" or code in KNOWN_FAILURES, answer
        return answer

    async def wait_until_back(self, *, within_seconds: float) -> float:
        """Append, read and receive one more event at every follower; how long that took."""
        started = time.monotonic()
        async with asyncio.timeout(within_seconds), _session(keep=False) as session:
            receipt = await self.append(events.submission(job := f"probe-{uuid4()}"))
            await polling.eventually(lambda: self._shown(session, job), within_seconds)
            await polling.eventually(lambda: self._all_got(str(receipt.uuid)), within_seconds)
        return time.monotonic() - started

    async def steady(self, count: int = 40) -> None:
        """Wait until that many more events were acknowledged."""
        enough = len(self.acknowledged) + count

        def grown() -> None:
            assert len(self.acknowledged) >= enough, f"{len(self.acknowledged)} of {enough}"

        await polling.eventually(grown, 30)

    def check(self, log: Sequence[str], *, after: int) -> None:
        """Hold everything that was told against the log's uuids from the position after ``after`` on."""
        places = {uuid: position for position, uuid in enumerate(log, start=after + 1)}
        lost = {uuid for uuid, position in self.acknowledged.items() if places.get(uuid) != position}
        assert not lost, f"acknowledged, and not there in the log: {lost}"
        for follower in self.followers:
            assert follower.uuids == list(log), _difference(follower.uuids, log)

    async def _shown(self, session: aiohttp.ClientSession, job: str) -> None:
        answer = await self.ask(session, "GET", f"/{job}")
        assert answer is not None, f"no answer for {job}"
        assert answer["statusCode"] == 800, answer

    def _keep(self, uuid: str, position: int) -> None:
        assert self.acknowledged.setdefault(uuid, position) == position

    def _all_got(self, uuid: str) -> None:
        behind = [follower for follower in self.followers if uuid not in follower.uuids[-500:]]
        assert not behind, f"{len(behind)} followers lack {uuid}"

    async def publish_by_grpc(self) -> None:
        """Jobs that start and run, one event after the other."""
        for number in itertools.count():
            if self.stopping:
                return
            job_id = f"job-{id(asyncio.current_task())}-{number // 2}"
            status = ("pending", "running")[number % 2]
            await self.append(events.submission(job_id, job_status=status))
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish_by_rest(self) -> None:
        """The same, described."""
        async with _session(keep=True) as session:
            for number in itertools.count():
                if self.stopping:
                    return
                await self.post(session, f"rest-{uuid4()}-{number}")
                await asyncio.sleep(PAUSE_SECONDS)

    async def read_by_rest(self) -> None:
        """The newest job that was acknowledged must be there, whichever replica is asked."""
        async with _session(keep=False) as session:
            while not self.stopping:
                if self.jobs:
                    await self.ask(session, "GET", f"/{self.jobs[-1]}")
                await asyncio.sleep(PAUSE_SECONDS)


def log_of(dsn: str) -> Callable[[], Awaitable[Sequence[str]]]:
    """What reads the uuids of a database's log, in order, on a connection of its own each time."""

    async def uuids() -> Sequence[str]:
        connected = await asyncpg.connect(dsn)
        try:
            rows = await connected.fetch("select uuid::text from job_events order by position")
        finally:
            await connected.close()
        return [row["uuid"] for row in rows]

    return uuids


@contextlib.asynccontextmanager
async def running(
    grpc_address: str, url: str, log: Callable[[], Awaitable[Sequence[str]]]
) -> AsyncGenerator[Load]:
    """Load for as long as the block lasts; then everything is held against the log.

    ``log`` reads the uuids of the whole log, in position order.
    """
    before = await log()
    last = before[-1] if before else ""
    followers = [Follower(grpc_address, last, lists=bool(number % 2)) for number in range(4)]
    load = Load(grpc_address, url, followers=followers)
    work: list[Coroutine[Any, Any, None]] = [
        load.publish_by_grpc(),
        load.publish_by_grpc(),
        load.publish_by_rest(),
        load.read_by_rest(),
    ]
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(follower.run()) for follower in followers]
        working = [group.create_task(each) for each in work]
        await load.steady()
        yield load
        load.stopping = True
        async with asyncio.timeout(30):
            await asyncio.wait(working)
        uuids = (await log())[len(before) :]
        with contextlib.suppress(AssertionError):  # which one lacks what is told below
            await polling.eventually(lambda: load.check(uuids, after=len(before)), 10)
        load.check(uuids, after=len(before))
        for task in following:
            task.cancel()


def _session(*, keep: bool) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(force_close=not keep)
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS), connector=connector)


def _difference(got: Sequence[str], wanted: Sequence[str]) -> str:
    for index, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if one != other:
            known = "repeated or out of order" if one in wanted else "not in the log"
            return f"at place {index}: {one}, {known}, instead of {other}"
    return f"{len(got)} of {len(wanted)} events arrived"
