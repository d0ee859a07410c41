"""A page: events next to each other in a stream, framed once for everybody who reads them."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from jobledger.model import chain, event, selection
from jobledger.store import eventlog
from jobledger.wire import delivery, eventstream, signals

CHUNK_BYTES: Final = 64 * 1024
"""What is handed to the transport in one go: large enough to be cheap, small enough to let others in."""

ENTRY_OVERHEAD_BYTES: Final = 400
"""About what an event costs in memory beside its message: its uuid and keys as Python objects."""

_log = logging.getLogger(__name__)


class Unreadable:
    """How often this process left out a row whose stored bytes were spoiled, for its metrics."""

    rows = 0
    """Counted when a page is made, so a row that is read again counts again."""


class Kind(Enum):
    """How messages are wrapped for a stream."""

    SIGNAL = "JobSummarySignal"
    LIST = "JobSummarySignalList"
    LEDGER = "SubscribeResponse"
    SERVER_SENT = "text/event-stream"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What is known of one event of a page beside its message."""

    position: event.Position
    uuid_bytes: bytes
    recorded_at_ms: int
    keys: selection.Keys

    @property
    def uuid(self) -> UUID:
        """Of the event."""
        return UUID(bytes=self.uuid_bytes)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Frames to be sent in one go."""

    data: bytes
    last_uuid: UUID
    """The last event in it: where to resume once it was handled."""


class _Frames:
    """The frames of a page in one kind, joined to chunks that all unfiltered readers share."""

    __slots__ = ("_data", "_offsets", "_starts", "_stop")

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._stop = len(frames)
        self._starts = array("I")
        self._offsets = array("I")
        self._data: list[bytes] = []
        pending: list[bytes] = []
        size = 0
        for index, frame in enumerate(frames):
            if not pending or size + len(frame) > CHUNK_BYTES:
                if pending:
                    self._data.append(b"".join(pending))
                self._starts.append(index)
                pending, size = [], 0
            self._offsets.append(size)
            pending.append(frame)
            size += len(frame)
        self._data.append(b"".join(pending))

    def chunks(self, start: int) -> Iterator[tuple[bytes, int]]:
        """Joined frames from an index on, each with the index behind its last one."""
        for number in range(bisect_right(self._starts, start) - 1, len(self._data)):
            stop = self._starts[number + 1] if number + 1 < len(self._starts) else self._stop
            offset = self._offsets[start] if self._starts[number] < start else 0
            yield (self._data[number][offset:] if offset else self._data[number]), stop

    def frame(self, index: int) -> bytes:
        """One event's frame; empty if it cannot be read."""
        number = bisect_right(self._starts, index) - 1
        follower = index + 1
        same_chunk = follower < self._stop and not (
            number + 1 < len(self._starts) and self._starts[number + 1] == follower
        )
        return self._data[number][self._offsets[index] : self._offsets[follower] if same_chunk else None]


_Make: TypeAlias = Callable[[], tuple[Sequence[Entry], Sequence[bytes]]]
"""Gives a page's entries, and each one's frame of :attr:`Kind.SIGNAL`."""


class Page:
    """Events in ascending position order, at least one; immutable, shared, framed once a kind.

    Framed when somebody reads it: the appender, which makes the newest, does not wait for that. Messages are
    kept as frames of :attr:`Kind.SIGNAL`; the other kinds are made from those when somebody asks for them.
    """

    __slots__ = ("_entries", "_frames", "_make", "_positions", "lists", "size_bytes")

    def __init__(self, positions: array[int], size_bytes: int, make: _Make) -> None:
        self._positions = positions
        self._make: _Make | None = make
        self._entries: Sequence[Entry] = ()
        self._frames: dict[Kind, _Frames] = {}
        self.size_bytes = size_bytes
        """About what it costs in memory."""

        self.lists: Sequence[Chunk] | None = None
        """A snapshot's page as the lists that all its readers get, once somebody asked for them."""

    @classmethod
    def of(cls, rows: Sequence[eventlog.Stored]) -> Page:
        """A page of rows; one that nobody could parse is left out, loudly, when the page is read."""
        return cls(
            array("q", [row.position for row in rows]),
            sum([len(row.signal) + len(row.hccl or "") + ENTRY_OVERHEAD_BYTES for row in rows]),
            lambda: ([_entry(row) for row in rows], [_signal_frame(row) for row in rows]),
        )

    @classmethod
    def joined(cls, earlier: Page, later: Page) -> Page:
        """Two neighbours as one."""
        return cls(
            earlier._positions + later._positions,
            earlier.size_bytes + later.size_bytes,
            lambda: (
                [*earlier.entries, *later.entries],
                [each.frame(index) for each in (earlier, later) for index in range(len(each))],
            ),
        )

    def __len__(self) -> int:
        """How many events."""
        return len(self._positions)

    @property
    def entries(self) -> Sequence[Entry]:
        """What is known of each event."""
        self._ensure_made()
        return self._entries

    @property
    def first(self) -> event.Position:
        """The position of its first event."""
        return event.Position(self._positions[0])

    @property
    def last(self) -> event.Position:
        """The position of its last event."""
        return event.Position(self._positions[-1])

    def index_after(self, position: int) -> int:
        """The index of the first event after a position."""
        return bisect_right(self._positions, position)

    def frame(self, index: int) -> bytes:
        """One event as a JobSummarySignal behind its prefix; empty if it cannot be read."""
        return self._framed(Kind.SIGNAL).frame(index)

    def chunks(self, kind: Kind, start: int, wanted: selection.Filter) -> Iterator[Chunk]:
        """What a stream sends of the events from an index on; perhaps nothing."""
        frames = self._framed(kind)
        if wanted.everything:
            for data, stop in frames.chunks(start):
                if data:
                    yield Chunk(data, self.entries[stop - 1].uuid)
            return
        entries = self.entries
        pending: list[bytes] = []
        size = 0
        last = start
        for index in range(start, len(entries)):
            if not wanted.matches(entries[index].keys):
                continue
            frame = frames.frame(index)
            if pending and size + len(frame) > CHUNK_BYTES:
                yield Chunk(b"".join(pending), entries[last].uuid)
                pending, size = [], 0
            pending.append(frame)
            size += len(frame)
            last = index
        if size:
            yield Chunk(b"".join(pending), entries[last].uuid)

    def _ensure_made(self) -> None:
        """Make what is only made when it is asked for, and let go of what it is made from."""
        if self._make is not None:
            self._entries, frames = self._make()
            self._frames[Kind.SIGNAL] = _Frames(frames)
            self._make = None

    def _framed(self, kind: Kind) -> _Frames:
        self._ensure_made()
        framed = self._frames.get(kind)
        if framed is None:
            signal_frames = map(self.frame, range(len(self)))
            wrap = _WRAPPERS[kind]
            framed = _Frames([wrap(*pair) for pair in zip(self.entries, signal_frames, strict=True)])
            self._frames[kind] = framed
        return framed


def _entry(row: eventlog.Stored) -> Entry:
    return Entry(
        event.Position(row.position),
        row.uuid_bytes,
        chain.microseconds(row.recorded_at) // 1000,
        selection.Keys(
            row.job_id, row.operator, row.namespace, row.framework, row.left_namespace, row.left_framework
        ),
    )


def _signal_frame(row: eventlog.Stored) -> bytes:
    spoiled = None
    if not signals.readable(row.signal):
        spoiled = "stored signal"
    elif not eventlog.recordable(row.recorded_at):
        spoiled = "recorded_at"
    if spoiled is not None:
        Unreadable.rows += 1
        _log.error("position %d (%s) cannot be read: its %s was spoiled", row.position, row.uuid, spoiled)
        return b""
    return delivery.frame(
        delivery.signal(
            stored=row.signal,
            hccl=row.hccl,
            position=event.Position(row.position),
            recorded_at=row.recorded_at,
        )
    )


def _as_list(each: Entry, frame: bytes) -> bytes:
    if not frame:
        return b""
    message = frame[delivery.PREFIX_BYTES :]
    return delivery.frame(delivery.list_of([message], report_time_ms=each.recorded_at_ms, jobs=1))


def _as_ledger_event(each: Entry, frame: bytes) -> bytes:
    if not frame:
        return delivery.frame(delivery.ledger_skipped(each.position, each.uuid))
    return delivery.frame(delivery.ledger_event(frame[delivery.PREFIX_BYTES :]))


def _as_server_sent(each: Entry, frame: bytes) -> bytes:
    if not frame:
        return eventstream.skipped(each.position, each.uuid)
    return eventstream.signal(
        frame[delivery.PREFIX_BYTES :],
        position=each.position,
        uuid=each.uuid,
        recorded_at_ms=each.recorded_at_ms,
    )


_WRAPPERS: Final[dict[Kind, Callable[[Entry, bytes], bytes]]] = {
    Kind.LIST: _as_list,
    Kind.LEDGER: _as_ledger_event,
    Kind.SERVER_SENT: _as_server_sent,
}
