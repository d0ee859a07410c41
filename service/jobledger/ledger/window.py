"""The newest events, shared by all subscribers, bounded in bytes.

::

    page │ page │ page │ … │ newest page        first ─────────────▶ last = head
    ◀ dropped when too many bytes               no gap between them, ever
"""

from __future__ import annotations

from bisect import bisect_right

from jobledger.ledger import page
from jobledger.model import event

MERGED_EVENTS = 256
"""Events up to which neighbours are joined: live events come one by one, and a reader a little behind
should not pay a write for each."""

MERGED_BYTES = 256 * 1024
"""The same in bytes."""


class Window:
    """Pages without a gap up to the head; the oldest go when there are too many bytes."""

    def __init__(self, *, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pages: list[page.Page] = []
        self._firsts: list[int] = []
        self.size_bytes = 0

    def extend(self, newest: page.Page) -> None:
        """Add the page that follows the last one; one that does not follow starts the window anew."""
        if self._pages and self._pages[-1].last + 1 != newest.first:
            self.clear()
        self._push(newest)
        while len(self._pages) > 1 and _worth_joining(*self._pages[-2:]):
            later, earlier = self._pop(), self._pop()
            self._push(page.Page.joined(earlier, later))
        while self.size_bytes > self._limit_bytes and len(self._pages) > 1:
            self.size_bytes -= self._pages.pop(0).size_bytes
            self._firsts.pop(0)

    def find(self, after: int) -> page.Page | None:
        """The page that holds the event after a position; None if it is older than the window, or to come."""
        index = bisect_right(self._firsts, after + 1) - 1
        if index < 0 or self._pages[index].last <= after:
            return None
        return self._pages[index]

    def clear(self) -> None:
        """Forget everything."""
        self._pages.clear()
        self._firsts.clear()
        self.size_bytes = 0

    @property
    def last(self) -> event.Position:
        """The newest position in it; 0 if it is empty."""
        return self._pages[-1].last if self._pages else event.Position(0)

    def _push(self, added: page.Page) -> None:
        self._pages.append(added)
        self._firsts.append(added.first)
        self.size_bytes += added.size_bytes

    def _pop(self) -> page.Page:
        self._firsts.pop()
        taken = self._pages.pop()
        self.size_bytes -= taken.size_bytes
        return taken


def _worth_joining(earlier: page.Page, later: page.Page) -> bool:
    """Whether a join is paid for: only with a page that is no larger, so an event is copied a few times."""
    return (
        len(earlier) <= len(later)
        and len(earlier) + len(later) <= MERGED_EVENTS
        and earlier.size_bytes + later.size_bytes <= MERGED_BYTES
    )
