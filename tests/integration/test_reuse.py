"""What makes a test's database unfit for the next test, and that nothing of a test is in one that is fit."""

from __future__ import annotations

import asyncpg
import pytest

from tests.support import clusterd, events, polling, reuse, services
from tests.support import postgres as support

# `analyze` is the last: what it counts is not taken back with its transaction.
CHANGES = (
    "alter table job_events disable trigger job_events_append_only",
    "alter table jobs add column further text",
    "alter table jobs alter column region drop not null",
    "alter table jobs set (fillfactor = 50)",
    "alter table jobs replica identity full",
    "drop index jobs_name_idx",
    "drop table subscribers",
    "drop view audit.publishers",
    "create view another as select 1 as one",
    "create table another (one integer)",
    "create sequence another",
    "create function another() returns integer language sql as 'select 1'",
    "create schema another",
    "create statistics another on region, account_id from jobs",
    "comment on table jobs is 'another'",
    "grant delete on job_events to jobledger_app",
    "revoke usage on schema audit from jobledger_auditor",
    "do $$ begin execute format('alter database %I set work_mem = 100', current_database()); end $$",
    "do $$ begin execute format('revoke all on database %I from public', current_database()); end $$",
    "select lo_create(0)",
    "insert into ledger_epochs (epoch, from_position, number) values (gen_random_uuid(), 2, 2)",
    "update ledger_epochs set epoch = gen_random_uuid()",
    "update ledger_info set floor = 1",
    "insert into view_rebuilds values (1, 0, 1)",
    "update alembic_version set version_num = '0001'",
    "analyze",
)


async def test_database_in_which_anything_but_rows_changed_is_not_reused(
    postgres: support.Postgres, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    for statement in CHANGES:
        assert await reuse.state(connection) == postgres.template_state
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(statement)
        assert await reuse.state(connection) != postgres.template_state, statement
        await transaction.rollback()


async def test_database_that_took_events_is_empty_afterwards(
    postgres: support.Postgres, database: str
) -> None:
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        await client.register()
        await services.publish(service, events.submission())

    assert await reuse.emptied(database, template=postgres.template_state)

    connection = await asyncpg.connect(database)
    for table in ("job_events", "jobs", "subscribers"):
        assert await connection.fetchval(f"select count(*) from {table}") == 0  # noqa: S608 - the names above
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await connection.execute("delete from job_events")
    await connection.close()


async def test_database_that_grew_is_not_reused(
    postgres: support.Postgres, database: str, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await connection.execute(
        "insert into subscribers (client_id, role)"
        " select repeat('x', 200) || n, 'CCAgent' from generate_series(1, 1000) as n"
    )

    assert not await reuse.emptied(database, template=postgres.template_state)


async def test_name_of_a_tests_database_is_gone_after_the_test(postgres: support.Postgres) -> None:
    async with postgres.database() as dsn:
        left_behind = await asyncpg.connect(dsn)

    async def gone() -> None:
        try:
            connection = await asyncpg.connect(dsn)
        except asyncpg.InvalidCatalogNameError:
            return
        connection.terminate()
        raise AssertionError(dsn)

    await polling.eventually(gone)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await left_behind.fetchval("select 1")
