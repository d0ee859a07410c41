"""A ledger in the test's own process, and REST over it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support import ledgers, rest


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[ledgers.Ledger]:
    async with ledgers.running(database) as running:
        yield running


@pytest.fixture
async def api(ledger: ledgers.Ledger) -> AsyncIterator[rest.Rest]:
    async with rest.serving(ledger) as running:
        yield running
