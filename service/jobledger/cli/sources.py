"""Where ``publish`` takes events from: lines as they arrive, or a trace; in batches, each event labelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobledger import errors
from jobledger.cli import lines
from jobledger.model import event
from jobledger.trace import events, pods

CHUNK_BYTES = 256 * 1024
"""Bytes read at a time."""

LINE_BYTES = 15 * 1024 * 1024
"""Longest line: below the service's limit of 16 MiB a request, which would end the call for its neighbours
too."""

BATCH_EVENTS = 500
"""Most events sent together; a service commits about as many at once."""

BATCH_BYTES = 1024 * 1024
"""A batch that is this large already is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An event and where it came from."""

    label: str
    """Such as ``line 17``."""

    size: int
    """What it adds to the progress: its bytes in a file, 1 in a trace."""

    submission: event.Submission


OnRefused = Callable[[str, str], None]
"""Takes the label of something that is no event, and why."""

Batches = AsyncIterator[Sequence[Item]]


async def from_lines(file: int, on_refused: OnRefused) -> Batches:
    """Events from JSON lines of an open file, pipe or terminal, as soon as they are there."""
    number = 0
    async for chunk in _whole_lines(file):
        batch: list[Item] = []
        size = 0
        for line in chunk:
            number += 1
            label = f"line {number}"
            if not line.strip():
                continue
            if len(line) > LINE_BYTES:
                on_refused(label, f"longer than {LINE_BYTES} bytes, which no event may be")
                continue
            try:
                batch.append(Item(label=label, size=len(line), submission=lines.read(line)))
            except errors.EventError as error:
                on_refused(label, str(error))
                continue
            size += len(line)
            if len(batch) == BATCH_EVENTS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def of_trace(path: Path) -> Sequence[Item]:
    """Every event of Alibaba's pod list of 2023, in order."""
    return of_events(events.of(pods.read(path)))


def of_events(submissions: Sequence[event.Submission]) -> Sequence[Item]:
    """Events at hand, labelled by their place and job."""
    return [
        Item(label=f"event {number} ({submission.signal.job_id})", size=1, submission=submission)
        for number, submission in enumerate(submissions, 1)
    ]


async def from_items(items: Sequence[Item]) -> Batches:
    """Events at hand, in batches."""
    for start in range(0, len(items), BATCH_EVENTS):
        yield items[start : start + BATCH_EVENTS]


async def paced(batches: Batches, per_second: float) -> Batches:
    """The same events, no more of them in a second than asked for, in batches of a tenth of a second's."""
    loop = asyncio.get_running_loop()
    portion = max(1, round(per_second / 10))
    due = loop.time()
    async for batch in batches:
        for start in range(0, len(batch), portion):
            part = batch[start : start + portion]
            due = max(due, loop.time() - 1)  # after a pause in the source, no rush to make up for it
            await asyncio.sleep(max(0.0, due - loop.time()))
            due += len(part) / per_second
            yield part


async def _whole_lines(file: int) -> AsyncIterator[Iterator[bytes]]:
    """The lines that are there, without their ends, each time that some are."""
    rest = bytearray()
    while True:
        await _until_readable(file)
        chunk = os.read(file, CHUNK_BYTES)
        if not chunk:
            break
        whole, newline, beginning = chunk.rpartition(b"\n")
        if newline:
            rest += whole
            yield iter(bytes(rest).split(b"\n"))
            rest = bytearray(beginning)
        elif len(rest) <= LINE_BYTES:
            rest += chunk  # of a longer line the rest is read and dropped: it will be refused
    if rest:
        yield iter((bytes(rest),))


async def _until_readable(file: int) -> None:
    """Waits for a pipe or terminal without a thread, which Ctrl-C could not end."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(file, readable.set)
    except PermissionError:
        return  # epoll refuses regular files: they always are
    try:
        await readable.wait()
    finally:
        with contextlib.suppress(ValueError):
            loop.remove_reader(file)
