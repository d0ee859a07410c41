"""Talking to whoever types: results to stdout, everything else to stderr, errors as one clear line."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import NoReturn, TypeVar

import rich.console
import typer

from jobledger import errors

T = TypeVar("T")

FAILED = 1
"""Exit code of a command that did not do all it was asked to."""

SETUP = 2
"""Exit code when the settings or the installation will not do; the same as for a wrong option."""

STOPPED = 128
"""Exit code after Ctrl-C or SIGTERM, as shells have it: this and the signal's number."""

notes = rich.console.Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
"""For people: progress, problems, what to do next."""


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Ends the command with one clear line."""
    notes.print(f"jobledger: {message}", style="red")
    raise typer.Exit(code)


def called() -> str:
    """How a shell calls this program: by its name, where it finds it, else by its path."""
    installed = Path(sys.executable).with_name("jobledger")
    if shutil.which("jobledger") or not installed.exists():
        return "jobledger"
    return shlex.quote(min(os.path.relpath(installed), str(installed), key=len))


def run(work: Coroutine[None, None, T]) -> T:
    """Runs a command's work; what it raises for the user ends the command with a line and a code.

    Ctrl-C and SIGTERM cancel it, so that it can say what was done; the second one ends it at once.
    """
    try:
        return asyncio.run(_until_stopped(work))
    except errors.SetupError as error:
        fail(str(error), SETUP)
    except errors.ServerUnreachable as error:
        fail(f"{error}\nstart one with `{called()} serve`, or name another: --server HOST:PORT, --url URL")
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except errors.LedgerError as error:
        fail(str(error))
    except _Stopped as stopped:
        raise typer.Exit(STOPPED + stopped.number) from None
    except KeyboardInterrupt:
        raise typer.Exit(STOPPED + signal.SIGINT) from None


class _Stopped(Exception):
    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self.number = number


async def _until_stopped(work: Coroutine[None, None, T]) -> T:
    loop = asyncio.get_running_loop()
    working = loop.create_task(work)
    told: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        told.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        working.cancel()

    # Through the loop, which asyncio.run's own handler is not: a signal that comes just before the loop goes
    # to sleep would only be seen when something else wakes it. And also where SIGINT was ignored, as shells
    # have it for what a script starts in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await working
    except asyncio.CancelledError:
        if told:
            raise _Stopped(told[0]) from None
        raise


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        notes.print(record.getMessage(), style="dim")


def show_reconnects() -> None:
    """Shows what the client logs, that is, lost connections, among the notes."""
    logger = logging.getLogger("jobledger.client")
    logger.setLevel(logging.INFO)
    logger.addHandler(_Notes())
    logger.propagate = False
