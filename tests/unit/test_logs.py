"""What a log line shows, and what it must not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from uuid import uuid4

import pytest

from jobledger import logs

log = logging.getLogger("jobledger.somewhere")


@pytest.fixture(autouse=True)
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_json_line_is_one_object_with_time_level_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="INFO", form=logs.Format.JSON)

    log.warning("a name of %s\nwith a line break", "训练")
    log.info("next")

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["event"] == "a name of 训练\nwith a line break"
    assert (first["level"], first["logger"]) == ("warning", "jobledger.somewhere")
    assert first["timestamp"].endswith("Z")
    assert second["event"] == "next"


def test_lines_of_a_request_bear_its_id_and_its_client_and_others_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(level="INFO", form=logs.Format.JSON)

    with logs.request(method="/job.Job/Register", peer="10.0.0.1"):
        logs.belongs_to("agent-7")
        told = logs.request_id()
        log.info("within")
    log.info("after")

    within, after = map(json.loads, capsys.readouterr().err.splitlines())
    assert within["request_id"] == told
    assert (within["method"], within["peer"], within["client_id"]) == (
        "/job.Job/Register",
        "10.0.0.1",
        "agent-7",
    )
    assert not {"request_id", "client_id", "method", "peer"} & set(after)


def test_ids_of_two_requests_differ() -> None:
    with logs.request():
        first = logs.request_id()
    with logs.request():
        second = logs.request_id()

    assert first != second


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(level="WARNING", form=logs.Format.CONSOLE)

    log.info("not this")
    log.warning("but this")

    assert "not this" not in (shown := capsys.readouterr().err)
    assert "but this" in shown


@pytest.mark.parametrize("form", logs.Format)
def test_traceback_shows_the_code_and_no_variable(
    form: logs.Format, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(level="INFO", form=form)

    canary = uuid4().hex
    _divide(1, canary)

    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    assert "_divide" in shown
    assert canary not in shown


def _divide(number: int, secret: str) -> None:
    try:
        number //= len(secret) - 32
    except ZeroDivisionError:
        log.exception("failed")
