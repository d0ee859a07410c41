"""Many wait for one thing: each is woken or sent away in its time, and who leaves takes nobody along."""

from __future__ import annotations

import asyncio

from jobledger.ledger import crowd

MANY = 100
LONG_SECONDS = 3_600.0
SHORT_SECONDS = 0.01


async def _waiting(waiting: crowd.Crowd, *patience: float) -> list[asyncio.Task[bool]]:
    tasks = [asyncio.create_task(waiting.wait(timeout_seconds=each)) for each in patience]
    await asyncio.sleep(0)
    return tasks


async def test_all_who_wait_are_woken_however_long_they_would_wait() -> None:
    waiting = crowd.Crowd()
    tasks = await _waiting(waiting, *[LONG_SECONDS] * MANY, *[2 * LONG_SECONDS] * MANY)

    waiting.wake()

    assert await asyncio.gather(*tasks) == [True] * 2 * MANY


async def test_who_comes_after_the_wake_waits_for_the_next() -> None:
    waiting = crowd.Crowd()
    [earlier] = await _waiting(waiting, LONG_SECONDS)
    waiting.wake()
    [later] = await _waiting(waiting, LONG_SECONDS)

    assert await earlier
    assert not later.done()
    waiting.wake()
    assert await later


async def test_each_gives_up_in_its_own_time_also_those_who_came_later() -> None:
    waiting = crowd.Crowd()
    patient = await _waiting(waiting, LONG_SECONDS)
    first = await _waiting(waiting, SHORT_SECONDS)
    await asyncio.sleep(SHORT_SECONDS / 2)
    second = await _waiting(waiting, SHORT_SECONDS)

    assert await asyncio.gather(*first, *second) == [False, False]
    # The timer went off for those; it is set again for who comes now.
    assert await asyncio.gather(*await _waiting(waiting, SHORT_SECONDS)) == [False]
    assert not patient[0].done()
    waiting.wake()
    assert await patient[0]


async def test_who_leaves_takes_nobody_along() -> None:
    waiting = crowd.Crowd()
    leaving, staying = await _waiting(waiting, LONG_SECONDS, LONG_SECONDS)

    leaving.cancel()
    await asyncio.wait([leaving])
    waiting.wake()

    assert leaving.cancelled()
    assert await staying


async def test_thousands_who_wait_equally_long_take_one_timer() -> None:
    waiting = crowd.Crowd()
    timers = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009 - asyncio tells in no other way
    before = len(timers)
    tasks = await _waiting(waiting, *[LONG_SECONDS] * MANY)

    assert len(timers) == before + 1
    waiting.wake()
    await asyncio.gather(*tasks)
