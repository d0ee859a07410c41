"""Follow the log: every event after a cursor, once, in order, over any disconnect.

::

    follow ──▶ connect ──▶ yield … ──lost──▶ back off ──▶ connect after the last uuid ──▶ yield …
                  │
                  └─ first time, nobody there; or the service says no ──▶ error
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, assert_never

import grpclib.client
from grpclib import const

from jobledger import errors
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1 as pb_ledger
from jobledger.client import connection, continuity, messages
from jobledger.model import event, selection

log = logging.getLogger(__name__)

METHOD = "/jobledger.v1.Ledger/Subscribe"

SILENCE_SECONDS = 35.0
"""How long a stream may say nothing before it is taken for dead: three heartbeats of 10 s, and some."""

BREATH_MESSAGES = 64
"""Messages after which others get their turn: as long as a replay's data is there, nothing else would run."""

_STARTS = {
    selection.StartFrom.SNAPSHOT: pb_job.StartFrom.SNAPSHOT,
    selection.StartFrom.EARLIEST: pb_job.StartFrom.EARLIEST,
    selection.StartFrom.LATEST: pb_job.StartFrom.LATEST,
}


async def follow(
    address: connection.Address,
    *,
    after: str = "",
    epoch: str = "",
    start_from: selection.StartFrom = selection.StartFrom.SNAPSHOT,
    only: selection.Filter = selection.EVERYTHING,
) -> AsyncGenerator[messages.Message]:
    """Yields what the log holds after ``after``, else from ``start_from``, then what comes, without end.

    A lost connection is taken up again where it broke, with waits in between, for as long as it takes;
    ``CaughtUp`` then comes once more. Close it with ``contextlib.aclosing``; cancelling is safe.

    Raises:
        errors.ServerUnreachable: nobody answers, at the first try.
        errors.ServerRefused: the service does not go on from there; the message says what to do.
        errors.StreamBroken: a position was left out or repeated.
        errors.InvalidRequest: ``after`` cannot be sent.
    """
    standing = _Standing(after=after, epoch=epoch, start_from=start_from)
    backoff = connection.Backoff()
    problem = ""
    while True:
        try:
            async with contextlib.aclosing(_connected(address, standing, only)) as stream:
                async for message in stream:
                    backoff.reset()
                    yield message
        except connection.AskedBack as lost:
            problem = str(lost)
        except connection.Lost as lost:
            if not standing.began:
                raise connection.never_there(address, lost) from lost
            problem = str(lost)
        except errors.ServerUnreachable as unreachable:
            if not standing.began:
                raise
            problem = str(unreachable)
        where = f"after {standing.after}" if standing.after else "where it began"
        log.info("%s: %s; resuming %s", address, problem, where)
        await backoff.wait()


@dataclass(slots=True, kw_only=True)
class _Standing:
    """Where a subscription stands, over its connections."""

    after: str
    """The last uuid handed over; empty before the first."""

    epoch: str
    """The ledger epoch under which it was received."""

    start_from: selection.StartFrom
    began: bool = False
    """Whether the service ever opened the stream: only then is it worth to come back to."""

    seen: event.Position = continuity.BEFORE_FIRST
    """Events up to here are not handed over again; used while there is no uuid to resume after."""

    def opened(self, start: event.Position | None) -> None:
        """A stream has begun; of one from the latest event nothing may be lost from now on, uuid or not."""
        self.began = True
        if start is not None and not self.after and self.start_from is selection.StartFrom.LATEST:
            self._settle(start)

    def take(self, message: messages.Message, epoch: str) -> bool:
        """Notes what a message says; whether it is to be handed over."""
        match message:
            case messages.Delivered() | messages.Skipped():
                if not self.after and message.position <= self.seen:
                    return False
                self._cursor(message.uuid, epoch)
            case messages.Heartbeat():
                self._cursor(message.uuid, epoch)
            case messages.CaughtUp():
                if not self.after:
                    self._settle(message.position)
            case _:
                assert_never(message)
        return True

    def _cursor(self, uuid: str, epoch: str) -> None:
        if uuid:
            self.after, self.epoch = uuid, epoch

    def _settle(self, position: event.Position) -> None:
        # There is a position to go on from but no uuid: reading from the first event and passing over
        # what is known is slow, but neither loses what came meanwhile nor needs another kind of cursor.
        self.seen = max(self.seen, position)
        self.start_from = selection.StartFrom.EARLIEST


async def _connected(
    address: connection.Address, standing: _Standing, only: selection.Filter
) -> AsyncGenerator[messages.Message]:
    """One connection's messages, until it is lost."""
    # A channel of its own: a stalled stream holds up all others on its connection.
    channel = address.channel()
    stream = channel.request(
        METHOD, const.Cardinality.UNARY_STREAM, pb_ledger.SubscribeRequest, pb_ledger.SubscribeResponse
    )
    try:
        async with stream:
            await connection.start(stream, address)
            await stream.send_message(_request(standing, only), end=True)
            async with asyncio.timeout(SILENCE_SECONDS):
                await stream.recv_initial_metadata()
            start = _start_position(stream)
            epoch = connection.initial(stream, "ledger-epoch")
            standing.opened(start)
            rule = continuity.Continuity(
                start=start or continuity.BEFORE_FIRST,
                contiguous=start is not None and _contiguous(stream, only),
            )
            async with contextlib.aclosing(_read(stream)) as received:
                async for message in received:
                    if isinstance(message, messages.Delivered | messages.Skipped):
                        rule.advance(message.position)
                    if standing.take(message, epoch):
                        yield message
    except connection.FAILURES as error:
        connection.raise_for(error, stream, address)
    finally:
        channel.close()
    raise connection.Lost("the service ended the stream")


async def _read(
    stream: grpclib.client.Stream[Any, pb_ledger.SubscribeResponse],
) -> AsyncGenerator[messages.Message]:
    count = 0
    while True:
        async with asyncio.timeout(SILENCE_SECONDS):
            response = await stream.recv_message()
        if response is None:
            return
        message = messages.read(response)
        if message is not None:
            yield message
        count += 1
        if count % BREATH_MESSAGES == 0:
            await asyncio.sleep(0)


def _request(standing: _Standing, only: selection.Filter) -> pb_ledger.SubscribeRequest:
    return pb_ledger.SubscribeRequest(
        after=standing.after,
        epoch=standing.epoch,
        start_from=_STARTS[standing.start_from],
        filter=None
        if only.everything
        else pb_job.SignalFilter(
            namespace=sorted(only.namespaces),
            job_id=sorted(only.job_ids),
            frame_work=sorted(only.frameworks),
            operator=sorted(only.operators),
        ),
    )


def _start_position(stream: grpclib.client.Stream[Any, Any]) -> event.Position | None:
    text = connection.initial(stream, "start-position")
    return event.Position(int(text)) if text.isascii() and text.isdigit() else None


def _contiguous(stream: grpclib.client.Stream[Any, Any], only: selection.Filter) -> bool:
    return only.everything and connection.initial(stream, "stream-contiguous") == "true"
