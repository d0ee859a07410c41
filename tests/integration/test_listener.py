"""Whether notifications arrive, as a process finds out for itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator

import asyncpg
import pytest

from jobledger.ledger import announcer
from jobledger.store import engine, listener
from tests.support import clusters, polling, pooling, services

needs_pgbouncer = pytest.mark.skipif(
    pooling.PROGRAM is None, reason="pgbouncer is not installed; .ci/run installs it"
)


@pytest.fixture
def cluster() -> Iterator[clusters.Cluster]:
    with clusters.made() as made:
        yield made


@contextlib.asynccontextmanager
async def listening(dsn: str, *, direct: str, heads: list[int]) -> AsyncGenerator[listener.Listener]:
    """A listener on one DSN whose probes are sent through another."""
    pool = engine.ReadPool(direct, size=2)
    await pool.open()
    hearing = listener.Listener(
        dsn, pool, on_head=heads.append, on_stream=lambda _, __: None, on_connected=lambda: None
    )
    running = asyncio.create_task(hearing.run())
    try:
        yield hearing
    finally:
        running.cancel()
        await asyncio.wait([running])
        await pool.close()


@needs_pgbouncer
async def test_pooler_in_transaction_mode_is_found_out_and_said(
    cluster: clusters.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "ARRIVAL_SECONDS", 1.0)
    heads: list[int] = []
    async with (
        pooling.pgbouncer(cluster, mode="transaction") as dsn,
        listening(dsn, direct=cluster.dsn, heads=heads) as hearing,
    ):
        await polling.eventually(lambda: _finds(hearing, arrive=False), 30)

    assert heads == []
    [warning] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "poll-only" in warning.getMessage()
    assert "JOBLEDGER_DATABASE_URL" in warning.getMessage()


@needs_pgbouncer
async def test_pooler_in_session_mode_lets_notifications_through(cluster: clusters.Cluster) -> None:
    heads: list[int] = []
    async with (
        pooling.pgbouncer(cluster, mode="session") as dsn,
        listening(dsn, direct=dsn, heads=heads) as hearing,
    ):
        await polling.eventually(lambda: _finds(hearing, arrive=True), 30)


@pytest.mark.parametrize(
    ("queued", "reason"), [(True, "pgbouncer"), (False, "NOTIFY queue is full")], ids=["lost", "queue full"]
)
async def test_notifications_that_stop_arriving_are_noticed_and_so_is_their_return(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    queued: bool,
    reason: str,
) -> None:
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    sent = listener.notify

    async def unsent(*_: object) -> bool:
        return queued

    async with listening(database, direct=database, heads=[]) as hearing:
        await polling.eventually(lambda: _finds(hearing, arrive=True), 30)
        monkeypatch.setattr(listener, "ARRIVAL_SECONDS", 0.5)
        monkeypatch.setattr(listener, "notify", unsent)
        await polling.eventually(lambda: _finds(hearing, arrive=False), 30)
        monkeypatch.setattr(listener, "notify", sent)
        await polling.eventually(lambda: _finds(hearing, arrive=True), 30)

    said = [record.getMessage() for record in caplog.records if record.name == listener.__name__]
    assert [line.partition(":")[0] for line in said] == [
        "poll-only",
        "notifications of other processes arrive again",
    ]
    assert reason in said[0]


async def test_metrics_say_whether_notifications_arrive(database: str) -> None:
    async with services.running(database) as service:
        await polling.eventually(lambda: services.hears(service), 30)


def _finds(hearing: listener.Listener, *, arrive: bool) -> None:
    assert hearing.hears is arrive


async def test_process_is_alone_until_another_listens_and_each_hears_of_the_other(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ARRIVAL_SECONDS", 0.2)  # until then, neither can know

    def expects(hearing: listener.Listener, *, alone: bool) -> None:
        assert (hearing.hears, hearing.alone) == (True, alone)

    async with listening(database, direct=database, heads=[]) as first:
        assert not first.alone
        await polling.eventually(lambda: expects(first, alone=True), 30)
        async with listening(database, direct=database, heads=[]) as second:
            # By the first probe of each: the next ones are twelve seconds away.
            await polling.eventually(lambda: expects(first, alone=False), 10)
            await asyncio.sleep(2 * listener.ARRIVAL_SECONDS)
            await polling.eventually(lambda: expects(second, alone=False), 10)
        monkeypatch.setattr(listener, "GONE_SECONDS", 0.5)
        await polling.eventually(lambda: expects(first, alone=True), 30)


async def test_process_that_listens_again_is_answered_at_once_by_those_who_knew_it(
    database: str, connection: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE_SECONDS", 3600.0)  # nothing but an answer is heard
    words: list[str] = []
    await connection.add_listener(
        listener.PROBE_CHANNEL, lambda _connection, _pid, _channel, word: words.append(str(word))
    )

    def heard(count: int) -> None:
        assert len(set(words)) == count

    def answers(other: str) -> None:
        newest = max(map(words.index, words))
        assert other in words[newest:]

    async with listening(database, direct=database, heads=[]):
        await polling.eventually(lambda: heard(1), 30)
        backend = await connection.fetchval(
            "select pid from pg_stat_activity where query ilike 'listen%' and pid <> pg_backend_pid()"
            " and datname = current_database()"
        )
        async with listening(database, direct=database, heads=[]):
            await polling.eventually(lambda: heard(2), 30)
            other = words[max(map(words.index, words))]
            await connection.execute("select pg_terminate_backend($1)", backend)
            await polling.eventually(lambda: heard(3), 30)
            await polling.eventually(lambda: answers(other), 30)


async def test_process_that_is_alone_tells_nobody_of_its_commits(database: str) -> None:
    alone = True
    pool = engine.ReadPool(database, size=2)
    await pool.open()
    announcing = announcer.Announcer(pool, alone=lambda: alone)
    running = asyncio.create_task(announcing.run())
    heads: list[int] = []
    try:
        async with listening(database, direct=database, heads=heads) as hearing:
            await polling.eventually(lambda: _finds(hearing, arrive=True), 30)
            announcing.committed(7)
            await asyncio.sleep(0.2)
            alone = False
            announcing.committed(8)
            await polling.eventually(lambda: _holds(heads), 30)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await pool.close()

    assert heads == [8]


def _holds(heads: list[int]) -> None:
    assert heads
