"""What both services do for a subscriber: find the start, say where it is, and hand over what follows."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

from jobledger import errors
from jobledger.ledger import clients, start, subscription
from jobledger.model import selection
from jobledger.model.principal import Principal
from jobledger.rpc import streaming

LAST_SEEN_UUID: Final = "last-seen-uuid"
START_FROM: Final = "start-from"
LEDGER_EPOCH: Final = "ledger-epoch"
"""Request metadata for clients that cannot regenerate their stubs."""

Identify: TypeAlias = Callable[[streaming.Call], Principal]
"""Who makes a call."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribing:
    """What a process gives to its subscribers."""

    reader: subscription.Reader
    starts: start.Starts
    clients: clients.Clients
    quiet_seconds: float
    """Silence after which a stream of our own service says how far it has looked."""

    refusal_delay_seconds: float
    """How long a refusal waits: the public client retries at once, in a loop."""

    list_limit_bytes: int
    """The largest JobSummarySignalList."""

    async def find_start(self, call: streaming.Call, request: selection.StreamRequest) -> subscription.Start:
        """Where the stream starts; the call's resume uuid is that cursor until something was sent."""
        found = await self.starts.find(request)
        call.resume_uuid = str(found.uuid or "")
        return found

    @contextlib.asynccontextmanager
    async def unhurried_refusals(self) -> AsyncGenerator[None]:
        """Delay what ends a call before it began, so that a client that retries at once does little harm."""
        try:
            yield
        except (errors.SubscriptionRefused, errors.CursorError):
            await asyncio.sleep(self.refusal_delay_seconds)
            raise


def with_metadata(call: streaming.Call, request: selection.StreamRequest) -> selection.StreamRequest:
    """The request with what its metadata says where its fields say nothing.

    Raises:
        errors.InvalidRequest: Metadata and field disagree, or ``start-from`` is no known word.
    """
    return replace(
        request,
        after=_agreed(LAST_SEEN_UUID, request.after, call.header(LAST_SEEN_UUID)),
        epoch=_agreed(LEDGER_EPOCH, request.epoch, call.header(LEDGER_EPOCH)),
        start_from=_start_from(call.header(START_FROM), request.start_from),
    )


def _agreed(name: str, field: str, header: str) -> str:
    if field and header and _normal(field) != _normal(header):
        message = (
            f"metadata {name} is {errors.shown(header)}, but the request says {errors.shown(field)}; "
            "send one of them, or the same twice"
        )
        raise errors.InvalidRequest(message)
    return field or header


def _normal(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        return text


def _start_from(header: str, field: selection.StartFrom | None) -> selection.StartFrom | None:
    if not header:
        return field
    try:
        word = selection.StartFrom(header)
    except ValueError:
        allowed = ", ".join(selection.StartFrom)
        message = f"metadata {START_FROM} is {errors.shown(header)}; use one of {allowed}"
        raise errors.InvalidRequest(message) from None
    if field is not None and field != word:
        message = f"metadata {START_FROM} is {header}, but startFrom says {field}; send one of them"
        raise errors.InvalidRequest(message)
    return word


async def announce(call: streaming.Call, found: subscription.Start, wanted: selection.Filter) -> None:
    """Open the answer and say where the stream stands, before there is anything to deliver."""
    _log.info("stream started after position %d of %d", found.after, found.head)
    await call.send_initial_metadata(
        {
            "ledger-epoch": str(found.epoch),
            "ledger-head": str(found.head),
            "start-position": str(found.after),
            "stream-contiguous": "true" if wanted.everything else "false",
        }
    )
