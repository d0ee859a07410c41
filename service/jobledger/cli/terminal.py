"""Talking to whoever types: results to stdout, everything else to stderr, errors as one clear line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import NoReturn, TypeVar

import rich.console
import typer

from jobledger import errors

T = TypeVar("T")

FAILED = 1
"""Exit code of a command that did not do all it was asked to."""

SETUP = 2
"""Exit code when the settings or the installation will not do; the same as for a wrong option."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the signal's number."""

notes = rich.console.Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
"""For people: progress, problems, what to do next."""


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Ends the command with one clear line."""
    notes.print(f"jobledger: {message}", style="red")
    raise typer.Exit(code)


def run(work: Coroutine[None, None, T]) -> T:
    """Runs a command's work; what it raises for the user ends the command with a line and a code."""
    try:
        return asyncio.run(work)
    except errors.SetupError as error:
        fail(str(error), SETUP)
    except errors.ServerUnreachable as error:
        fail(f"{error}\nstart one with `jobledger serve`, or name another: --server HOST:PORT, --url URL")
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except errors.LedgerError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        notes.print(record.getMessage(), style="dim")


def show_reconnects() -> None:
    """Shows what the client logs, that is, lost connections, among the notes."""
    logger = logging.getLogger("jobledger.client")
    logger.setLevel(logging.INFO)
    logger.addHandler(_Notes())
    logger.propagate = False
