"""What a caller asks a list for: the same names in a body and in a query; whatever else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from jobledger import errors
from jobledger.model import listing, moment
from jobledger.model.searchkeys import STATUS_WORDS

PAGE_SIZE: Final = 10
LARGEST_PAGE: Final = 500
LARGEST_DETAILED_PAGE: Final = 50
"""With ``detail``: a job may have 5,000 pods."""

LARGEST_PAGE_NUMBER: Final = 1_000_000

Text: TypeAlias = Annotated[str, Meta(max_length=1024)]
Time: TypeAlias = Annotated[
    str, Meta(max_length=64, description="YYYY-MM-DD HH:MM:SS in the configured zone, or RFC 3339; included")
]

_JOB_STATUSES: Final = {word: status for status, word in STATUS_WORDS.items()}


class ListRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a list is asked for; "" is not given."""

    region_id: Text = msgspec.field(default="", name="regionID")
    status: Text = ""
    """Pending, Running, Succeeded or Failed, by jobStatus."""

    status_text: Text = ""
    """The status as shown: a publisher's own word, exactly."""

    name: Text = ""
    """What the name begins with."""

    namespace: Text = ""
    user_id: Text = msgspec.field(default="", name="userID")
    account_id: Text = msgspec.field(default="", name="accountID")
    queue_id: Text = msgspec.field(default="", name="queueID")
    resource_group_id: Text = msgspec.field(default="", name="resourceGroupID")
    train_frame: Text = ""
    created_from: Time = ""
    created_to: Time = ""
    finished_from: Time = ""
    finished_to: Time = ""
    changed_from: Time = ""
    changed_to: Time = ""
    sort: Text = listing.Sort.CREATED
    """created, finished, changed or name; ties by jobID."""

    is_desc: bool = True
    page_no: Annotated[int, Meta(ge=1, le=LARGEST_PAGE_NUMBER)] = 1
    page_size: Annotated[int, Meta(ge=1, le=LARGEST_PAGE)] = PAGE_SIZE
    cursor: Annotated[str, Meta(max_length=8192)] = ""
    """Where an answer of this list ended: the next page, of the same moment."""

    detail: bool = False
    """Whether pods, command, envs, datasets, output and logOutput are shown; pageSize up to 50."""

    include_deleted: bool = False
    as_of: Annotated[str, Meta(max_length=64)] = ""
    """A position, an event's uuid or an RFC 3339 time: the list as it was."""


_FLAGS: Final = tuple(
    field.encode_name for field in msgspec.structs.fields(ListRequest) if field.type is bool
)
NAMES: Final = tuple(field.encode_name for field in msgspec.structs.fields(ListRequest))


def read(given: Mapping[str, object], *, as_text: bool) -> ListRequest:
    """The request that a body's object or a query's parameters make; those of a query are all text.

    Raises:
        errors.InvalidRequest: A name is unknown, or a value will not do.
    """
    for name in given:
        if name not in NAMES:
            raise errors.InvalidRequest(
                f"{errors.shown(name)} is no parameter of a list; allowed are {', '.join(NAMES)}"
            )
    given = {name: value for name, value in given.items() if value is not None and value != ""}
    for name in _FLAGS:
        value = given.get(name, False)
        if not isinstance(value, bool) and not (as_text and value in ("true", "false")):
            raise errors.InvalidRequest(
                f"{name} {errors.shown(str(value))} is unknown; allowed are true, false"
            )
    try:
        request = msgspec.convert(given, ListRequest, strict=not as_text)
    except msgspec.ValidationError as error:
        raise errors.InvalidRequest(f"the list cannot be made so: {error}") from None
    if request.detail and request.page_size > LARGEST_DETAILED_PAGE:
        raise errors.InvalidRequest(
            f"pageSize is {request.page_size}; with detail it may be up to {LARGEST_DETAILED_PAGE}"
        )
    return request


def filter_of(
    request: ListRequest, *, region: str, only_user: str, only_account: str, zone: tzinfo
) -> listing.Filter:
    """Which jobs are asked for.

    Raises:
        errors.InvalidRequest: A value is none of those allowed, or no time.
    """
    if request.status and request.status not in _JOB_STATUSES:
        raise errors.InvalidRequest(
            f"status {errors.shown(request.status)} is unknown; allowed are {', '.join(_JOB_STATUSES)}; "
            "a publisher's own word is asked for with statusText"
        )
    return listing.Filter(
        region=region,
        job_status=_JOB_STATUSES.get(request.status, ""),
        shown_status=request.status_text,
        name_prefix=request.name,
        namespace=request.namespace,
        user_id=request.user_id,
        account_id=request.account_id,
        queue_id=request.queue_id,
        resource_group_id=request.resource_group_id,
        train_frame=request.train_frame,
        created=_between(request, "created", zone),
        finished=_between(request, "finished", zone),
        changed=_between(request, "changed", zone),
        ended_too=request.include_deleted,
        only_user=only_user,
        only_account=only_account,
    )


def order_of(request: ListRequest) -> listing.Order:
    """In which order.

    Raises:
        errors.InvalidRequest: There is no such order.
    """
    try:
        return listing.Order(sort=listing.Sort(request.sort), descending=request.is_desc)
    except ValueError:
        raise errors.InvalidRequest(
            f"sort {errors.shown(request.sort)} is unknown; allowed are {', '.join(listing.Sort)}"
        ) from None


def _between(request: ListRequest, what: str, zone: tzinfo) -> listing.Between:
    return listing.Between(
        start=_time(f"{what}From", getattr(request, f"{what}_from"), zone),
        end=_time(f"{what}To", getattr(request, f"{what}_to"), zone),
    )


def _time(name: str, text: str, zone: tzinfo) -> datetime | None:
    if not text:
        return None
    try:
        return moment.read(moment.from_query(text), zone)
    except ValueError as error:
        raise errors.InvalidRequest(
            f"{name} {errors.shown(text)} {error}; write 2023-10-13 11:22:01 or RFC 3339"
        ) from None
