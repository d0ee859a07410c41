"""Two roles: who serves cannot change history, who audits can only read; and a cluster may lack both."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from jobledger import errors
from jobledger.store import grants, roles, schema
from tests.support import events, ledgers

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

    Connection = asyncpg.Connection[asyncpg.Record]


async def in_role(dsn: str, role: str) -> Connection:
    connection = await asyncpg.connect(dsn)
    # Not SET ROLE: nothing may lead back.
    await connection.execute(f"set session authorization {role}")
    return connection


async def fill(database: str) -> None:
    """Two events."""
    async with ledgers.running(database) as ledger:
        await ledger.receipts(events.submission("job-1"), events.submission("job-2"))


@pytest.fixture(scope="module")
def recorded(postgres: Postgres) -> Iterator[str]:
    """The DSN of a database with two events; whoever uses it cannot change it, or only reads."""
    with postgres.shared(fill) as dsn:
        yield dsn


@pytest.mark.parametrize("role", roles.ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "update job_events set sid = 'x'",
        "delete from job_events",
        "truncate job_events",
        "drop table job_events",
        "alter table job_events add column x int",
        "alter table job_events disable trigger job_events_append_only",
        "drop trigger job_events_append_only on job_events",
        "create trigger t before insert on job_events execute function job_events_refuse_change()",
        "create index on job_events (sid)",
        "alter function job_events_refuse_change() rename to something_else",
        "drop function audit.verify",
        "create table public.x (x int)",
        "create table audit.x (x int)",
        "set session_replication_role = replica",
        "update ledger_info set floor = 1",
        "insert into ledger_epochs values (gen_random_uuid(), 2, 2)",
        "delete from view_rebuilds",
    ],
)
async def test_neither_role_can(recorded: str, role: str, statement: str) -> None:
    connection = await in_role(recorded, role)
    await connection.execute("begin")

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)

    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "insert into job_events select * from job_events",
        "insert into jobs select * from jobs",
        "update jobs set sid = ''",
        "delete from jobs",
        "select * from subscribers",
        "insert into subscribers (client_id, role) values ('a', 'b')",
        "copy job_events to program 'cat'",
    ],
)
async def test_an_auditor_cannot(recorded: str, statement: str) -> None:
    connection = await in_role(recorded, roles.AUDITOR)
    await connection.execute("begin")

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)

    await connection.close()


async def test_an_auditor_who_runs_the_command_is_told_what_to_run(recorded: str) -> None:
    auditor = await in_role(recorded, roles.AUDITOR)

    with pytest.raises(errors.DatabaseUnsuitable, match=r"role jobledger_auditor .* audit\.verify\(\)"):
        await schema.check(auditor)

    await auditor.close()


@pytest.mark.parametrize(
    "query",
    [
        "select * from audit.events",
        "select * from audit.jobs",
        "select * from audit.job_history",
        "select * from audit.event_servers",
        "select * from audit.publishers",
        "select * from audit.head()",
        "select * from audit.verify(deep => true)",
        "select * from audit.job_as_of('job-1', 2)",
        "select * from audit.job_as_of('job-1', now())",
        "select * from audit.jobs_as_of(2)",
        "select * from audit.jobs_as_of(now())",
        "select * from audit.jobs_on_server('a')",
        "select * from audit.jobs_on_server('a', int8range(1, 2))",
        "select row_to_json(e) from public.job_events e",
    ],
)
async def test_an_auditor_can(recorded: str, query: str) -> None:
    connection = await in_role(recorded, roles.AUDITOR)

    await connection.fetch(query)

    await connection.close()


async def test_a_service_in_the_application_role_does_all_that_it_must(database: str) -> None:
    connection = await asyncpg.connect(database)
    user = f"svc_{secrets.token_hex(4)}"
    await connection.execute(f"create role {user} login in role {roles.APPLICATION}")

    async with ledgers.running(roles.as_role(database, user)) as ledger:
        await ledger.receipts(events.submission("job-1"), events.submission("job-2"))
        await ledger.receipts(events.deletion("job-1"))
        assert list(await ledger.read(3, start_from="earliest")) == [1, 2, 3]
    async with ledgers.running(roles.as_role(database, user)) as ledger:
        assert list(await ledger.read(1, start_from="snapshot")) == [2]
    served = await asyncpg.connect(roles.as_role(database, user))
    await schema.check(served)
    await served.close()

    assert await connection.fetchval("select ok from audit.verify(deep => true)")
    await connection.execute(f"drop role {user}")
    await connection.close()


async def test_a_second_migration_changes_no_grant(database: str, connection: Connection) -> None:
    before = await connection.fetch(
        "select oid, xmin, relacl from pg_class where relacl is not null order by 1"
    )

    await schema.migrate(database, default_region="default")

    assert before == await connection.fetch(
        "select oid, xmin, relacl from pg_class where relacl is not null order by 1"
    )


async def test_what_a_restore_left_out_is_granted_again(database: str, connection: Connection) -> None:
    await connection.execute(
        f"revoke all on all tables in schema public, audit from {roles.APPLICATION}, {roles.AUDITOR};"
        f"revoke all on schema audit from {roles.AUDITOR}"
    )

    await schema.migrate(database, default_region="default")

    auditor = await in_role(database, roles.AUDITOR)
    await auditor.fetch("select * from audit.events")
    await auditor.close()
    assert await connection.fetchval(
        "select has_table_privilege($1, 'job_events', 'insert')", roles.APPLICATION
    )


async def test_an_owner_that_may_make_no_roles_migrates_all_the_same(
    postgres: Postgres, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = f"owner_{secrets.token_hex(4)}"
    await postgres.execute(f"create role {owner} login nocreaterole")
    monkeypatch.setattr(roles, "ROLES", ("jobledger_missing", roles.AUDITOR))
    async with postgres.database(template="template0", options=f"owner {owner}") as dsn:
        with caplog.at_level(logging.WARNING):
            await schema.migrate(roles.as_role(dsn, owner), default_region="default")

        assert "have an administrator run CREATE ROLE jobledger_missing NOLOGIN" in caplog.text
        auditor = await in_role(dsn, roles.AUDITOR)
        await auditor.fetch("select * from audit.events")
        await auditor.close()
        async with ledgers.running(roles.as_role(dsn, owner)) as ledger:
            await ledger.receipts(events.submission("job-1"))
    await postgres.execute(f"drop role {owner}")


async def test_databases_of_one_cluster_that_migrate_at_once_make_each_role_once(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = tuple(f"made_{secrets.token_hex(4)}" for _ in range(2))
    monkeypatch.setattr(roles, "ROLES", made)

    async def ensure(dsn: str) -> None:
        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn), poolclass=sa.pool.NullPool
        )
        async with engine.connect() as connection:
            await connection.run_sync(grants.ensure)

    async with postgres.database() as one, postgres.database() as other:
        await asyncio.gather(*(ensure(dsn) for dsn in (one, other) * 3))
        connection = await asyncpg.connect(one)
        assert await connection.fetchval("select count(*) from pg_roles where rolname = any ($1)", made) == 2
        await connection.close()

    assert caplog.text == ""
    for role in made:
        await postgres.execute(f"drop role {role}")
