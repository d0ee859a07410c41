"""The whole service: in this process, or as the process that users start."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from pydantic import SecretStr

from jobledger import app
from jobledger.model import event
from jobledger.settings import Settings
from tests.support import events

FAST = {
    "grpc_port": 0,
    "http_port": 0,
    "poll_seconds": 0.2,
    "refusal_delay_seconds": 0.01,
    "grace_seconds": 5.0,
}
"""Settings with which nothing waits longer than a test likes."""


@contextlib.asynccontextmanager
async def running(database: str, **settings: object) -> AsyncGenerator[app.Service]:
    """A service in this process."""
    chosen = Settings.model_validate({**FAST, "database_url": SecretStr(database), **settings})
    async with app.running(chosen, database) as service:
        yield service


def grpc_address(service: app.Service) -> str:
    """What a client dials."""
    return f"127.0.0.1:{service.grpc_port}"


async def hears(service: app.Service) -> None:
    """Assert that notifications of other processes arrive at it."""
    metrics = f"http://127.0.0.1:{service.http_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(metrics) as answer:
        assert "\njobledger_notifications_arrive 1.0\n" in await answer.text()


@dataclass(slots=True)
class Process:
    """``jobledger serve`` as a process of its own."""

    process: asyncio.subprocess.Process
    grpc: str
    http: str
    postgres: str

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, by default the one that nobody can handle."""
        self.process.send_signal(number)


async def started(
    *, arguments: tuple[str, ...] = (), python: str = sys.executable, **variables: str
) -> Process:
    """Start ``serve`` and wait until it says that it is ready."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(app.__file__).parents[1]),
        "JOBLEDGER_POLL_SECONDS": "0.2",
        "JOBLEDGER_REFUSAL_DELAY_SECONDS": "0.01",
        **variables,
    }
    ports = ("--grpc-port", "0", "--http-port", "0") if "--grpc-port" not in arguments else ()
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        "jobledger",
        "serve",
        "--json",
        *ports,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
    assert line, f"serve ended with {await process.wait()}"
    ready = json.loads(line)
    assert ready["ready"] is True
    return Process(process, ready["grpc"], ready["http"], ready["postgres"])


@contextlib.asynccontextmanager
async def serving(
    *, arguments: tuple[str, ...] = (), python: str = sys.executable, **variables: str
) -> AsyncGenerator[Process]:
    """A process for as long as the block lasts."""
    process = await started(arguments=arguments, python=python, **variables)
    try:
        yield process
    finally:
        if process.process.returncode is None:
            process.kill(signal.SIGTERM)
            try:
                async with asyncio.timeout(20):
                    await process.process.wait()
            except TimeoutError:
                process.kill()
                await process.process.wait()


async def publish(service: app.Service, *submissions: event.Submission) -> list[event.Receipt]:
    """Record events that must not be refused."""
    outcomes = await service.appender.append(submissions, events.PUBLISHER)
    receipts = [each for each in outcomes if isinstance(each, event.Receipt)]
    assert len(receipts) == len(outcomes), outcomes
    return receipts
