"""Turns: many that want to send let others in after a few chunks, and none of them is forgotten."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from jobledger.ledger import turns

STREAMS = 100
CHUNKS = 5
PASSES = 50
"""Of somebody who always has something to do."""


async def test_each_pass_of_the_loop_lets_a_few_send_in_the_order_in_which_they_asked() -> None:
    taking = turns.Turns()
    sent: list[int] = []
    passes: list[int] = []

    async def stream(number: int) -> None:
        for _ in range(CHUNKS):
            await taking.take()
            sent.append(number)
            await asyncio.sleep(0)

    streams = [asyncio.create_task(stream(number)) for number in range(STREAMS)]
    while not all(each.done() for each in streams):
        passes.append(len(sent))
        await asyncio.sleep(0)

    assert sent == list(range(STREAMS)) * CHUNKS
    assert max(later - earlier for earlier, later in itertools.pairwise(passes)) <= 2 * turns.CHUNKS_A_PASS


async def test_lone_stream_waits_for_nobody() -> None:
    taking = turns.Turns()
    for _ in range(turns.CHUNKS_A_PASS):
        coroutine = taking.take()
        try:
            coroutine.send(None)
        except StopIteration:
            continue
        raise AssertionError("it waited")


async def test_those_who_left_take_no_turn_from_others() -> None:
    taking = turns.Turns()
    waiting = [asyncio.create_task(taking.take()) for _ in range(STREAMS)]
    await asyncio.sleep(0)
    for each in waiting[:-1]:
        each.cancel()

    async with asyncio.timeout(30):
        await waiting[-1]
        await taking.take()

    assert sum(each.cancelled() for each in waiting) > STREAMS - 3 * turns.CHUNKS_A_PASS


async def _passes_before_a_turn() -> int:
    """Of others who have something to do, which a stream waits for that had its share."""
    taking = turns.Turns()
    for _ in range(turns.CHUNKS_A_PASS):
        await taking.take()
    passes = 0

    async def work() -> None:
        nonlocal passes
        for _ in range(PASSES):
            await asyncio.sleep(0)
            passes += 1

    working = asyncio.create_task(work())
    await taking.take()
    waited = passes
    await working
    return waited


async def test_streams_give_way_to_whoever_has_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 3600.0)

    assert await _passes_before_a_turn() == PASSES


async def test_streams_give_way_no_longer_than_they_are_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_SECONDS", 0.0)

    assert await _passes_before_a_turn() < PASSES


async def test_while_somebody_calls_chunks_are_written_one_by_one() -> None:
    taking = turns.Turns()
    sent: list[int] = []
    passes: list[int] = []

    async def stream(number: int) -> None:
        await taking.take()
        sent.append(number)

    for _ in range(turns.CHUNKS_A_PASS):
        await taking.take()
    with taking.calling():
        streams = [asyncio.create_task(stream(number)) for number in range(STREAMS)]
        while not all(each.done() for each in streams):
            passes.append(len(sent))
            await asyncio.sleep(0)

    assert (
        max(later - earlier for earlier, later in itertools.pairwise(passes)) <= 2 * turns.CHUNKS_BESIDE_CALLS
    )


async def test_new_connections_wait_for_calls_and_not_for_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "ARRIVAL_SECONDS", 3600.0)
    taking = turns.Turns()
    with taking.calling():
        await taking.arrive()
        streams = [asyncio.create_task(taking.take()) for _ in range(STREAMS)]
        second = asyncio.create_task(taking.arrive())
        await asyncio.gather(*streams)
        waited = not second.done()
        with taking.following():
            await second

    assert waited


async def test_new_connection_waits_without_keeping_the_loop_busy_and_comes_while_calls_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "ARRIVAL_SECONDS", 0.1)
    taking = turns.Turns()
    passed = 0
    count = taking._next_pass

    def counted() -> None:
        nonlocal passed
        passed += 1
        count()

    monkeypatch.setattr(taking, "_next_pass", counted)
    with taking.calling():
        for _ in range(3):
            await taking.arrive()

    assert passed < PASSES


async def test_new_connection_is_before_all_streams_that_wait() -> None:
    taking = turns.Turns()
    streams = [asyncio.create_task(taking.take()) for _ in range(STREAMS)]
    await asyncio.sleep(0)

    await taking.arrive()

    assert sum(each.done() for each in streams) <= 3 * turns.CHUNKS_A_PASS
    await asyncio.gather(*streams)
