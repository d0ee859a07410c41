from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from jobledger import errors
from jobledger.ledger import admission, fairqueue
from jobledger.model import completion
from tests.support import events

DOOR = admission.Admission(zone=ZoneInfo("UTC"), detail_limit_bytes=1 << 20)


def draft(publisher: str) -> completion.Draft:
    return DOOR.admit(events.submission(), publisher=publisher)


def waiting(publisher: str, count: int = 1, *, size_bytes: int = 10) -> fairqueue.Waiting:
    drafts = [draft(publisher) for _ in range(count)]
    return fairqueue.Waiting(publisher, drafts, size_bytes, asyncio.get_running_loop().create_future())


def queue(*, events: int = 100, size_bytes: int = 10_000) -> fairqueue.FairQueue:
    return fairqueue.FairQueue(limit_events=events, limit_bytes=size_bytes)


def uuids(requests: Sequence[fairqueue.Waiting]) -> list[UUID]:
    return [each.uuid for request in requests for each in request.drafts]


async def test_publishers_take_turns_and_each_keeps_its_order() -> None:
    queued = queue()
    many = [waiting("many") for _ in range(3)]
    few = [waiting("few") for _ in range(2)]
    for each in (*many, *few):
        queued.put(each)

    taken = queued.take(most_events=4, most_bytes=1_000)
    rest = queued.take(most_events=4, most_bytes=1_000)

    assert uuids(taken) == uuids([many[0], few[0], many[1], few[1]])
    assert uuids(rest) == uuids([many[2]])
    assert queued.take(most_events=4, most_bytes=1_000) == []


@pytest.mark.parametrize(("most_events", "most_bytes"), [(5, 1_000), (100, 25)])
async def test_a_batch_stays_within_both_bounds_but_takes_one_request_of_any_size(
    most_events: int, most_bytes: int
) -> None:
    queued = queue()
    for count in (2, 3, 50):
        queued.put(waiting("one", count))

    taken = [
        [len(each.drafts) for each in queued.take(most_events=most_events, most_bytes=most_bytes)]
        for _ in range(2)
    ]

    assert taken == [[2, 3], [50]]


@pytest.mark.parametrize(
    ("limits", "size_bytes"), [({"events": 10}, 1), ({"size_bytes": 100}, 10)], ids=["events", "bytes"]
)
async def test_one_publisher_fills_four_fifths_and_another_finds_room(
    limits: dict[str, int], size_bytes: int
) -> None:
    queued = queue(**limits)
    for _ in range(8):
        queued.put(waiting("greedy", size_bytes=size_bytes))

    with pytest.raises(errors.Overloaded, match="8 of them from greedy"):
        queued.put(waiting("greedy", size_bytes=size_bytes))
    queued.put(waiting("modest", size_bytes=size_bytes))

    assert (queued.events, queued.size_bytes) == (9, 9 * size_bytes)


async def test_an_empty_queue_takes_a_request_of_any_size() -> None:
    queued = queue(events=10, size_bytes=10)

    queued.put(waiting("large", 50, size_bytes=1_000))
    with pytest.raises(errors.Overloaded):
        queued.put(waiting("small"))

    assert len(list(queued.emptied())) == 1
    queued.put(waiting("small"))


async def test_who_waits_for_events_hears_of_the_one_that_makes_them_enough() -> None:
    queued = queue()
    enough = asyncio.create_task(queued.holds(3))
    queued.put(waiting("a"))
    queued.put(waiting("b"))
    await asyncio.sleep(0)
    assert not enough.done()

    queued.put(waiting("c"))

    await asyncio.wait_for(enough, 60)


async def test_events_that_wait_already_are_not_waited_for() -> None:
    queued = queue()
    queued.put(waiting("a", 3))

    await asyncio.wait_for(queued.holds(3), 60)


async def test_waking_tells_who_waits_without_events() -> None:
    queued = queue()
    waits = asyncio.create_task(queued.holds(1))
    await asyncio.sleep(0)

    queued.wake()

    await asyncio.wait_for(waits, 60)


async def test_who_is_cancelled_takes_nothing_from_who_waits_after_it() -> None:
    queued = queue()
    first = asyncio.create_task(queued.holds(5))
    await asyncio.sleep(0)
    first.cancel()
    second = asyncio.create_task(queued.holds(1))
    await asyncio.wait([first])

    queued.put(waiting("a"))

    await asyncio.wait_for(second, 60)


async def test_what_was_taken_before_counts_for_the_same_batch() -> None:
    queued = queue()
    taken = [waiting("before", 3)]
    queued.put(waiting("large", 2))

    assert queued.take(most_events=4, most_bytes=1_000, besides=taken) == []
    assert len(queued.take(most_events=5, most_bytes=1_000, besides=taken)) == 1
