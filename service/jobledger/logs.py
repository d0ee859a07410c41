"""Log lines: how they look, and which request and client they belong to.

Every module logs through the standard library, as libraries do; this is only what stands around a line.
Lines are JSON where machines read them and text where people do. No line may show a local variable: it
could be a DSN or somebody's secret, so tracebacks are plain ones.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import Final

import structlog
from structlog import typing

REQUEST_ID: Final = "request_id"
"""The key under which every line of a request has its id; the id is what a failed caller is told."""

CLIENT_ID: Final = "client_id"
"""The key for a subscriber's own id."""

_NOTHING: Final[Mapping[str, str | int]] = {}

_ids: Final = random.Random()  # noqa: S311 - ids are no secret, and os.urandom is a system call

# One variable for all that is known: structlog has one a key, and looks through the whole context for them.
_known: Final[ContextVar[Mapping[str, str | int]]] = ContextVar("jobledger_request", default=_NOTHING)


class Format(StrEnum):
    """How lines are written."""

    CONSOLE = "console"
    """For people: aligned text, in colours on a terminal."""

    JSON = "json"
    """For machines: one JSON object a line."""


def configure(*, level: str, form: Format) -> None:
    """Write log lines of this process, from that level on, to stderr."""
    common: list[typing.Processor] = [
        _add_known,
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
    logging.getLogger("alembic.runtime.migration").addFilter(_says_something)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)


def _says_something(record: logging.LogRecord) -> bool:
    """Alembic tells at every start what kind of database it is; which migration runs is news."""
    return record.levelno > logging.INFO or record.getMessage().startswith("Running")


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
    _known.set({**_known.get(), "worker": worker})


def _add_known(_logger: object, _method: str, line: typing.EventDict) -> typing.EventDict:
    return {**_known.get(), **line}


class request:  # noqa: N801 - used as a function; a generator would cost three times as much
    """Lines within belong to a new request, of which this is known."""

    __slots__ = ("_before", "_named")

    def __init__(self, **named: str) -> None:
        self._named = named

    def __enter__(self) -> None:
        self._before = _known.set({**_known.get(), REQUEST_ID: _new_id(), **self._named})

    def __exit__(self, *_: object) -> None:
        _known.reset(self._before)


def belongs_to(client_id: str) -> None:
    """The rest of the request's lines belong to that client; an anonymous one has none."""
    if client_id:
        _known.set({**_known.get(), CLIENT_ID: client_id})


def request_id() -> str:
    """The id of the request that this code runs for; a new one outside of any."""
    known = _known.get().get(REQUEST_ID)
    return known if isinstance(known, str) else _new_id()


def _new_id() -> str:
    return f"{_ids.getrandbits(128):032x}"
