"""``jobledger subscribe``."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from typing import Annotated, assert_never

import typer

from jobledger.cli import lines, options, terminal
from jobledger.client import connection, messages, subscription
from jobledger.model import event, selection

Several = list[str] | None

STATUS_COLOURS = {
    "pending": typer.colors.YELLOW,
    "running": typer.colors.GREEN,
    "complete": typer.colors.BLUE,
    "failed": typer.colors.RED,
}


def command(
    *,
    after: Annotated[
        str, typer.Option(metavar="UUID", help="Resume after this event; goes before --from.")
    ] = "",
    start_from: Annotated[
        selection.StartFrom,
        typer.Option(
            "--from",
            help="snapshot: what makes the current state of every live job; earliest: the whole log; "
            "latest: only what comes.",
        ),
    ] = selection.StartFrom.SNAPSHOT,
    namespace: Annotated[
        Several, typer.Option(metavar="NAME", help="Only this namespace; may be repeated.")
    ] = None,
    job_id: Annotated[Several, typer.Option(metavar="ID", help="Only this job; may be repeated.")] = None,
    framework: Annotated[
        Several, typer.Option(metavar="NAME", help="Only this frameWork; may be repeated.")
    ] = None,
    operator: Annotated[
        event.Operator | None, typer.Option(help="Only events that add, or only those that delete.")
    ] = None,
    as_json: options.Json = False,
    server: options.Server = options.DEFAULT_SERVER,
) -> None:
    """Follow the stream of events, over any disconnect, until Ctrl-C.

    Events go to stdout, a line each, everything else to stderr. With --json also heartbeats and marks are
    lines of stdout: a program that keeps the last uuid it handled resumes with --after and misses nothing.
    """
    only = selection.Filter(
        namespaces=frozenset(namespace or ()),
        job_ids=frozenset(job_id or ()),
        frameworks=frozenset(framework or ()),
        operators=frozenset((operator.value,) if operator else ()),
    )
    again = [] if server == options.DEFAULT_SERVER else ["--server", server]
    for option, values in (("--namespace", namespace), ("--job-id", job_id), ("--framework", framework)):
        again += [word for value in values or () for word in (option, value)]
    again += ["--operator", operator.value] if operator else []
    again += ["--json"] if as_json else []
    follower = _Follower(as_json=as_json, after=after, again=shlex.join(again))
    terminal.show_reconnects()
    try:
        terminal.run(_follow(follower, server, start_from, only))
    except BrokenPipeError:
        # Whoever read us, such as head, has enough. Python would complain when it flushes at exit. No word
        # on how to resume: what was written last was not read.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except typer.Exit:
        follower.say_how_to_resume()
        raise


async def _follow(
    follower: _Follower, server: str, start_from: selection.StartFrom, only: selection.Filter
) -> None:
    address = connection.Address.parse(server)
    stream = subscription.follow(address, after=follower.after, start_from=start_from, only=only)
    async with contextlib.aclosing(stream):
        async for message in stream:
            follower.show(message)


class _Follower:
    """Prints what comes, and remembers where to go on."""

    def __init__(self, *, as_json: bool, after: str, again: str) -> None:
        self.after = after
        self._again = again
        self._as_json = as_json
        self._began = False
        self._caught_up = False
        self._colour = sys.stdout.isatty()

    def show(self, message: messages.Message) -> None:
        """Prints a message; from the head on at once, before that in blocks, which is many times faster."""
        self._began = True
        if self._as_json:
            sys.stdout.write(lines.write(message).decode() + "\n")
        match message:
            case messages.Delivered():
                self.after = message.uuid
                if not self._as_json:
                    sys.stdout.write(self._line(message))
            case messages.Skipped():
                self.after = message.uuid
                terminal.notes.print(
                    f"position {message.position} ({message.uuid}) was skipped: the service cannot read it; "
                    "tell whoever runs it",
                    style="red",
                )
            case messages.CaughtUp():
                self._caught_up = True
                terminal.notes.print(f"caught up at position {message.position}; Ctrl-C ends", style="dim")
            case messages.Heartbeat():
                self.after = message.uuid or self.after
            case _:
                assert_never(message)
        if self._caught_up:
            sys.stdout.flush()

    def say_how_to_resume(self) -> None:
        """What to type to go on where this ended."""
        if self._began and self.after:
            command = f"{terminal.called()} subscribe --after {self.after} {self._again}"
            terminal.notes.print(f"resume with: {command.rstrip()}")

    def _line(self, delivered: messages.Delivered) -> str:
        signal = delivered.signal
        status = f"{signal.job_status:8}"
        if self._colour:
            status = typer.style(status, fg=STATUS_COLOURS.get(signal.job_status))
        recorded = delivered.recorded_at.strftime("%Y-%m-%d %H:%M:%SZ")
        name = f"{signal.namespace}/{signal.job_name}" if signal.job_name else signal.job_id
        return f"{delivered.position:>8} {recorded} {signal.operator:6} {status} {name} {delivered.uuid}\n"
