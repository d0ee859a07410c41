"""``jobledger publish``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import rich.progress
import typer

from jobledger.cli import options, sources, terminal
from jobledger.client import batches, connection, publishing


class TraceFormat(StrEnum):
    """Traces that can be read."""

    ALIBABA_2023 = "alibaba-2023"


def command(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines; - reads standard input.")],
    *,
    trace: Annotated[
        TraceFormat | None,
        typer.Option(help="FILE is no JSON but a trace: the pod list of Alibaba's GPU cluster of 2023."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.1, help="Publish at most so many events a second.")
    ] = None,
    server: options.Server = options.DEFAULT_SERVER,
) -> None:
    """Publish events: one JSON object a line, each of one event.

    \b
    {"signal": {"jobId": "job-1",                   required
                "uuid": "...",                      the same again is a duplicate
                "operator": "add",                  add or delete
                "jobStatus": "running",             pending, running, complete, failed
                "jobName": "train", "namespace": "team-a", "frameWork": "pytorch",
                "time": 1700000000,                 epoch seconds
                "deleteTime": "",                   epoch seconds, once it ended
                "HcclJson": {"status": "..."},      the rank table: JSON, or as text
                "cmIndex": 0, "total": 1, "sharedTorIp": [], "masterAddr": "",
                "sid": ""},
     "detail": {"name": "train", "imageName": ""},  the job as CWAI describes it
     "region": "", "accountId": "", "userId": ""}

    Where a signal holds decimal text, a whole number will do. What is not
    required may be left out; unknown keys are refused by name.

    A line that is refused is reported by its number on stderr; its
    neighbours go through. Exit code 0: all events are in the log; 1: some
    were refused, or the service went away.
    """  # noqa: D301 - the backspace is click's mark for "keep these line ends"
    publication = Publication()
    terminal.run(_publish(publication, file, trace, rate, server))
    if publication.refused:
        raise typer.Exit(terminal.FAILED)


async def _publish(
    publication: Publication, file: str, trace: TraceFormat | None, rate: float | None, server: str
) -> None:
    address = connection.Address.parse(server)
    with _opened(file) as descriptor:
        if trace is not None:
            items = sources.of_trace(Path(file))
            source, total = sources.from_items(items), len(items)
        else:
            source = sources.from_lines(descriptor, publication.refuse)
            total = os.fstat(descriptor).st_size or None  # None for a pipe: nobody knows
        await publication.run(address, source if rate is None else sources.paced(source, rate), total)


@contextlib.contextmanager
def _opened(file: str) -> Generator[int]:
    if file == "-":
        yield sys.stdin.fileno()
    else:
        with Path(file).open("rb", buffering=0) as opened:
            yield opened.fileno()


class Publication:
    """Publishes once, showing how it goes, and counts what became of the events."""

    def __init__(self) -> None:
        self.accepted = 0
        self.duplicates = 0
        self.refused = 0
        self._sent: deque[Sequence[sources.Item]] = deque()
        self._started = time.monotonic()
        self._progress = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[rate]}"),
            rich.progress.TimeRemainingColumn(),
            console=terminal.notes,
            transient=True,
            disable=not terminal.notes.is_terminal,
        )
        self._task = self._progress.add_task("publish", total=None, rate="")

    async def run(self, address: connection.Address, source: sources.Batches, total: int | None) -> None:
        """Publishes everything and prints a summary, also of what was done before a failure."""
        self._progress.update(self._task, total=total)
        try:
            with self._progress:
                await publishing.publish(address, self._submissions(source), self._answered)
        except BaseException:
            if self.accepted or self.duplicates:
                unanswered = sum(map(len, self._sent))
                terminal.notes.print(
                    f"{self._summary()}; {unanswered} were sent without an answer, and the rest was not: "
                    "publish the same again, what has a uuid and is in the log becomes a duplicate"
                )
            raise
        typer.echo(self._summary())

    def refuse(self, label: str, why: str) -> None:
        """Reports an event that did not go through."""
        self.refused += 1
        terminal.notes.print(f"{label}: {why}")

    async def _submissions(self, source: sources.Batches) -> AsyncIterator[batches.Batch]:
        async for batch in source:
            self._sent.append(batch)
            yield [item.submission for item in batch]

    def _answered(self, _: batches.Batch, outcomes: Sequence[batches.Outcome]) -> None:
        items = self._sent.popleft()
        for item, outcome in zip(items, outcomes, strict=True):
            match outcome:
                case batches.Refused():
                    self.refuse(item.label, f"{outcome.field}: {outcome.reason}")
                case _ if outcome.duplicate:
                    self.duplicates += 1
                case _:
                    self.accepted += 1
        self._progress.update(
            self._task, advance=sum(item.size for item in items), rate=f"{self._rate():,.0f} events/s"
        )

    def _rate(self) -> float:
        return (self.accepted + self.duplicates) / max(time.monotonic() - self._started, 0.001)

    def _summary(self) -> str:
        return (
            f"{self.accepted:,} accepted, {self.duplicates:,} duplicates, {self.refused:,} refused "
            f"({time.monotonic() - self._started:.1f} s, {self._rate():,.0f} events/s)"
        )
