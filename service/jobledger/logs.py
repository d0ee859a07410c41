"""Log lines: how they look, and which request and client they belong to.

Every module logs through the standard library, as libraries do; this is only what stands around a line.
Lines are JSON where machines read them and text where people do. No line may show a local variable: it
could be a DSN or somebody's secret, so tracebacks are plain ones.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import uuid
from collections.abc import Generator
from enum import StrEnum
from typing import Final

import structlog
from structlog import contextvars, typing

REQUEST_ID: Final = "request_id"
"""The key under which every line of a request has its id; the id is what a failed caller is told."""

CLIENT_ID: Final = "client_id"
"""The key for a subscriber's own id."""


class Format(StrEnum):
    """How lines are written."""

    CONSOLE = "console"
    """For people: aligned text, in colours on a terminal."""

    JSON = "json"
    """For machines: one JSON object a line."""


def configure(*, level: str, form: Format) -> None:
    """Write log lines of this process, from that level on, to stderr."""
    common: list[typing.Processor] = [
        contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_ending(form)],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _ending(form: Format) -> list[typing.Processor]:
    match form:
        case Format.JSON:
            return [
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ]
        case Format.CONSOLE:
            # structlog's own choice, where rich is installed, shows the locals of every frame.
            return [
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
                )
            ]


def process(*, worker: int) -> None:
    """Every line of this process, and of all tasks that it starts from now on, says which worker it is."""
    contextvars.bind_contextvars(worker=worker)


@contextlib.contextmanager
def request(**named: str) -> Generator[None]:
    """Lines within belong to a new request, of which this is known."""
    with contextvars.bound_contextvars(**{REQUEST_ID: uuid.uuid4().hex}, **named):
        try:
            yield
        finally:
            contextvars.unbind_contextvars(CLIENT_ID)


def belongs_to(client_id: str) -> None:
    """The rest of the request's lines belong to that client; an anonymous one has none."""
    if client_id:
        contextvars.bind_contextvars(**{CLIENT_ID: client_id})


def request_id() -> str:
    """The id of the request that this code runs for; a new one outside of any."""
    bound: object = contextvars.get_contextvars().get(REQUEST_ID)
    return bound if isinstance(bound, str) else uuid.uuid4().hex
