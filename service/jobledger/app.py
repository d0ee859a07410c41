"""The composition root: the one place where everything is put together, and where settings stop.

::

    serve ─▶ Postgres, embedded or given ─▶ schema ─▶ running ─┬─ rpc ──▶ ledger ──▶ store
                                                               ├─ web ──▶ ledger, store
                                                               └─ loops: appender, tail, listener …

Shutting down goes the other way round: not ready any more, no new calls, streams told where to resume,
what was queued is recorded, loops end, connections close, Postgres last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from aiohttp.web import BaseRequest

from jobledger import database, errors, heap, logs
from jobledger.ledger import (
    admission,
    announcer,
    appender,
    batch,
    clients,
    pagecache,
    snapshot,
    start,
    subscription,
    tail,
    window,
)
from jobledger.model.principal import Principal
from jobledger.rpc import job_service, ledger_service, status, streaming, subscribing
from jobledger.rpc import server as rpc_server
from jobledger.settings import Settings
from jobledger.store import engine, listener
from jobledger.web import server as web_server
from jobledger.wire import messages

CLOSING_SECONDS: Final = 2.0
"""Part of the grace time that is kept for statuses and closing, when calls take all of the rest."""

TURN_SECONDS: Final = 0.0005
"""How long a thread may keep the interpreter to itself while another waits for it. The loop asks for it again
after each call to the kernel: with Python's 5 ms, one large job in a thread costs a small answer 40."""

YOUNG_OBJECTS: Final = 5_000
"""New objects after which the garbage collector looks at them: what a hundred calls in flight hold."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What the service listens on, once it does."""

    grpc: str
    """``HOST:PORT``."""

    http: str
    """``HOST:PORT``."""

    postgres: str
    """A DSN that psql on this machine can use; without the password, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service, as tests and ``serve`` see it."""

    host: str
    grpc_port: int
    http_port: int
    appender: appender.Appender
    tail: tail.Tail
    window: window.Window
    pages: pagecache.PageCache
    clients: clients.Clients
    rpc: rpc_server.ServiceServer
    web: web_server.WebServer


def begin(settings: Settings) -> asyncio.Event:
    """What a process that serves begins with: its logs, its file descriptors, and when it is told to stop."""
    logs.configure(level=settings.log_level, form=settings.log_format)
    _take_all_file_descriptors()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def serve(
    settings: Settings, *, migrate: bool, on_ready: Callable[[Ready], None], share_ports: bool = False
) -> None:
    """Run until SIGTERM or SIGINT, then shut down within the grace time.

    ``share_ports`` lets other processes that share them listen on the same ports (``workers``).

    Raises:
        errors.SetupError: The service cannot start as it is set up.
        errors.DatabaseUnavailable: The given Postgres does not answer, for as long as is waited for it.
    """
    stop = begin(settings)
    sys.setswitchinterval(TURN_SECONDS)
    heap.keep()
    async with database.provided(settings) as used:
        if not await database.prepared(used, settings, migrate=migrate, stop=stop):
            return
        async with running(settings, used.dsn, share_ports=share_ports) as service:
            _spare_the_collector()
            on_ready(
                Ready(
                    grpc=f"{service.host}:{service.grpc_port}",
                    http=f"{service.host}:{service.http_port}",
                    postgres=engine.without_password(used.people),
                )
            )
            await stop.wait()
            _log.info("shutting down")


async def migrate(settings: Settings) -> str:
    """Bring the schema up, and say so.

    Raises:
        errors.SetupError: The database will not do.
        errors.DatabaseUnavailable: It does not answer.
    """
    logs.configure(level=settings.log_level, form=settings.log_format)
    async with database.provided(settings) as used:
        await database.prepared(used, settings, migrate=True, stop=asyncio.Event())
    return "the schema is up to date"


@contextlib.asynccontextmanager
async def running(settings: Settings, dsn: str, *, share_ports: bool = False) -> AsyncGenerator[Service]:
    """A service on a migrated database, for as long as the block lasts.

    Raises:
        errors.SetupError: The database will not do, or a port is taken.
        errors.DatabaseUnavailable: It does not answer.
    """
    info = await database.checked(dsn)
    pool = engine.ReadPool(dsn, size=settings.read_pool_size)
    await pool.open()
    try:
        newest = window.Window(limit_bytes=settings.window_bytes)
        following = tail.Tail(pool, newest, poll_seconds=settings.poll_seconds)
        await following.start()
        pages = pagecache.PageCache(pool, limit_bytes=settings.page_cache_bytes)
        known = clients.Clients(pool, _client_limits(settings))
        hearing = listener.Listener(
            dsn,
            pool,
            on_head=following.wake,
            on_stream=known.claimed,
            on_connected=lambda: following.wake(0),
        )
        announcing = announcer.Announcer(pool, alone=lambda: hearing.alone)

        def committed(written: batch.Written) -> None:
            following.committed(written)
            announcing.committed(written.head)

        appending = appender.Appender(
            dsn=dsn,
            pool=pool,
            admission=admission.Admission(zone=settings.zone, detail_limit_bytes=settings.detail_limit_bytes),
            rules=batch.Rules(
                default_region=info.default_region, event_limit_bytes=settings.event_limit_bytes
            ),
            queue_events=settings.append_queue_events,
            queue_bytes=settings.append_queue_bytes,
            on_commit=committed,
        )
        common = subscribing.Subscribing(
            reader=subscription.Reader(tail=following, window=newest, pages=pages),
            starts=start.Starts(pool, snapshot.Snapshots(pool, pages)),
            clients=known,
            quiet_seconds=settings.heartbeat_seconds,
            refusal_delay_seconds=settings.refusal_delay_seconds,
            list_limit_bytes=settings.event_limit_bytes,
        )
        rpc = rpc_server.ServiceServer(
            [
                job_service.JobService(common, _identify_call).methods(),
                ledger_service.LedgerService(common, appending, _identify_call).methods(),
            ],
            explain=status.explain,
            pool=messages.pool,
            request_limit_bytes=settings.request_limit_bytes,
            send_timeout_seconds=settings.send_timeout_seconds,
            sending=common.reader.sending,
        )
        web = web_server.WebServer(
            appender=appending,
            pool=pool,
            tail=following,
            identify=_identify_request,
            zone=settings.zone,
            request_limit_bytes=settings.request_limit_bytes,
            reader=common.reader,
            starts=common.starts,
            cors_origins=settings.cors_origins,
            grpc_streams=lambda: known.streams,
            hears=lambda: bool(hearing.hears),
        )
        loops = [
            following.run(),
            announcing.run(),
            known.run(poll_seconds=settings.poll_seconds),
            hearing.run(),
        ]
        grace = _Grace(settings.grace_seconds)
        async with _looping(appending, loops, grace):
            with told_of_port(settings.host, settings.grpc_port, "JOBLEDGER_GRPC_PORT"):
                grpc_port = await rpc.start(settings.host, settings.grpc_port, shared=share_ports)
            rpc.set_serving(serving=True)
            try:
                with told_of_port(settings.host, settings.http_port, "JOBLEDGER_HTTP_PORT"):
                    http_port = await web.start(settings.host, settings.http_port, shared=share_ports)
                yield Service(
                    host=settings.host,
                    grpc_port=grpc_port,
                    http_port=http_port,
                    appender=appending,
                    tail=following,
                    window=newest,
                    pages=pages,
                    clients=known,
                    rpc=rpc,
                    web=web,
                )
            finally:
                web.set_draining()
                await asyncio.gather(
                    rpc.shutdown(grace_seconds=grace.left()), web.stop(grace_seconds=grace.left())
                )
    finally:
        await pool.close()


@contextlib.contextmanager
def told_of_port(host: str, port: int, variable: str) -> Generator[None]:
    """Says which address cannot be had, and how to name another."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror  # getaddrinfo's are below
        message = f"cannot listen on {host}:{port}: {reason}; set {variable} or JOBLEDGER_HOST to another"
        raise errors.SetupError(message) from error


def _take_all_file_descriptors() -> None:
    """Raise the soft limit to the hard one.

    A connection is a descriptor. The 1,024 that many systems give at first are used up by as many
    subscribers, and who comes then is not even refused.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _spare_the_collector() -> None:
    """Have the garbage collector pass over what stays, and look less often at what calls in flight hold.

    Those live for a round trip to Postgres and pass for long-lived: at 64 connections a seventh of a
    get's time went into looking at them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)


class _Grace:
    """The time for a shutdown; runs from the first look at it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds - CLOSING_SECONDS, seconds / 2)
        self._ends: float | None = None

    def left(self) -> float:
        """Seconds for what is still under way."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self._seconds
        return max(self._ends - now, 0.0)


@contextlib.asynccontextmanager
async def _looping(
    appending: appender.Appender, loops: Sequence[Coroutine[None, None, None]], grace: _Grace
) -> AsyncGenerator[None]:
    """Run the loops beside the block; one that fails ends the block. What is queued is recorded first."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        recording = group.create_task(appending.run())
        tasks = [recording, *map(group.create_task, loops)]
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised below as it is: the group would wrap it
            failure = error
        finally:
            appending.close()
            await asyncio.wait([recording], timeout=grace.left())
            for task in tasks:
                task.cancel()
    if failure is not None:
        raise failure


def _client_limits(settings: Settings) -> clients.Limits:
    return clients.Limits(
        roles=frozenset(settings.roles),
        require_registration=settings.require_registration,
        registered_ids=settings.registered_ids_limit,
        streams_per_role=settings.streams_per_role,
        subscribes_per_second=settings.subscribes_per_second,
        unused_for=timedelta(days=settings.client_id_expiry_days),
    )


def _identify_call(call: streaming.Call) -> Principal:
    """Who makes a gRPC call: until access control is set up, somebody at an address."""
    return Principal.anonymous(call.peer_address)


def _identify_request(request: BaseRequest) -> Principal:
    """Who makes a REST request, the same way."""
    return Principal.anonymous(request.remote or "local")
