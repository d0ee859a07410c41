"""A made-up cluster's life in the shape of the real one's, for those who have no trace at hand.

The constants are what was counted in Alibaba's list of 8,152 pods; only pods that live no time at all are
more frequent here, so that short traces hold some too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeVar

from jobledger.trace import pods

T = TypeVar("T")

PODS = 8_152
"""Pods of the real trace."""

ARRIVAL_SECONDS = 317
"""Mean time between two pods."""

BURST_SHARE = 0.024
"""Pods created in the same second as the one before."""

LIFE_SECONDS = 620
"""Median life; a tenth lives longer than 4,000 s."""

LIFE_SPREAD = 1.45
"""Standard deviation of the logarithm of a life."""

INSTANT_SHARE = 0.005
"""Pods created, scheduled and deleted within one second."""

AT_ONCE_SHARE = 0.25
"""Pods scheduled in the second of their creation."""

WAIT_SECONDS = 20
"""Mean wait of the others."""

PHASES = {
    pods.Phase.RUNNING: 5_193,
    pods.Phase.FAILED: 1_870,
    pods.Phase.PENDING: 897,
    pods.Phase.SUCCEEDED: 192,
}
"""How many pods ended how."""

GPUS = {1: 6_989, 0: 1_088, 8: 44, 2: 16, 4: 15}
"""How many pods asked for how many devices."""

QOS = {"LS": 4_647, "BE": 3_398, "Burstable": 100, "Guaranteed": 7}
"""How many pods were of which class of service."""


def generate(count: int = PODS, *, seed: int) -> list[pods.Pod]:
    """As many pods as asked for, always the same for a seed; fewer are the beginning of more.

    The seed is part of the names, so that traces of different seeds are of different jobs.
    """
    return list(_lives(count, seed))


def _lives(count: int, seed: int) -> Iterator[pods.Pod]:
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose, and no secret
    now = 0
    for number in range(count):
        if chance.random() >= BURST_SHARE:
            now += round(chance.expovariate(1 / ARRIVAL_SECONDS))
        wait = 0 if chance.random() < AT_ONCE_SHARE else round(chance.expovariate(1 / WAIT_SECONDS))
        life = round(LIFE_SECONDS * chance.lognormvariate(0, LIFE_SPREAD))
        if chance.random() < INSTANT_SHARE:
            wait = life = 0
        phase = _pick(chance, PHASES)
        yield pods.Pod(
            name=f"generated-{seed}-pod-{number:04}",
            gpus=_pick(chance, GPUS),
            qos=_pick(chance, QOS),
            phase=phase,
            created=now,
            scheduled=None if phase is pods.Phase.PENDING else now + min(wait, life),
            deleted=now + life,
        )


def _pick(chance: random.Random, weights: dict[T, int]) -> T:
    return chance.choices(tuple(weights), tuple(weights.values()))[0]
