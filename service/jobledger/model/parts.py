"""Parts: a rank table that comes in several signals, and which of them have come.

::

    part ──first, or it cannot join──▶ a generation of one
         ──joins the generation──────▶ the generation and one more ──all have come──▶ complete

What is shown is the last table that was complete; see ``jobledger.model.job``.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from jobledger.model import ranktable
from jobledger.model.signal import Signal


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one rank table that have come, in the order of their positions; never none."""

    total: int
    """How many make the table; above 1."""

    server_count: int
    """How many servers the table has, as each part says."""

    places: tuple[int | None, ...]
    """The cmIndex of each part; one None for a part that names none of its places, which stays alone."""

    digests: tuple[bytes, ...]
    """sha256 of the HcclJson of each part."""

    @property
    def complete(self) -> bool:
        """Whether all have come."""
        return len(self.places) == self.total

    @property
    def digest(self) -> bytes:
        """What tells the joined table from another."""
        return hashlib.sha256(b"".join(self.digests)).digest()

    def takes(self, part: Generation) -> bool:
        """Whether a part belongs to it and is not there yet."""
        return (
            (part.total, part.server_count) == (self.total, self.server_count)
            and None not in part.places + self.places
            and part.places[0] not in self.places
        )

    def with_part(self, part: Generation) -> Generation:
        """The generation and a part that it takes."""
        return msgspec.structs.replace(
            self, places=self.places + part.places, digests=self.digests + part.digests
        )


_DECODER: Final = msgspec.json.Decoder(Generation)


def of(signal: Signal) -> Generation | None:
    """An add's part as a generation of one; None if the signal is whole."""
    total = int(signal.total) if signal.total else 0
    server_count = ranktable.missing_servers_of(signal.hccl_json) if total > 1 else None
    if server_count is None:
        return None
    place = int(signal.cm_index) if signal.cm_index else total
    return Generation(
        total=total,
        server_count=server_count,
        places=(place if place < total else None,),
        digests=(hashlib.sha256(signal.hccl_json.encode()).digest(),),
    )


def encode(generation: Generation) -> str:
    """The generation as text, always the same for the same."""
    return msgspec.json.encode(generation).decode()


def decode(text: str) -> Generation:
    """The generation that :func:`encode` wrote.

    Raises:
        msgspec.DecodeError: It did not.
    """
    return _DECODER.decode(text)
