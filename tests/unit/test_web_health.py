"""When the process is ready for work, check by check."""

from __future__ import annotations

import json

import pytest
from aiohttp import test_utils

from jobledger import errors
from jobledger.ledger import tail, window
from jobledger.store import engine
from jobledger.web import health


def following(*, available: bool = True, loss: errors.DataLoss | None = None) -> tail.Tail:
    """A tail that has just looked at the log, and does not run."""
    idle = tail.Tail(
        engine.ReadPool("postgresql://unused", size=1), window.Window(limit_bytes=1), poll_seconds=1
    )
    idle.available, idle.loss = available, loss
    return idle


async def readiness(state: health.Health) -> tuple[int, set[str]]:
    """The status of /readyz, and the checks that fail."""
    answer = await state.ready(test_utils.make_mocked_request("GET", "/readyz"), "")
    assert isinstance(answer.body, bytes)
    body = json.loads(answer.body)
    failing = {name for name, holds in body["checks"].items() if not holds}
    assert body["ready"] is (not failing)
    return answer.status, failing


async def test_ready_while_every_check_holds() -> None:
    assert await readiness(health.Health(following())) == (200, set())


async def test_not_ready_without_the_database() -> None:
    assert await readiness(health.Health(following(available=False))) == (503, {"database"})


async def test_not_ready_while_a_position_is_missing() -> None:
    assert await readiness(health.Health(following(loss=errors.DataLoss(7)))) == (503, {"complete"})


async def test_not_ready_while_the_log_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = health.Health(following())
    monkeypatch.setattr(health, "BEHIND_LIMIT_SECONDS", 0.0)

    assert await readiness(state) == (503, {"following"})


async def test_not_ready_once_told_to_stop() -> None:
    state = health.Health(following())
    state.draining = True

    assert await readiness(state) == (503, {"serving"})
