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
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta

from aiohttp.web import BaseRequest

from jobledger import embedded
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
from jobledger.model import event
from jobledger.model.principal import Principal
from jobledger.rpc import job_service, ledger_service, status, streaming, subscribing
from jobledger.rpc import server as rpc_server
from jobledger.settings import Settings
from jobledger.store import engine, ledgerinfo, listener, schema
from jobledger.web import server as web_server
from jobledger.wire import messages

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


async def serve(settings: Settings, *, migrate: bool, on_ready: Callable[[Ready], None]) -> None:
    """Run until SIGTERM or SIGINT, then shut down within the grace time.

    Raises:
        errors.SetupError: The service cannot start as it is set up.
        errors.DatabaseUnavailable: The given Postgres does not answer.
        OSError: A port is taken.
    """
    logging.basicConfig(
        level=settings.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with _postgres(settings) as dsn:
        if migrate:
            await _migrate(dsn, settings)
        async with running(settings, dsn) as service:
            on_ready(
                Ready(
                    grpc=f"{service.host}:{service.grpc_port}",
                    http=f"{service.host}:{service.http_port}",
                    postgres=engine.without_password(dsn),
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
    async with _postgres(settings) as dsn:
        await _migrate(dsn, settings)
    return "the schema is up to date"


@contextlib.asynccontextmanager
async def _postgres(settings: Settings) -> AsyncGenerator[str]:
    """The DSN of the given Postgres, else of a private one that runs for as long as the block."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    async with embedded.running(settings.data_dir, binaries=settings.postgres_binaries) as server:
        yield server.dsn


async def _migrate(dsn: str, settings: Settings) -> None:
    with engine.translated():
        await schema.migrate(dsn, default_region=settings.default_region)


async def _checked(dsn: str) -> ledgerinfo.LedgerInfo:
    """What the ledger says of itself, once its database is known to be fit."""
    connection = await engine.connect(dsn)
    try:
        with engine.translated():
            await schema.check(connection)
            return await ledgerinfo.read(connection)
    finally:
        connection.terminate()


@contextlib.asynccontextmanager
async def running(settings: Settings, dsn: str) -> AsyncGenerator[Service]:
    """A service on a migrated database, for as long as the block lasts.

    Raises:
        errors.SetupError: The database will not do.
        errors.DatabaseUnavailable: It does not answer.
        OSError: A port is taken.
    """
    info = await _checked(dsn)
    pool = engine.ReadPool(dsn, size=settings.read_pool_size)
    await pool.open()
    try:
        newest = window.Window(limit_bytes=settings.window_bytes)
        following = tail.Tail(pool, newest, poll_seconds=settings.poll_seconds)
        await following.start()
        pages = pagecache.PageCache(pool, limit_bytes=settings.page_cache_bytes)
        announcing = announcer.Announcer(pool)

        def committed(head: event.Position) -> None:
            following.wake(head)
            announcing.committed(head)

        appending = appender.Appender(
            dsn=dsn,
            admission=admission.Admission(zone=settings.zone, detail_limit_bytes=settings.detail_limit_bytes),
            rules=batch.Rules(
                default_region=info.default_region, event_limit_bytes=settings.event_limit_bytes
            ),
            queue_events=settings.append_queue_events,
            queue_bytes=settings.append_queue_bytes,
            on_commit=committed,
        )
        known = clients.Clients(pool, _client_limits(settings))
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
        )
        web = web_server.WebServer(
            appender=appending,
            pool=pool,
            tail=following,
            identify=_identify_request,
            zone=settings.zone,
            request_limit_bytes=settings.request_limit_bytes,
        )
        loops = [
            following.run(),
            announcing.run(),
            known.run(poll_seconds=settings.poll_seconds),
            listener.listen(
                dsn,
                on_head=following.wake,
                on_stream=known.claimed,
                on_connected=lambda: following.wake(0),
            ),
        ]
        async with _looping(appending, loops, grace_seconds=settings.grace_seconds):
            grpc_port = await rpc.start(settings.host, settings.grpc_port)
            rpc.set_serving(serving=True)
            try:
                http_port = await web.start(settings.host, settings.http_port)
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
                await rpc.shutdown(grace_seconds=settings.grace_seconds)
                await web.stop(grace_seconds=settings.grace_seconds)
    finally:
        await pool.close()


@contextlib.asynccontextmanager
async def _looping(
    appending: appender.Appender, loops: Sequence[Coroutine[None, None, None]], *, grace_seconds: float
) -> AsyncGenerator[None]:
    """Run the loops beside the block; one that fails ends the block. What is queued is recorded first."""
    async with asyncio.TaskGroup() as group:
        recording = group.create_task(appending.run())
        tasks = [recording, *map(group.create_task, loops)]
        try:
            yield
        finally:
            appending.close()
            await asyncio.wait([recording], timeout=grace_seconds)
            for task in tasks:
                task.cancel()


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
