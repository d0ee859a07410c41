"""The gate that stands for grpclib's events."""

from __future__ import annotations

import asyncio

from jobledger.rpc import http2


async def test_open_gate_holds_nobody_up() -> None:
    gate = http2.Gate(is_open=True)

    await gate.wait()

    assert gate.is_set()


async def test_all_who_wait_go_through_once_it_opens_though_it_closes_at_once() -> None:
    gate = http2.Gate()
    waiting = [asyncio.create_task(gate.wait()) for _ in range(10)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)

    gate.set()
    gate.clear()

    await asyncio.gather(*waiting)
    assert not gate.is_set()


async def test_who_leaves_holds_nobody_up() -> None:
    gate = http2.Gate()
    leaving, leaving_late, staying = (asyncio.create_task(gate.wait()) for _ in range(3))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait([leaving])

    gate.set()
    leaving_late.cancel()

    await staying
    await asyncio.wait([leaving_late])
    assert leaving.cancelled()
    assert leaving_late.cancelled()
