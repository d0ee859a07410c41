"""Times as people write them: read at the door in a zone, kept as UTC, written out in a zone.

The zone is a setting, so it is used here alone, on the way in and on the way out; between the two there
are only moments in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

FIRST_YEAR, LAST_YEAR = 2, 9998
"""Years of UTC that are taken: less than a datetime holds, so that every zone can show each of them."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_CHARACTERS = len("2023-10-13 11:22:01")
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)

_LOST_PLUS = re.compile(r" (?=\d\d:\d\d$)", re.ASCII)


def read(text: str, zone: tzinfo) -> datetime:
    """The moment of ``2023-10-13 11:22:01`` in the zone, or of RFC 3339 with an offset; in UTC.

    A local time that the zone has twice is the earlier of the two. One that it skips is read with the
    offset before the gap, so 02:30 in a gap from 02:00 to 03:00 is 03:30 (PEP 495, fold=0). Digits below
    a microsecond are cut.

    Raises:
        ValueError: it is neither, or no such day or time exists, or the year is out of range.
    """
    is_local = _LOCAL.fullmatch(text)
    if not is_local and not _RFC_3339.fullmatch(text):
        raise ValueError("is no time")
    try:
        given = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError("is no day or time that exists") from error
    try:
        moment = (given.replace(tzinfo=zone) if is_local else given).astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is out of range") from error
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError("is out of range")
    return moment


def from_query(text: str) -> str:
    """The time as it was meant: a plus sign that was not percent-encoded arrives as a space."""
    return _LOST_PLUS.sub("+", text)


def rfc_3339(text: str) -> datetime:
    """The moment of an RFC 3339 time with its offset; in UTC.

    Raises:
        ValueError: it is none, or no such day or time exists, or the year is out of range.
    """
    if not _RFC_3339.fullmatch(text):
        raise ValueError("is no time with an offset")
    return read(text, UTC)


def epoch_seconds(moment: datetime) -> int:
    """Whole seconds since 1970, as a signal's time field has them; parts of a second are cut."""
    return (moment - _EPOCH) // timedelta(seconds=1)


def local(moment: datetime, zone: tzinfo) -> str:
    """The moment as ``2023-10-13 11:22:01`` in the zone; parts of a second are cut.

    A signal's seconds reach to the end of the year 9999 in UTC, which zones to the east cannot write: there
    it is the last second that they can.
    """
    try:
        shown = moment.astimezone(zone)
    except OverflowError:
        shown = datetime.max.replace(tzinfo=zone)
    return shown.isoformat(" ")[:_LOCAL_CHARACTERS]
