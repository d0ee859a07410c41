"""The whole service on a test's database, and a stock ClusterD client that dials it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jobledger import app
from tests.support import clusterd, services


@pytest.fixture
async def service(database: str) -> AsyncIterator[app.Service]:
    async with services.running(database) as running:
        yield running


@pytest.fixture
async def client(service: app.Service) -> AsyncIterator[clusterd.Subscriber]:
    async with clusterd.subscriber(services.grpc_address(service)) as subscriber:
        yield subscriber
