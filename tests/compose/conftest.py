"""Containers for the tests here. They take minutes, so they are only run when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support import composed

ASKED_FOR = "JOBLEDGER_TEST_COMPOSE"
"""``1`` runs these tests where Docker runs; ``required`` fails them where it does not."""

_measured: list[str] = []


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    asked = os.environ.get(ASKED_FOR, "")
    if not asked:
        pytest.skip(f"takes minutes and Docker; run it with {ASKED_FOR}=1")
    if problem := composed.missing():
        if asked == "required":
            pytest.fail(problem)
        pytest.skip(problem)
    _measured.append(f"with {composed.compose_version()}")
    return composed.build_images()


@pytest.fixture(scope="module")
def running(images: dict[str, str]) -> Iterator[composed.Project]:
    """The project, up and ready."""
    with composed.project(images) as project:
        project.compose("up", "--detach")
        yield project


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Iterator[dict[str, object]]:
    """What a test measures and wants to be read, however it ends."""
    figures: dict[str, object] = {}
    yield figures
    told = ", ".join(f"{name} {value}" for name, value in figures.items())
    _measured.append(f"{request.node.name}: {told}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _measured:
        terminalreporter.section("measured")
        for line in _measured:
            terminalreporter.line(line)
