"""What takes long delays nobody else, told by the order of answers and by no clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import ModuleType
from typing import Any

import pytest

from jobledger.ledger import past, walk
from jobledger.model import detail, returnobj
from jobledger.web import reads, submissions
from tests.support import events, ledgers, polling, rest

PODS = [{"name": f"pod-{n}", "role": "worker", "podIP": "10.0.0.1"} for n in range(5000)]
ENVS = [{"name": f"N{n}", "value": "x" * 1000} for n in range(1048)]


class Held:
    """Work that is begun and goes on when it may; on the loop it would hold everybody."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._begun = threading.Event()
        self.go_on = threading.Event()

    def at(self, module: ModuleType, name: str) -> None:
        """Hold a function where its first argument is of the large job."""
        work = getattr(module, name)

        def waiting(given: Any, *others: Any, **named: Any) -> Any:
            if _is_large(given):
                self._begun.set()
                assert self.go_on.wait(60)
            return work(given, *others, **named)

        self._patch.setattr(module, name, waiting)

    async def begun(self) -> None:
        """Return when the work has begun."""
        assert await asyncio.to_thread(self._begun.wait, 60)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    holding = Held(monkeypatch)
    yield holding
    holding.go_on.set()


def _is_large(given: Any) -> bool:
    """Whether it is the large job's: its text, or something that has it."""
    text = given if isinstance(given, str) else given.detail
    return len(text or "") > reads.SMALL_BYTES


async def while_held(held: Held, api: rest.Rest, asked: Coroutine[Any, Any, rest.Answer]) -> rest.Answer:
    """The answer to what takes long, after another was answered in the midst of it."""
    large = asyncio.create_task(asked)
    await held.begun()

    small = await api.job("small")
    undone = not large.done()
    held.go_on.set()

    assert undone
    assert small.object["jobID"] == "small"
    return await large


LARGE = {"jobID": "large", "pods": PODS, "envs": ENVS}
LIST = f"/v4/cwai/jobs?regionID={rest.REGION}&isDesc=false"
JOB = f"/v4/cwai/job/large?regionID={rest.REGION}"


@pytest.mark.parametrize(
    ("module", "name", "target"),
    [
        (returnobj, "build", JOB),
        (returnobj, "build", f"{LIST}&detail=true"),
        (returnobj, "listed", LIST),
        (returnobj, "build", f"{LIST}&detail=true&asOf=1"),
        (returnobj, "listed", f"{LIST}&asOf=1"),
        (past, "recorded_event", f"{LIST}&detail=true&asOf=1"),
        (past, "recorded_event", f"{JOB}&asOf=1"),
        (past, "recorded_event", f"/v4/cwai/job/large/events?regionID={rest.REGION}"),
    ],
)
async def test_job_of_5000_pods_is_read_while_others_are_answered(
    api: rest.Rest, held: Held, module: ModuleType, name: str, target: str
) -> None:
    await api.post(LARGE)
    await api.post({"jobID": "small"})
    await api.post({**LARGE, "comment": "changed since"})
    held.at(module, name)

    shown = (await while_held(held, api, api.get(target))).object

    if "detail" in target:
        shown = shown["results"][0]
    if name == "build":
        assert (len(shown["pods"]), len(shown["envs"])) == (len(PODS), len(ENVS))


@pytest.mark.parametrize(("module", "name"), [(submissions, "read"), (detail, "parse")])
async def test_job_of_5000_pods_is_recorded_while_others_are_answered(
    api: rest.Rest, held: Held, module: ModuleType, name: str
) -> None:
    await api.post({"jobID": "small"})
    held.at(module, name)

    recorded = await while_held(held, api, api.post(LARGE))

    assert recorded.object["position"] == 2
    assert len((await api.job("large")).object["pods"]) == len(PODS)


async def test_large_job_is_not_read_together_with_small_ones(api: rest.Rest) -> None:
    await api.post({"jobID": "large", "envs": ENVS})
    await api.post({"jobID": "small"})

    both = await asyncio.gather(*(api.job(name) for name in ("large", "small", "large")))

    assert [len(each.object["envs"]) for each in both] == [len(ENVS), 0, len(ENVS)]
    assert len(both[0].body) > reads.SMALL_BYTES


async def test_two_lists_of_the_past_are_made_at_a_time_and_others_answered_meanwhile(
    ledger: ledgers.Ledger, api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        await ledger.receipts(events.submission(f"job-{n}", region=rest.REGION))
    go_on = asyncio.Event()
    under_way = 0
    make = walk._page_of

    async def held(*given: Any, **named: Any) -> Any:
        nonlocal under_way
        under_way += 1
        await go_on.wait()
        return await make(*given, **named)

    monkeypatch.setattr(walk, "_page_of", held)
    asked = [
        asyncio.create_task(api.get(f"/v4/cwai/jobs?regionID={rest.REGION}&asOf={at}")) for at in (1, 2, 3)
    ]
    await polling.eventually(lambda: _equal(under_way, 2))

    shown = await api.job("job-4")
    listed = await api.get(f"/v4/cwai/jobs?regionID={rest.REGION}")
    told = await api.get(f"/v4/cwai/job/job-4/events?regionID={rest.REGION}")
    one = await api.get(f"/v4/cwai/job/job-0?regionID={rest.REGION}&asOf=1")
    waiting = (under_way, [each.done() for each in asked])
    go_on.set()

    assert waiting == (2, [False, False, False])
    assert (shown.object["jobID"], one.object["jobID"]) == ("job-4", "job-0")
    assert (listed.object["totalCount"], told.object["currentCount"]) == (5, 1)
    assert [(await each).object["totalCount"] for each in asked] == [1, 2, 3]


def _equal(found: object, wanted: object) -> None:
    assert found == wanted
