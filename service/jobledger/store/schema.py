"""The schema: bringing a database up to it, and refusing one that is not fit.

::

    none ──migrate──▶ older ──migrate──▶ ours          newer, unknown: refused, by both
                      └── refused by check ──┘

Never downgrades: what a newer release made, an older one does not understand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.schema import SetColumnComment, SetTableComment

from jobledger import errors
from jobledger.store import engine, locks, roles, tables

logger = logging.getLogger(__name__)

OLDEST_SERVER = 15
"""Major version of Postgres below which nothing is tried."""

NEWEST_SERVER = 18
"""Major version up to which the tests run; a newer one is used with a warning."""

LOCK_POLL_SECONDS = 0.1
"""Between two tries for the migration lock; a migration takes about as long."""


async def migrate(dsn: str, *, default_region: str, roles_log_in: bool = False) -> None:
    """Bring the database up to this release's schema and roles; safe when many do so at once.

    ``default_region`` is kept by the first migration; later ones leave it as it is. ``roles_log_in`` lets the
    roles log in by themselves, for a cluster that nobody else uses. Each migration is one transaction:
    cancelled or cut off, it has not happened.

    Raises:
        errors.DatabaseUnsuitable: the server is too old, or the database is not UTF-8.
        errors.SchemaError: the schema is a newer release's or another program's, or a statement failed.
        errors.DatabaseUnavailable: the server does not answer, or does not let us in.
    """

    async def connect() -> asyncpg.Connection[asyncpg.Record]:
        # asyncpg reads the DSN itself, as everywhere else: SQLAlchemy's own reading of it differs. It would
        # also wrap a refusal, such as of a database that is not there yet, as if a migration had failed.
        with engine.translated(), engine.reading_dsn():
            connection = await asyncpg.connect(dsn, server_settings={"search_path": "public"})
        try:
            await require_suitable(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    migrating = create_async_engine(
        "postgresql+asyncpg://", async_creator=connect, poolclass=sa.pool.NullPool
    )
    try:
        async with migrating.connect() as connection:
            await _lock(connection)
            await connection.run_sync(_upgrade, default_region)
            await connection.run_sync(roles.ensure)
            if roles_log_in:
                await connection.run_sync(roles.let_log_in)
    except exc.DBAPIError as error:
        raise errors.SchemaError(
            f"the schema could not be migrated: {error.orig}; the database is as it was before"
        ) from error


async def check(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """See that the database is fit and its schema is exactly this release's; changes nothing.

    Raises:
        errors.DatabaseUnsuitable: the server is too old, or the database is not UTF-8.
        errors.SchemaError: the schema is missing, older, newer or unknown.
    """
    await require_suitable(connection)
    found: tuple[str, ...] = ()
    if await connection.fetchval("SELECT to_regclass('public.alembic_version') IS NOT NULL"):
        found = tuple(
            row["version_num"]
            for row in await connection.fetch("SELECT version_num FROM public.alembic_version ORDER BY 1")
        )
    require_known(found)
    if found != (newest := _newest()):
        raise errors.SchemaError(
            f"the schema is at revision {_listed(found)}, this release needs {_listed(newest)}; "
            "run `jobledger migrate`, or `jobledger serve` without --no-migrate"
        )


async def require_suitable(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Refuse a server or a database in which the log could not be kept.

    Raises:
        errors.DatabaseUnsuitable: the server is too old, or the database is not UTF-8.
    """
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise errors.DatabaseUnsuitable(
            f"PostgreSQL {version.major}.{version.minor} is too old; use {OLDEST_SERVER} to {NEWEST_SERVER}"
        )
    if version.major > NEWEST_SERVER:
        logger.warning(
            "PostgreSQL %d was never tried with this release, which knows %d to %d",
            version.major,
            OLDEST_SERVER,
            NEWEST_SERVER,
        )
    encoding: str = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        name: str = await connection.fetchval("SELECT current_database()")
        raise errors.DatabaseUnsuitable(
            f"database {name} has encoding {encoding}, which cannot hold every name; make one with "
            "CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
        )


def require_known(revisions: tuple[str, ...]) -> None:
    """Refuse a schema that this release does not know, which it would misread.

    Raises:
        errors.SchemaError: a revision is a newer release's or another program's.
    """
    known = {script.revision for script in _scripts().walk_revisions()}
    if unknown := [revision for revision in revisions if revision not in known]:
        raise errors.SchemaError(
            f"the schema is at revision {_listed(unknown)}, which this release does not know (its newest is "
            f"{_listed(_newest())}): a newer JobLedger or another program made it. Run that release, or use "
            "another database"
        )


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
    here = Path(__file__)
    # In a wheel they lie in the package; in a checkout at its top.
    installed, checkout = here.parents[1] / "migrations", here.parents[3] / "migrations"
    config = Config()
    location = installed if installed.is_dir() else checkout
    config.set_main_option("script_location", str(location).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _newest() -> tuple[str, ...]:
    return tuple(_scripts().get_heads())


def _listed(revisions: Sequence[str]) -> str:
    return ", ".join(revisions) if revisions else "none"
