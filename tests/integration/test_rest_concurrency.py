"""What takes long delays nobody else, told by the order of answers and by no clock."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jobledger.ledger import walk
from jobledger.model import returnobj
from jobledger.web import reads
from tests.support import events, ledgers, polling, rest

PODS = [{"name": f"pod-{n}", "role": "worker", "podIP": "10.0.0.1"} for n in range(5000)]
ENVS = [{"name": f"N{n}", "value": "x" * 1000} for n in range(1048)]


async def test_job_of_5000_pods_is_made_while_others_are_answered(
    api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.post({"jobID": "large", "pods": PODS, "envs": ENVS})
    await api.post({"jobID": "small"})
    begun, go_on = threading.Event(), threading.Event()
    build = returnobj.build

    def held(folded: Any, *given: Any) -> Any:
        if folded.job_id == "large":
            begun.set()
            assert go_on.wait(60)
        return build(folded, *given)

    monkeypatch.setattr(returnobj, "build", held)
    large = asyncio.create_task(api.job("large"))
    try:
        await asyncio.to_thread(begun.wait, 60)
        small = await api.job("small")
        undone = not large.done()
    finally:
        go_on.set()

    assert undone
    assert small.object["jobID"] == "small"
    assert len((await large).object["pods"]) == 5000
    assert len((await large).object["envs"]) == len(ENVS)


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

    job = await api.job("job-4")
    listed = await api.get(f"/v4/cwai/jobs?regionID={rest.REGION}")
    told = await api.get(f"/v4/cwai/job/job-4/events?regionID={rest.REGION}")
    one = await api.get(f"/v4/cwai/job/job-0?regionID={rest.REGION}&asOf=1")
    waiting = (under_way, [each.done() for each in asked])
    go_on.set()

    assert waiting == (2, [False, False, False])
    assert (job.object["jobID"], one.object["jobID"]) == ("job-4", "job-0")
    assert (listed.object["totalCount"], told.object["currentCount"]) == (5, 1)
    assert [(await each).object["totalCount"] for each in asked] == [1, 2, 3]


def _equal(found: object, wanted: object) -> None:
    assert found == wanted
