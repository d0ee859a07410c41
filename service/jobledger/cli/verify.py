"""``jobledger verify`` and ``jobledger rebuild``.

Exit codes of both: 0 all is well; 1 something is wrong (verify only); 2 the settings, the options or the
database's schema will not do; 3 it could not be finished, since Postgres was away; 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
import rich.progress
import typer

from jobledger import errors
from jobledger.cli import options, serve, terminal

if TYPE_CHECKING:
    from jobledger.ledger import verify
    from jobledger.settings import Settings

T = TypeVar("T")

UNFINISHED = 3
"""Exit code when Postgres was away before all was looked at."""

_ANCHOR = re.compile(r"(\d{1,18}):([0-9a-fA-F]{64})", re.ASCII)


def command(
    *,
    first: Annotated[
        int | None, typer.Option("--from", min=1, help="First position; the view is not compared then.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, help="Last position; the view is not compared then.")
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION:HASH",
            help="What an earlier verify, or audit.head(), said of the log's end. Only against it does a "
            "removed tail show.",
        ),
    ] = None,
    data_dir: serve.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Check that the log is whole and unaltered, and the view what the log says.

    Runs beside a service or without one, and only reads. Exits with 0 if all is well, 1 if something is
    wrong, 2 if the settings will not do, 3 if Postgres was away.
    """
    from jobledger import upkeep  # noqa: PLC0415 - the base installation has no server
    from jobledger.ledger import verify  # noqa: PLC0415 - as above

    kept = None
    if anchor is not None:
        match = _ANCHOR.fullmatch(anchor)
        if match is None:
            terminal.fail(
                f"--anchor {errors.shown(anchor)} is not POSITION:HASH, with 64 hexadecimal digits",
                terminal.SETUP,
            )
        kept = verify.Anchor(position=verify.event.Position(int(match[1])), hash=bytes.fromhex(match[2]))
    settings = loaded(data_dir)
    with progress() as show:
        report = finished(upkeep.check(settings, first=first, last=last, anchor=kept, on_progress=show))
    typer.echo(_as_json(report) if as_json else _as_text(report))
    if report.finding is not None:
        raise typer.Exit(terminal.FAILED)


def rebuild(*, data_dir: serve.DataDir = None, as_json: options.Json = False) -> None:
    """Make the view again from the log, while appends go on; says how many of its rows were wrong.

    Exits with 0 when it is done, 2 if the settings will not do, 3 if Postgres was away; then nothing changed.
    """
    from jobledger import upkeep  # noqa: PLC0415 - the base installation has no server

    settings = loaded(data_dir)
    with progress() as show:
        report = finished(upkeep.repair(settings, on_progress=show))
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        typer.echo(
            f"{report.jobs} jobs folded from the log, {report.differed} rows differed and were replaced"
        )


def loaded(data_dir: object) -> Settings:
    """The settings, or a clear line and the end."""
    from jobledger import settings  # noqa: PLC0415 - the base installation has no server

    try:
        return settings.load(**({} if data_dir is None else {"data_dir": data_dir}))
    except errors.SetupError as error:
        terminal.fail(str(error), terminal.SETUP)


def finished(work: Coroutine[None, None, T]) -> T:
    """Runs work on a database; apart from what it finds, there is what will not do and what is away."""

    async def told_apart() -> T:
        try:
            return await work
        except errors.RequestError as error:
            raise errors.SetupError(str(error)) from error

    try:
        return terminal.run(_unless_away(told_apart()))
    except _Away as away:
        terminal.fail(str(away), UNFINISHED)


class _Away(Exception):
    pass


async def _unless_away(work: Coroutine[None, None, T]) -> T:
    try:
        return await work
    except errors.Unavailable as error:
        raise _Away(str(error)) from error


@contextlib.contextmanager
def progress() -> Generator[verify.OnProgress]:
    """A bar with rate and time left on stderr, while that is a terminal."""
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn("{task.fields[rate]}"),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=terminal.notes, transient=True) as bars:
        tasks: dict[str, rich.progress.TaskID] = {}

        def show(now: verify.Progress) -> None:
            if now.what not in tasks:
                tasks[now.what] = bars.add_task(now.what, total=None, rate="")
            task = tasks[now.what]
            speed = bars.tasks[task].speed
            bars.update(
                task, completed=now.done, total=now.total or None, rate=f"{speed:,.0f}/s" if speed else ""
            )

        yield show


def _as_json(report: verify.Report) -> str:
    finding = report.finding
    shown = {
        "ok": finding is None,
        "from": report.first,
        "to": report.last,
        "events": report.events,
        "jobs": report.jobs,
        "anchor": None if finding is not None else _anchor(report),
        "anchored": report.anchored,
        "first_bad": None if finding is None else finding.position,
        "job_id": None if finding is None else finding.job_id,
        "reason": None if finding is None else finding.reason,
    }
    return msgspec.json.encode(shown).decode()


def _anchor(report: verify.Report) -> str:
    return f"{report.head.position}:{report.head.hash.hex()}"


def _as_text(report: verify.Report) -> str:
    finding = report.finding
    if finding is not None:
        where = f"position {finding.position}" if finding.position is not None else "the view"
        of = f" (job {errors.shown(finding.job_id)})" if finding.job_id is not None else ""
        return f"BAD: {where}{of}: {finding.reason}\n{report.events} events before it are good"
    jobs = f", {report.jobs} jobs as the log says" if report.jobs is not None else ""
    lines = [
        f"good: {report.events} events, positions {report.first} to {report.last}, one chain{jobs}",
        f"anchor: {_anchor(report)}",
    ]
    if not report.anchored:
        lines.append(
            "A tail that was removed shows only against an anchor that is kept elsewhere: keep this one, and "
            "give it to the next verify as --anchor."
        )
    return "\n".join(lines)
