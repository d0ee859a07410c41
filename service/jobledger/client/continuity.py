"""The rule of a stream's positions, without any transport.

::

    1 … start          snapshot: ascending, gaps are jobs' superseded events
    start+1, +2, +3 …  replay and live: without a gap, unless the stream is filtered

``start`` is what the service names as ``start-position``. A skipped event takes its place as any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobledger import errors
from jobledger.model import event

BEFORE_FIRST = event.Position(0)
"""The start of a stream that leaves nothing out."""


@dataclass(slots=True, kw_only=True)
class Continuity:
    """How far one stream has come; asserts that it left out and repeated nothing."""

    start: event.Position
    """The stream's exclusive start; for a snapshot the head that it was read at."""

    contiguous: bool
    """Whether it carries every position: neither filtered nor limited."""

    last: event.Position = BEFORE_FIRST
    """The last position seen; 0 before the first."""

    def advance(self, position: event.Position) -> None:
        """Takes the next event's position.

        Raises:
            errors.StreamBroken: it is not one that may come next.
        """
        if self.contiguous and position > self.start:
            previous = max(self.last, self.start)
            if position != previous + 1:
                raise errors.StreamBroken(after=previous, got=position)
        elif position <= self.last:
            raise errors.StreamBroken(after=self.last, got=position)
        self.last = position
