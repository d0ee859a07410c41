"""Migrating: what alembic does to a database, by one at a time, and the roles after it.

Apart from ``schema``, which most starts need alone: SQLAlchemy and alembic are loaded only by who comes here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.schema import SetColumnComment, SetTableComment

from jobledger import errors
from jobledger.store import grants, locks, schema, tables

LOCK_POLL_SECONDS: Final = 0.1
"""Between two tries for the migration lock; a migration takes about as long."""


async def run(dsn: str, *, default_region: str, roles_log_in: bool) -> None:
    """Run what is due, and make the roles and grants that are missing; see :func:`schema.migrate`."""
    # asyncpg reads the DSN itself, as everywhere else: SQLAlchemy's own reading of it differs. It would
    # also wrap a refusal, such as of a database that is not there yet, as if a migration had failed.
    migrating = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: schema.connect(dsn), poolclass=sa.pool.NullPool
    )
    try:
        async with migrating.connect() as connection:
            await _lock(connection)
            await connection.run_sync(_upgrade, default_region)
            await connection.run_sync(grants.ensure)
            if roles_log_in:
                await connection.run_sync(grants.let_log_in)
    except exc.DBAPIError as error:
        raise errors.SchemaError(
            f"the schema could not be migrated: {error.orig}; the database is as it was before"
        ) from error


def describe(connection: sa.Connection) -> None:
    """Put the words of ``tables`` on the tables and columns, for psql."""
    for table in tables.metadata.sorted_tables:
        connection.execute(SetTableComment(table))
        for column in table.columns:
            connection.execute(SetColumnComment(column))


async def _lock(connection: AsyncConnection) -> None:
    """Be the only one that migrates this database; the lock goes with the connection.

    Asked for again and again instead of waited for in one statement: a waiting statement holds a snapshot,
    a CREATE INDEX CONCURRENTLY of the lock's holder would wait for that, and neither would ever end.
    """
    ask = sa.select(sa.func.pg_try_advisory_lock(locks.NAMESPACE, locks.MIGRATION))
    while not await connection.scalar(ask):
        await connection.rollback()
        await asyncio.sleep(LOCK_POLL_SECONDS)
    await connection.commit()


def _upgrade(connection: sa.Connection, default_region: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    config.attributes["default_region"] = default_region
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(schema.location()).replace("%", "%%"))
    return config


def scripts() -> ScriptDirectory:
    """The migrations, as alembic has them."""
    return ScriptDirectory.from_config(_config())
