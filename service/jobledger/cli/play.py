"""A trace played into the service while subscribers follow, and the check that nothing was lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence

import rich.live
import rich.table
import rich.text
import typer

from jobledger import errors
from jobledger.cli import follower, sources
from jobledger.client import batches, connection, publishing, subscription
from jobledger.model import event, selection

LOOK_SECONDS = 0.25
"""Time between two looks at how far everybody is."""

LINE_SECONDS = 1.0
"""Time between two lines where the output is no terminal."""

PATIENCE_SECONDS = 60.0
"""How long nothing may come before what is missing counts as lost: longer than a restart."""


class Play:
    """One demonstration: what was published, and who saw what."""

    def __init__(self, submissions: Sequence[event.Submission], *, subscribers: int, cuts: int) -> None:
        cut_every = max(1, len(submissions) // (cuts + 1))
        self._submissions = submissions
        self._followers = [
            follower.Follower(
                f"subscriber {number}", cut_every=cut_every, most_cuts=cuts if number == subscribers else 0
            )
            for number in range(1, subscribers + 1)
        ]
        self._positions: dict[str, event.Position] = {}
        self._head = event.Position(0)
        self._duplicates = 0
        self._refused: list[str] = []
        self._started = time.monotonic()
        self._last_line = 0.0

    async def run(self, address: connection.Address, rate: float) -> None:
        """Publishes everything at a rate while all follow, until all are at the end.

        Raises:
            errors.LedgerError: somebody could not go on, or nothing came for a minute.
        """
        start_from = selection.StartFrom.LATEST
        if await _is_known(address, self._submissions[0].signal.uuid):
            typer.echo("It was played before: everybody reads the log from its first event, as at first.")
            start_from = selection.StartFrom.EARLIEST
        tasks = [asyncio.create_task(each.run(address, start_from)) for each in self._followers]
        try:
            await self._until(self._all_caught_up, tasks)
            self._started = time.monotonic()
            source = sources.paced(sources.from_items(sources.of_events(self._submissions)), rate)
            publication = asyncio.create_task(publishing.publish(address, _bare(source), self._answered))
            tasks.append(publication)
            with rich.live.Live(self._table(), transient=True, auto_refresh=False) as live:
                await self._until(lambda: publication.done() and self._all_at_end(), tasks, live)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def check(self) -> list[str]:
        """Says what everybody got; returns what is wrong with it."""
        problems = list(self._refused)
        seconds = time.monotonic() - self._started
        typer.echo(
            f"{len(self._positions):,} of {len(self._submissions):,} events published in {seconds:.1f} s, "
            f"{self._duplicates:,} of them duplicates of earlier ones; the log ends at {self._head:,}."
        )
        for each in self._followers:
            found = list(each.problems(self._positions))
            problems += found
            if not found:
                typer.echo(
                    f"{each.name} got every event once, in order: {len(each.seen):,} messages"
                    + (f", killed and resumed {each.cuts} times." if each.cuts else ".")
                )
        return problems

    def _all_caught_up(self) -> bool:
        return all(each.caught_up.is_set() for each in self._followers)

    def _all_at_end(self) -> bool:
        return all(each.position >= self._head for each in self._followers)

    async def _until(
        self,
        done: Callable[[], bool],
        tasks: Sequence[asyncio.Task[None]],
        live: rich.live.Live | None = None,
    ) -> None:
        progress, since = self._progress(), time.monotonic()
        while not done():
            await asyncio.wait(tasks, timeout=LOOK_SECONDS)
            for task in tasks:
                if task.done():
                    task.result()
            if live is not None:
                self._show(live)
            if self._progress() != progress:
                progress, since = self._progress(), time.monotonic()
            elif time.monotonic() - since > PATIENCE_SECONDS:
                raise errors.LedgerError(f"nothing came for {PATIENCE_SECONDS:g} s; {self._line()}")

    def _progress(self) -> tuple[int, ...]:
        return (len(self._positions), *(len(each.seen) for each in self._followers))

    def _answered(self, batch: batches.Batch, outcomes: Sequence[batches.Outcome]) -> None:
        for submission, outcome in zip(batch, outcomes, strict=True):
            match outcome:
                case batches.Refused():
                    self._refused.append(f"{submission.signal.uuid}: {outcome.field}: {outcome.reason}")
                case event.Receipt():
                    self._positions[str(outcome.uuid)] = outcome.position
                    self._duplicates += outcome.duplicate
                    self._head = max(self._head, outcome.position)

    def _show(self, live: rich.live.Live) -> None:
        if live.console.is_terminal:
            live.update(self._table(), refresh=True)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            typer.echo(self._line())

    def _line(self) -> str:
        received = ", ".join(f"{each.name} {len(each.seen):,}" for each in self._followers)
        return f"published {len(self._positions):,} of {len(self._submissions):,}; received: {received}"

    def _table(self) -> rich.table.Table:
        rate = len(self._positions) / max(time.monotonic() - self._started, 0.001)
        table = rich.table.Table(box=None, show_header=False)
        table.add_row("published", f"{len(self._positions):,} of {len(self._submissions):,}, {rate:,.0f}/s")
        table.add_row("head", f"{self._head:,}")
        for each in self._followers:
            killed = f", killed and resumed {each.cuts} times" if each.cuts else ""
            table.add_row(each.name, f"{len(each.seen):,} received, at {each.position:,}{killed}")
        for delivered in self._followers[0].recent:
            signal = delivered.signal
            line = f"{signal.operator:6} {signal.job_status:8} {signal.namespace}/{signal.job_name}"
            table.add_row(f"{delivered.position:,}", rich.text.Text(line), style="dim")
        return table


async def _bare(source: sources.Batches) -> AsyncIterator[batches.Batch]:
    async for batch in source:
        yield [item.submission for item in batch]


async def _is_known(address: connection.Address, uuid: str) -> bool:
    """Whether the log holds this event: whether a stream can start after it."""
    try:
        async with contextlib.aclosing(subscription.follow(address, after=uuid)) as stream:
            async for _ in stream:
                return True
    except errors.ServerRefused as refused:
        if refused.status != "NOT_FOUND":
            raise
    return False
