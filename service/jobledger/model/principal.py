"""Who is asking: the one seam for identity.

Every handler and the appender take a :class:`Principal`. Until access control is set up, everybody is
anonymous and may do everything; what is known of a publisher is its address.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jobledger import errors


class Scope(StrEnum):
    """What a principal may do."""

    PUBLISH = "publish"
    """Append events."""

    SUBSCRIBE = "subscribe"
    """Follow streams."""

    READ = "read"
    """Ask for jobs."""


EVERY_SCOPE: Final = frozenset(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller, as the edge that received the call knows it."""

    publisher: str
    """What the log records of who said something, such as ``anonymous@10.0.0.7``."""

    scopes: frozenset[Scope]
    """What it may do."""

    @classmethod
    def anonymous(cls, address: str) -> Principal:
        """Somebody at an address (without its port), who may do everything."""
        return cls(publisher=f"anonymous@{address}", scopes=EVERY_SCOPE)

    def require(self, scope: Scope) -> None:
        """Go on only if the principal may do this.

        Raises:
            errors.NotPermitted: It may not.
        """
        if scope not in self.scopes:
            message = f"{self.publisher} may not {scope}; ask the operator for the scope"
            raise errors.NotPermitted(message)
