"""The migrated database is what ``store.tables`` says, and what is not fit is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from jobledger import errors
from jobledger.store import locks, migrating, schema, tables
from tests.support import polling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.postgres import Postgres

    Connection = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def empty(postgres: Postgres) -> AsyncIterator[str]:
    """The DSN of a database without a schema."""
    async with postgres.database(template="template0") as dsn:
        yield dsn


async def test_a_migrated_database_is_what_tables_says_comments_included(database: str) -> None:
    def differences(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return list(compare_metadata(context, tables.metadata))

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database), poolclass=sa.pool.NullPool
    )
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)

    assert found == []


async def test_a_migrated_database_has_the_constraints_and_collations_that_tables_says(
    connection: Connection,
) -> None:
    checks = await connection.fetch("SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0")
    bytewise = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'public' AND collation_name = 'C' AND table_name <> 'alembic_version'"
    )

    assert {row["conname"] for row in checks if "alembic" not in row["conname"]} >= {
        str(constraint.name)
        for table in tables.metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, sa.CheckConstraint)
    }
    assert {tuple(row) for row in bytewise} == {
        (table.name, column.name)
        for table in tables.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, sa.Text) and column.type.collation == "C"
    }


async def test_every_table_and_column_says_what_it_means(connection: Connection) -> None:
    silent = await connection.fetch(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version' "
        "AND attnum > 0 AND (col_description(attrelid, attnum) IS NULL OR obj_description(attrelid) IS NULL)"
    )

    assert silent == []


async def test_five_that_start_at_once_on_an_empty_database_migrate_it_once(empty: str) -> None:
    await asyncio.gather(*(schema.migrate(empty, default_region=f"region-{n}") for n in range(5)))

    connection = await asyncpg.connect(empty)
    await schema.check(connection)
    assert await connection.fetchval("SELECT count(*) FROM ledger_info") == 1
    assert await connection.fetchval("SELECT count(*) FROM ledger_epochs WHERE from_position = 1") == 1
    await connection.close()


def test_the_revisions_known_at_a_start_are_those_that_alembic_runs() -> None:
    ours = [script.revision for script in migrating.scripts().walk_revisions()]

    assert list(schema.revisions()) == ours[::-1]


async def test_the_first_migration_fixes_the_default_region(empty: str) -> None:
    await schema.migrate(empty, default_region="cn-north")
    await schema.migrate(empty, default_region="cn-south")

    connection = await asyncpg.connect(empty)
    assert await connection.fetchrow("SELECT default_region, floor FROM ledger_info") == ("cn-north", 0)
    await connection.close()


async def test_whoever_waits_for_the_migration_lock_holds_no_snapshot(empty: str) -> None:
    holder = await asyncpg.connect(empty)
    await holder.execute("SELECT pg_advisory_lock($1, $2)", locks.NAMESPACE, locks.MIGRATION)
    waiting = asyncio.create_task(schema.migrate(empty, default_region="default"))

    async def asked_and_waits() -> None:
        others = await holder.fetch(
            "SELECT state, backend_xmin FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ 'ROLLBACK'"
        )
        assert [tuple(row) for row in others] == [("idle", None)]

    await polling.eventually(asked_and_waits)
    assert not waiting.done()
    await holder.close()
    await waiting


async def test_a_starter_killed_while_it_migrates_leaves_nothing_and_the_next_one_succeeds(
    empty: str,
) -> None:
    blocker = await asyncpg.connect(empty)
    # Not the blocker: inside a transaction, activity is what it was at the first look.
    watcher = await asyncpg.connect(empty)
    await blocker.execute("BEGIN; CREATE TABLE subscribers (x int)")
    migrating = asyncio.create_task(schema.migrate(empty, default_region="default"))

    async def waits_in_the_middle() -> int:
        pid = await watcher.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert pid is not None
        return pid

    await watcher.execute("SELECT pg_terminate_backend($1)", await polling.eventually(waits_in_the_middle))
    with pytest.raises(errors.SchemaError, match="as it was before"):
        await migrating
    await blocker.close()

    assert await watcher.fetchval("SELECT to_regclass('job_events')") is None
    await schema.migrate(empty, default_region="default")
    await schema.check(watcher)
    await watcher.close()


async def test_a_schema_of_a_newer_release_is_refused_with_what_to_do(
    database: str, connection: Connection
) -> None:
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(errors.SchemaError, match=r"9999, which this release does not know.*Run that"):
        await schema.migrate(database, default_region="default")
    with pytest.raises(errors.SchemaError, match="revision 9999, which this release does not know"):
        await schema.check(connection)


async def test_a_database_without_a_schema_is_refused_by_check_and_left_as_it_was(empty: str) -> None:
    connection = await asyncpg.connect(empty)

    with pytest.raises(errors.SchemaError, match=r"revision none, this release needs .* `jobledger migrate`"):
        await schema.check(connection)

    assert await connection.fetch("SELECT * FROM pg_tables WHERE schemaname = 'public'") == []
    await connection.close()


async def test_a_database_that_is_not_utf8_is_refused(postgres: Postgres) -> None:
    async with postgres.database(template="template0", options="ENCODING 'SQL_ASCII' LOCALE 'C'") as dsn:
        with pytest.raises(errors.DatabaseUnsuitable, match=r"encoding SQL_ASCII.*ENCODING 'UTF8'"):
            await schema.migrate(dsn, default_region="default")


@pytest.mark.parametrize("major", [9, 14])
async def test_a_server_older_than_15_is_refused(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, major: int
) -> None:
    pretend_version(monkeypatch, major)

    with pytest.raises(errors.DatabaseUnsuitable, match=rf"PostgreSQL {major}\.1 is too old; use 15 to 18"):
        await schema.check(connection)


async def test_a_server_newer_than_18_is_used_with_a_warning(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_version(monkeypatch, 19)

    await schema.check(connection)

    assert "PostgreSQL 19 was never tried" in caplog.text


async def test_a_database_that_is_not_there_yet_is_no_failed_migration(empty: str) -> None:
    dsn = urlunsplit(urlsplit(empty)._replace(path="/nowhere"))
    with pytest.raises(errors.DatabaseUnavailable, match="does not exist"):
        await schema.migrate(dsn, default_region="default")


async def test_tables_are_made_in_public_whatever_the_search_path(empty: str) -> None:
    connection = await asyncpg.connect(empty)
    await connection.execute("CREATE SCHEMA jobledger")  # the user's own name comes first by default

    await schema.migrate(empty, default_region="default")

    assert await connection.fetchval("SELECT to_regclass('public.job_events') IS NOT NULL")
    await connection.close()


def pretend_version(monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    def version_of(_: object) -> asyncpg.ServerVersion:
        return version

    version = asyncpg.ServerVersion(major=major, minor=1, micro=0, releaselevel="final", serial=0)
    monkeypatch.setattr(asyncpg.Connection, "get_server_version", version_of)
