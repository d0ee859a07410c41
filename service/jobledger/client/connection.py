"""Channels to the service, and what their failures mean to a caller."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn

import grpclib
import grpclib.client
import grpclib.config
from grpclib import const, exceptions, utils

from jobledger import errors

HIGHEST_PORT = 65_535
"""TCP's."""

CONNECT_SECONDS = 10
"""How long connecting may take: a host that drops packets does not answer at all."""

WINDOW_BYTES = 4 * 1024 * 1024
"""Flow-control window of a stream and of its connection: a subscription has a channel of its own, so that
one that reads slowly holds up nobody else."""

FIRST_WAIT_SECONDS = 0.1
"""Longest wait before the first try to reconnect: a restarted service is back at once."""

LONGEST_WAIT_SECONDS = 5.0
"""Longest wait between two tries; with thousands of clients, their jitter spreads them over it."""


FAILURES = (grpclib.GRPCError, exceptions.StreamTerminatedError, exceptions.ProtocolError, OSError)
"""What a call can fail with; ``raise_for`` tells them apart."""


class Lost(Exception):
    """The connection is gone: try again. Never reaches a caller."""


class AskedBack(Lost):
    """The service is there and asks to come back; so it is worth another try even if it never did better."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service listens for gRPC."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address from ``HOST:PORT``; IPv6 in brackets.

        Raises:
            errors.InvalidRequest: it is not of that form.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) <= HIGHEST_PORT):
            raise errors.InvalidRequest(
                f"server {errors.shown(text)} is not of the form HOST:PORT, such as 127.0.0.1:8899"
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def channel(self) -> grpclib.client.Channel:
        """A new channel; it connects with its first call, and is closed by whoever opened it."""
        config = grpclib.config.Configuration(
            http2_connection_window_size=WINDOW_BYTES, http2_stream_window_size=WINDOW_BYTES
        )
        return grpclib.client.Channel(self.host, self.port, config=config)


@dataclass(slots=True)
class Backoff:
    """Waits between tries: doubling, jittered, bounded."""

    longest: float = field(default=FIRST_WAIT_SECONDS)

    async def wait(self) -> None:
        """Waits for the next try. Safe to cancel."""
        await asyncio.sleep(random.uniform(0, self.longest))  # noqa: S311 - spreads load, guards nothing
        self.longest = min(self.longest * 2, LONGEST_WAIT_SECONDS)

    def reset(self) -> None:
        """A try succeeded."""
        self.longest = FIRST_WAIT_SECONDS


def never_there(address: Address, lost: Lost) -> errors.ServerUnreachable:
    """What a connection lost before any answer means: whatever listens there is no JobLedger."""
    return errors.ServerUnreachable(
        str(address), f"it ends the connection ({lost}); is this the gRPC port, and not the one of REST?"
    )


async def start(stream: grpclib.client.Stream[Any, Any], address: Address) -> None:
    """Connects and opens the call.

    Raises:
        errors.ServerUnreachable: nobody listens there, or not in time.
    """
    stream._wrapper = Waits()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await stream.send_request()
    except ConnectionRefusedError as error:
        raise errors.ServerUnreachable(str(address), "connection refused") from error
    except TimeoutError as error:
        raise errors.ServerUnreachable(str(address), f"not within {CONNECT_SECONDS} s") from error
    except OSError as error:
        raise errors.ServerUnreachable(str(address), error.strerror or str(error)) from error
    except AttributeError as error:
        # What grpclib makes of a connection that is lost between being there and being used.
        if error.name != "_transport":
            raise
        raise errors.ServerUnreachable(str(address), "the connection was lost at once") from error


class Waits(utils.Wrapper):
    """Ends a call's waits when its connection is lost.

    grpclib cancels the task that waits, and raises the loss in place of the cancellation. Its own class
    leaves that cancellation counted, so that a time-out around the call takes it for the caller's, and hides
    one of the caller's that comes in the same moment. This one tells them apart as ``asyncio.timeout`` does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted: dict[asyncio.Task[Any], int] = {}
        """The cancellations of each task that waits, as it began to."""

        self._woken: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        super().__enter__()
        task = _current()
        self._counted[task] = task.cancelling()

    def cancel(self, error: Exception) -> None:
        """Wakes whoever waits, now and later, with this error; the first one holds."""
        if not self.cancelled:
            self._woken |= self._tasks
            super().cancel(error)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = _current()
        counted = self._counted.pop(task)
        woken = task in self._woken
        self._woken.discard(task)
        if woken and task.uncancel() > counted and kind is asyncio.CancelledError:
            self._tasks.discard(task)
            return
        super().__exit__(kind, value, trace)


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - grpclib has refused whoever is none
    return task


def raise_for(error: Exception, stream: grpclib.client.Stream[Any, Any], address: Address) -> NoReturn:
    """What a failed call means.

    Raises:
        Lost: it is worth another try.
        errors.ServerUnreachable: what listens there does not speak gRPC.
        errors.ServerRefused: the service says no.
    """
    match error:
        case grpclib.GRPCError() if _worth_another_try(error, stream):
            raise AskedBack(error.message or "it is unavailable") from error
        case grpclib.GRPCError():
            raise errors.ServerRefused(
                error.message or f"the service answered {error.status.name}",
                status=error.status.name,
                reason=_trailer(stream, "ledger-reason"),
                resume_uuid=_trailer(stream, "resume-uuid"),
            ) from error
        case TimeoutError():
            raise Lost("the service has been silent for too long") from error
        case exceptions.StreamTerminatedError() | OSError():
            raise Lost(str(error) or "the connection was lost") from error
        case exceptions.ProtocolError():
            raise errors.ServerUnreachable(
                str(address), f"what listens there is no gRPC ({error})"
            ) from error
        case _:
            raise error


def _worth_another_try(error: grpclib.GRPCError, stream: grpclib.client.Stream[Any, Any]) -> bool:
    match error.status:
        case const.Status.UNAVAILABLE:
            return True
        case const.Status.RESOURCE_EXHAUSTED:
            # The consumer was away for long; its cursor is where it was.
            return _trailer(stream, "ledger-reason") == "slow-reader"
        case const.Status.UNKNOWN:
            # Too many subscribe at once, as after a restart; the words are ClusterD's, and all that tells.
            return "please retry later" in (error.message or "")
        case _:
            return False


def _trailer(stream: grpclib.client.Stream[Any, Any], name: str) -> str:
    return _text(stream.trailing_metadata, name)


def initial(stream: grpclib.client.Stream[Any, Any], name: str) -> str:
    """An entry of the call's initial metadata; empty if there is none."""
    return _text(stream.initial_metadata, name)


def _text(metadata: Any, name: str) -> str:
    value = metadata.get(name, "") if metadata is not None else ""
    return value if isinstance(value, str) else ""
