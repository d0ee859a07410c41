"""A list's cursor: where the next page begins, of which position, and how many there are. Opaque to callers.

Nothing secret is in it, and one that was made up only asks for another page of what its maker may see: who is
asking is looked at on every page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

import msgspec

from jobledger import errors
from jobledger.model import chain, cwai, event, listing

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=cwai.LARGEST_INT64)]
_Text: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
"""Without what Postgres refuses: a cursor that was made up is no fault of ours."""


class _Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    list: str
    """Which list it is of."""

    at: _Count
    total: _Count
    page_no: _Count
    key: int | _Text
    job_id: _Text
    as_of: str = ""


_DECODER = msgspec.json.Decoder(_Cursor)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a list goes on."""

    at: event.Position
    total: int
    page_no: int
    after: listing.Place
    as_of: str
    """What the list was asked for to be as of; "" if as it was when the walk began."""


def write(place: Place, wanted: listing.Filter, order: listing.Order) -> str:
    """The cursor of a place in a list."""
    value, job_id = place.after
    given = _Cursor(
        list=_name(wanted, order),
        at=place.at,
        total=place.total,
        page_no=place.page_no,
        key=value if isinstance(value, str) else chain.microseconds(value),
        job_id=job_id,
        as_of=place.as_of,
    )
    return base64.urlsafe_b64encode(msgspec.json.encode(given)).decode().rstrip("=")


def read(text: str, wanted: listing.Filter, order: listing.Order) -> Place:
    """The place that a cursor of this list names.

    Raises:
        errors.InvalidRequest: It is none, or of another list.
    """
    try:
        given = _DECODER.decode(
            base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        )
        value = given.key if isinstance(given.key, str) else _EPOCH + timedelta(microseconds=given.key)
    except (binascii.Error, ValueError, OverflowError):
        raise errors.InvalidRequest("cursor is malformed; send the one that the page before gave") from None
    if given.list != _name(wanted, order) or isinstance(value, str) is not (order.sort is listing.Sort.NAME):
        raise errors.InvalidRequest(
            "cursor is that of another list; send it with the same filters, sort and isDesc, or start again"
        )
    return Place(
        at=event.Position(given.at),
        total=given.total,
        page_no=given.page_no,
        after=(value, given.job_id),
        as_of=given.as_of,
    )


def _name(wanted: listing.Filter, order: listing.Order) -> str:
    said = repr((astuple(wanted), order.sort.value, order.descending))
    return hashlib.sha256(said.encode()).hexdigest()[:16]
