"""Faults of Postgres under load, with the service as a process of its own.

Each test's load goes on over its fault and is then held against the log; see ``tests.support.load``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import AsyncGenerator, Iterator

import asyncpg
import pytest

from jobledger.store import listener
from tests.support import clusterd, clusters, load, polling, scale, services

BACK_SECONDS = 60.0
"""Within this time of a fault's end everything works again, by itself; on an idle machine, within 10 s."""

TERMINATING_SECONDS = scale.count("TERMINATING_SECONDS", 10)
"""How long sessions are terminated at random."""

NOTIFY_PAGES = scale.count("NOTIFY_PAGES", 64)
"""Of 8 KB in the queue of notifications; 64 is the least that Postgres takes, 1,048,576 its default."""


@pytest.fixture
def cluster() -> Iterator[clusters.Cluster]:
    with clusters.made() as made:
        yield made


async def test_restarted_postgres_loses_nothing_and_streams_stay_open(cluster: clusters.Cluster) -> None:
    async with loaded(cluster.dsn) as traffic:
        cluster.stop()
        # First the batch whose COMMIT was lost looks for its outcome, and the others wait behind it.
        await polling.eventually(lambda: turned_away(traffic), within_seconds=40)
        cluster.start()

        await back(traffic)

    assert all(not follower.ends for follower in traffic.followers)


async def test_crashed_postgres_loses_nothing(cluster: clusters.Cluster) -> None:
    async with loaded(cluster.dsn) as traffic:
        for _ in range(3):
            cluster.stop(signal.SIGQUIT)
            cluster.start()
            await back(traffic)


async def test_sessions_terminated_at_random_lose_and_double_nothing(cluster: clusters.Cluster) -> None:
    chance = random.Random(27)  # noqa: S311 - a test's choice
    terminated = 0
    async with loaded(cluster.dsn) as traffic:
        until = time.monotonic() + TERMINATING_SECONDS
        async with session(cluster.dsn) as connection:
            while time.monotonic() < until:
                terminated += await connection.fetchval(
                    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                    " where application_name = 'jobledger' and random() < $1",
                    chance.random(),
                )
                await asyncio.sleep(chance.random() / 10)

        await back(traffic)

    assert terminated > 50


async def test_promoted_standby_takes_over(cluster: clusters.Cluster) -> None:
    standby = cluster.standby()
    standby.start()
    either = f"postgresql://jobledger@127.0.0.1:{cluster.port},127.0.0.1:{standby.port}/jobledger"
    try:
        async with session(cluster.dsn) as connection:
            name = await connection.fetchval("select application_name from pg_stat_replication")
            await connection.execute(f"alter system set synchronous_standby_names = '\"{name}\"'")
            await connection.execute("select pg_reload_conf()")
        async with loaded(either) as traffic:
            cluster.stop(signal.SIGQUIT)
            # The standby answers, and takes no writes: that is Postgres being away, not an event at fault.
            # First the batch whose COMMIT was lost looks for its outcome, and the others wait behind it.
            await polling.eventually(lambda: turned_away(traffic), within_seconds=40)
            async with session(standby.dsn) as connection:
                await connection.execute("select pg_promote()")

            await back(traffic)
    finally:
        standby.stop()


async def test_full_disk_refuses_appends_until_there_is_room() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    # Its log elsewhere: a write-ahead log without room is a crash, a table without room a refused statement.
    with clusters.small_disk(64) as disk, clusters.made() as cluster:
        async with loaded(cluster.dsn) as traffic:
            os.chown(disk, cluster.account.uid, cluster.account.gid)
            async with session(cluster.dsn) as connection:
                await connection.execute(f"create tablespace small location '{disk}'")
                await connection.execute("alter table job_events set tablespace small")
            filler = clusters.fill(disk)
            await polling.eventually(lambda: turned_away(traffic), 30)
            filler.unlink()

            await back(traffic)


async def test_disk_too_full_for_the_write_ahead_log_loses_nothing() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    settings = {"min_wal_size": "32MB", "max_wal_size": "64MB", "wal_recycle": "off"}
    with clusters.small_disk(192) as disk, clusters.made(within=disk, settings=settings) as cluster:
        async with loaded(cluster.dsn) as traffic:
            filler = clusters.fill(disk)
            async with session(cluster.dsn) as connection:
                with contextlib.suppress(asyncpg.PostgresError, OSError):
                    await connection.execute("select pg_switch_wal()")
            await polling.eventually(lambda: turned_away(traffic), 30)
            filler.unlink()
            await polling.eventually(lambda: settled(cluster))
            if not cluster.running:
                cluster.stop()
                cluster.start()

            await back(traffic)


async def test_full_notify_queue_delays_and_fails_nothing() -> None:
    # Only Postgres 17 and newer have a queue that can be made small; before, it holds 8 GB.
    with clusters.made(binaries="wheel", settings={"max_notify_queue_pages": str(NOTIFY_PAGES)}) as cluster:
        dsn = cluster.dsn
        async with loaded(dsn) as traffic, session(dsn) as idle, session(dsn) as noisy:
            # As another replica does, so that the service tells it of commits.
            await noisy.execute("select pg_notify($1, 'another')", listener.PROBE_CHANNEL)
            # One that listens and never ends its transaction holds up the queue's tail.
            await idle.execute("listen anything")
            await idle.execute("begin")
            await idle.execute("select 1")
            with pytest.raises(asyncpg.PostgresError, match="NOTIFY queue"):
                await notify_for_ever(noisy)
            before = traffic.refusals.total()

            await traffic.steady(100)
            await back(traffic)
            async with clusterd.subscriber(traffic.grpc) as newcomer:
                await clusterd.initial(newcomer.stream(client_id="newcomer"))

            assert traffic.refusals.total() == before
            assert set(traffic.answers) == {"800"}


async def test_schema_changes_under_load_fail_nothing(cluster: clusters.Cluster) -> None:
    async with loaded(cluster.dsn) as traffic, session(cluster.dsn) as connection:
        for statement in (
            "alter table job_events add column remark text",
            "reindex index concurrently job_events_pkey",
            "alter table jobs add column remark text",
            "reindex table concurrently jobs",
            "reindex table concurrently job_events",
        ):
            await connection.execute(statement)
            await traffic.steady(10)

        await back(traffic)

        assert not traffic.refusals
        assert set(traffic.answers) == {"800"}


@contextlib.asynccontextmanager
async def loaded(dsn: str) -> AsyncGenerator[load.Load]:
    """A service on that database, and load on the service."""
    async with services.serving(JOBLEDGER_DATABASE_URL=dsn) as process:
        async with load.running(process.grpc, f"http://{process.http}", load.log_of(dsn)) as traffic:
            yield traffic
        assert process.process.returncode is None


@contextlib.asynccontextmanager
async def session(dsn: str) -> AsyncGenerator[asyncpg.Connection[asyncpg.Record]]:
    """A session of the test's own."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        connection.terminate()


async def notify_for_ever(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Send large notifications; ends with the error of a full queue."""
    at_once = max(1, NOTIFY_PAGES // 256)
    while True:
        await connection.execute(
            "select pg_notify('anything', repeat('x', 7000) || random()) from generate_series(1, $1)", at_once
        )


async def settled(cluster: clusters.Cluster) -> None:
    """It has ended, or takes connections: while it goes down, or recovers, it does neither."""
    if not cluster.running:
        return
    try:
        async with session(cluster.dsn):
            pass
    except (OSError, asyncpg.PostgresError) as error:
        raise AssertionError(str(error)) from error


async def back(traffic: load.Load) -> None:
    """Everything works again within the time, and the load goes on."""
    await traffic.wait_until_back(within_seconds=BACK_SECONDS)
    await traffic.steady()


def turned_away(traffic: load.Load) -> None:
    """Publishers over gRPC and REST both heard that the database is not available."""
    assert traffic.refusals["ServerUnreachable"], "no append by gRPC failed"
    assert traffic.answers["Cwai.Api.InternalServerError"], "no request by REST failed"
