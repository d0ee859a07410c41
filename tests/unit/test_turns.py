"""Turns: many that want to send let others in after a few chunks, and none of them is forgotten."""

from __future__ import annotations

import asyncio
import itertools

from jobledger.ledger import turns

STREAMS = 100
CHUNKS = 5


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
