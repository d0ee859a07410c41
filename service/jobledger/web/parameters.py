"""What a request says outside of its body: in the path, the query and the headers.

Read here and not by the framework, which replaces what is not UTF-8 and decodes ``%25`` and ``%2F`` in an
id differently from all else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import unquote, unquote_plus

from aiohttp import web

from jobledger import errors
from jobledger.ledger import admission

PATH_PREFIX: Final = "jobID="
"""The document's own example writes ``/v4/cwai/job/jobID=81f7…``; as ``jobID%3D`` it is part of the id."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Parameters:
    """The parameters of one request; "" stands for one that is not given or is empty.

    Raises:
        errors.InvalidRequest: The query is not UTF-8.
    """

    def __init__(self, request: web.BaseRequest, path_id: str) -> None:
        self._path_id = path_id
        self._headers = request.headers
        try:
            self._query = _query(request.rel_url.raw_query_string)
        except UnicodeError:
            raise errors.InvalidRequest("the query is not UTF-8; percent-encode it as UTF-8") from None

    def job_id(self, *, in_body: str = "") -> str:
        """The job that the request is about.

        Raises:
            errors.InvalidRequest: None is named, two are, or it cannot be one.
        """
        job_id = _agreed("jobID", path=self._id_in_path(), query=self.query("jobID"), body=in_body)
        if not job_id:
            raise errors.InvalidRequest("jobID is missing; name the job")
        if len(job_id) > admission.JOB_ID_CHARACTERS:
            raise errors.InvalidRequest(
                f"jobID {errors.shown(job_id)} has {len(job_id)} characters; "
                f"it may have {admission.JOB_ID_CHARACTERS}"
            )
        return _checked("jobID", job_id)

    def region(self, *, in_body: str = "") -> str:
        """The region that the request is about.

        Raises:
            errors.InvalidRequest: None is named, or two are.
        """
        region = _agreed(
            "regionID", query=self.query("regionID"), header=self.header("regionID"), body=in_body
        )
        if not region:
            raise errors.InvalidRequest("regionID is missing; give it as a query parameter or as a header")
        if len(region) > admission.NAME_CHARACTERS:
            raise errors.InvalidRequest(
                f"regionID {errors.shown(region)} has {len(region)} characters; "
                f"it may have {admission.NAME_CHARACTERS}"
            )
        return _checked("regionID", region)

    def uuid(self, *, in_body: str = "") -> str:
        """The idempotency key of a write, unchecked.

        Raises:
            errors.InvalidRequest: Two are given.
        """
        return _agreed("uuid", query=self.query("uuid"), body=in_body)

    def names(self) -> Collection[str]:
        """The names in the query."""
        return self._query.keys()

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false; false if it is not given.

        Raises:
            errors.InvalidRequest: It is something else.
        """
        given = self.query(name)
        if given not in ("", "true", "false"):
            raise errors.InvalidRequest(f"{name} {errors.shown(given)} is unknown; allowed are true, false")
        return given == "true"

    def number(self, name: str, *, default: int, smallest: int = 1, largest: int) -> int:
        """A query parameter that is a whole number.

        Raises:
            errors.InvalidRequest: It is something else, or too small or large.
        """
        given = self.query(name)
        if not given:
            return default
        if not (given.isascii() and given.isdigit() and len(given) <= len(str(largest))):
            raise errors.InvalidRequest(f"{name} {errors.shown(given)} is no whole number")
        if not smallest <= int(given) <= largest:
            raise errors.InvalidRequest(f"{name} is {given}; allowed is from {smallest} to {largest}")
        return int(given)

    def query(self, name: str) -> str:
        """A query parameter.

        Raises:
            errors.InvalidRequest: It is given twice, or holds control characters.
        """
        values = self._query.get(name)
        return _single("query parameter", name, values) if values else ""

    def header(self, name: str) -> str:
        """A header.

        Raises:
            errors.InvalidRequest: It is given twice, or is not UTF-8.
        """
        values = self._headers.getall(name, None)
        return _single("header", name, values) if values else ""

    def _id_in_path(self) -> str:
        try:
            return unquote(self._path_id.removeprefix(PATH_PREFIX), errors="strict")
        except UnicodeError:
            raise errors.InvalidRequest(
                "jobID in the path is not UTF-8; percent-encode it as UTF-8"
            ) from None


def _query(raw: str) -> dict[str, list[str]]:
    """The query's parameters, as urllib's parse_qs finds them in five times the time."""
    found: dict[str, list[str]] = {}
    for pair in raw.split("&"):
        if pair:
            name, _, value = pair.partition("=")
            found.setdefault(_unquoted(name), []).append(_unquoted(value))
    return found


def _unquoted(text: str) -> str:
    return unquote_plus(text, errors="strict") if "%" in text or "+" in text else text


def _single(kind: str, name: str, values: Sequence[str]) -> str:
    if len(values) > 1:
        raise errors.InvalidRequest(f"{kind} {name} is given {len(values)} times; give it once")
    return _checked(f"{kind} {name}", values[0])


def _checked(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()) and _CONTROL.search(value):
        raise errors.InvalidRequest(
            f"{name} {errors.shown(value)} is not UTF-8 or holds control characters; leave them out"
        )
    return value


def _agreed(name: str, **given: str) -> str:
    """The one value of a parameter that may stand in several places."""
    values = {value for value in given.values() if value}
    if len(values) > 1:
        places = ((place, value) for place, value in given.items() if value)
        said = ", ".join(f"{errors.shown(value)} in the {place}" for place, value in places)
        raise errors.InvalidRequest(f"{name} is {said}; give one")
    return values.pop() if values else ""
