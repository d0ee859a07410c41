"""Publish events: batches in, receipts out, in order, each event once.

::

    batches ──▶ unanswered (bounded) ──▶ service ──▶ receipts, in the batches' order
                     └──── connection lost: all of them again, with the same uuids

An event without a uuid gets one here, before it is sent: so a batch whose answer was lost is recognised
when it comes again, and becomes no second event.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any

import grpclib.client
from grpclib import const
from msgspec import structs

from jobledger import errors
from jobledger._proto.jobledger import v1 as pb_ledger
from jobledger.client import batches, connection
from jobledger.model import event

log = logging.getLogger(__name__)

IN_FLIGHT_BATCHES = 8
"""Batches sent and not yet answered: enough to keep the service's group commit busy over a round trip."""

PATIENCE_SECONDS = 60.0
"""How long to go on trying without a single answer: longer than a restart, shorter than anybody waits."""

UNANSWERED_TRIES = 3
"""Connections that may be lost before any answer: a restart, while there was nothing to publish yet, costs
one or two; what is no JobLedger ends every one."""


OnOutcomes = Callable[[batches.Batch, Sequence[batches.Outcome]], None]
"""Takes a batch and what became of its events, in their order."""


async def append(address: connection.Address, batch: batches.Batch) -> list[batches.Outcome]:
    """Publishes a few events in one call; their outcomes, in their order.

    Not tried again: when it fails, the same events (with the same uuids) may be sent once more.

    Raises:
        errors.ServerUnreachable: nobody answers, or the answer was lost.
        errors.ServerRefused: the call as a whole was refused.
    """
    channel = address.channel()
    stream = channel.request(
        "/jobledger.v1.Ledger/Append",
        const.Cardinality.UNARY_UNARY,
        pb_ledger.AppendRequest,
        pb_ledger.AppendResponse,
    )
    try:
        async with stream:
            await connection.start(stream, address)
            await stream.send_message(batches.request(batch), end=True)
            response = await stream.recv_message()
    except connection.FAILURES as error:
        try:
            connection.raise_for(error, stream, address)
        except connection.Lost as lost:
            raise errors.ServerUnreachable(str(address), str(lost)) from error
    finally:
        channel.close()
    if response is None:
        raise errors.ServerUnreachable(str(address), "it ended the call without an answer")
    return batches.outcomes(response)


async def publish(
    address: connection.Address, source: AsyncIterable[batches.Batch], on_outcomes: OnOutcomes
) -> None:
    """Publishes all batches; ``on_outcomes`` is called for each, in their order, as it is answered.

    A lost connection is taken up again. Cancelling is safe: what was not answered may be published again.

    Raises:
        errors.ServerUnreachable: nobody answers, at the first try or for longer than a minute.
        errors.ServerRefused: the call as a whole was refused.
    """
    publisher = _Publisher(on_outcomes)
    pump = asyncio.create_task(publisher.pump(source))
    try:
        await publisher.run(address)
        await pump  # whatever reading the batches raised
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


class _Publisher:
    """What outlives a connection: the batches that are not answered yet."""

    def __init__(self, on_outcomes: OnOutcomes) -> None:
        self._on_outcomes = on_outcomes
        self._waiting: asyncio.Queue[batches.Batch | None] = asyncio.Queue(maxsize=1)
        self._unanswered: deque[batches.Batch] = deque()
        self._room = asyncio.Event()
        self._exhausted = False
        self._answered = False

    async def pump(self, source: AsyncIterable[batches.Batch]) -> None:
        """Reads the batches in a task of its own: a lost connection must not cancel whoever makes them."""
        try:
            async for batch in source:
                if batch:
                    await self._waiting.put([_identified(submission) for submission in batch])
        except Exception:
            await self._waiting.put(None)
            raise
        # Not when cancelled: nobody takes it then, and there may be no room for it.
        await self._waiting.put(None)

    async def run(self, address: connection.Address) -> None:
        """Connects until everything is answered."""
        backoff = connection.Backoff()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        there, losses = False, 0
        while True:
            self._answered = False
            try:
                await self._converse(address)
            except connection.AskedBack as lost:
                there = True
                problem = errors.ServerUnreachable(str(address), str(lost))
            except connection.Lost as lost:
                problem = errors.ServerUnreachable(str(address), str(lost))
                losses += 1
                if losses == UNANSWERED_TRIES and not (there or self._answered):
                    raise connection.never_there(address, lost) from lost
            except errors.ServerUnreachable as unreachable:
                problem = unreachable
            else:
                return
            if self._answered:
                there = True
                backoff.reset()
                deadline = loop.time() + PATIENCE_SECONDS
            if not (there or losses) or loop.time() > deadline:
                raise problem
            log.info("%s; trying again", problem)
            await backoff.wait()

    async def _converse(self, address: connection.Address) -> None:
        """One connection: sends again what was not answered, then what comes, until all is answered."""
        channel = address.channel()
        stream = channel.request(
            "/jobledger.v1.Ledger/AppendStream",
            const.Cardinality.STREAM_STREAM,
            pb_ledger.AppendRequest,
            pb_ledger.AppendResponse,
        )
        try:
            async with stream:
                await connection.start(stream, address)
                await _both(self._send(stream), self._receive(stream))
        except connection.FAILURES as error:
            connection.raise_for(error, stream, address)
        finally:
            channel.close()
        if self._unanswered:
            raise connection.Lost("the service ended the stream before the last answer")

    async def _send(self, stream: grpclib.client.Stream[pb_ledger.AppendRequest, Any]) -> None:
        for batch in tuple(self._unanswered):
            await stream.send_message(batches.request(batch))
        while not self._exhausted:
            while len(self._unanswered) >= IN_FLIGHT_BATCHES:
                self._room.clear()
                await self._room.wait()
            # From here to the append nothing may wait: a batch taken and not kept would be lost.
            batch = await self._waiting.get()
            if batch is None:
                self._exhausted = True
            else:
                self._unanswered.append(batch)
                await stream.send_message(batches.request(batch))
        await stream.end()

    async def _receive(self, stream: grpclib.client.Stream[Any, pb_ledger.AppendResponse]) -> None:
        while (response := await stream.recv_message()) is not None:
            self._answered = True
            self._on_outcomes(self._unanswered[0], batches.outcomes(response))
            self._unanswered.popleft()
            self._room.set()


async def _both(sending: Any, receiving: Any) -> None:
    """Runs both to their end; the first failure ends the other and is raised as it is."""
    tasks = [asyncio.create_task(sending), asyncio.create_task(receiving)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _identified(submission: event.Submission) -> event.Submission:
    if submission.signal.uuid:
        return submission
    signal = structs.replace(submission.signal, uuid=str(uuid.uuid4()))
    return structs.replace(submission, signal=signal)
