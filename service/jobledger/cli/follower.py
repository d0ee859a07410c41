"""A subscriber of the demonstration, which is cut off now and then, and what it makes of the stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping

from jobledger import errors
from jobledger.client import connection, messages, subscription
from jobledger.model import event, selection

SHOWN_PROBLEMS = 5
"""Problems of one kind that are named; more are counted."""

RETRY_SECONDS = 0.5
"""Between two tries to come back while the service is away; whoever waits for us gives up in the end."""

SHOWN_EVENTS = 8
"""Last events that are kept to be shown."""


class Follower:
    """Follows the log, remembers what it saw, and is killed and started again every so many events."""

    def __init__(self, name: str, *, cut_every: int = 0, most_cuts: int = 0) -> None:
        self.name = name
        self.cuts = 0
        self.seen: list[tuple[event.Position, str]] = []
        self.skipped = 0
        self.recent: deque[messages.Delivered] = deque(maxlen=SHOWN_EVENTS)
        self.caught_up = asyncio.Event()
        self._cut_every = cut_every
        self._most_cuts = most_cuts

    @property
    def position(self) -> event.Position:
        """The last position seen; 0 before the first."""
        return self.seen[-1][0] if self.seen else event.Position(0)

    async def run(self, address: connection.Address, start_from: selection.StartFrom) -> None:
        """Follows until cancelled; after each cut a new client goes on from the last uuid alone."""
        while True:
            after = self.seen[-1][1] if self.seen else ""
            stream = subscription.follow(address, after=after, start_from=start_from)
            try:
                async with contextlib.aclosing(stream):
                    async for message in stream:
                        if self._take(message):
                            break
            except errors.ServerUnreachable:
                if not self.seen:
                    raise
                # A new client takes a service that is down for one that was never there.
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.cuts += 1

    def problems(self, published: Mapping[str, event.Position]) -> Iterator[str]:
        """What is wrong with what it saw: nothing, if every published event came once and in order."""
        for (before, _), (after, uuid) in zip(self.seen, self.seen[1:], strict=False):
            if after != before + 1:
                yield f"{self.name}: position {before} was followed by {after} ({uuid})"
        times = Counter(uuid for _, uuid in self.seen)
        wrong = {uuid: times[uuid] for uuid in published if times[uuid] != 1}
        for uuid, count in list(wrong.items())[:SHOWN_PROBLEMS]:
            yield f"{self.name}: the event at position {published[uuid]} ({uuid}) came {count} times"
        if len(wrong) > SHOWN_PROBLEMS:
            yield f"{self.name}: and {len(wrong) - SHOWN_PROBLEMS} more came not once"
        moved = sum(1 for position, uuid in self.seen if published.get(uuid, position) != position)
        if moved:
            yield f"{self.name}: {moved} events came at other positions than their receipts say"

    def _take(self, message: messages.Message) -> bool:
        """Notes a message; whether it is time to be cut off."""
        match message:
            case messages.Delivered():
                self.recent.append(message)
                self.seen.append((message.position, message.uuid))
                return self.cuts < self._most_cuts and len(self.seen) % self._cut_every == 0
            case messages.Skipped():
                self.skipped += 1
                self.seen.append((message.position, message.uuid))
            case messages.CaughtUp():
                self.caught_up.set()
            case messages.Heartbeat():
                pass
        return False
