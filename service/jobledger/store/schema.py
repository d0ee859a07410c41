"""The schema: bringing a database up to it, and refusing one that is not fit.

::

    none ──migrate──▶ older ──migrate──▶ ours          newer, unknown: refused, by both
                      └── refused by check ──┘

Never downgrades: what a newer release made, an older one does not understand.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from jobledger import errors
from jobledger.store import engine, roles

logger = logging.getLogger(__name__)

OLDEST_SERVER = 15
"""Major version of Postgres below which nothing is tried."""

NEWEST_SERVER = 18
"""Major version up to which the tests run; a newer one is used with a warning."""


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
    connection = await connect(dsn)
    try:
        if await _found(connection) == _newest() and await roles.complete(connection, log_in=roles_log_in):
            return
    finally:
        await connection.close()
    # Here, because most starts find all in place: loading it takes a third of what a start takes.
    from jobledger.store import migrating  # noqa: PLC0415

    await migrating.run(dsn, default_region=default_region, roles_log_in=roles_log_in)


async def connect(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    """Open a connection to a database that is fit for a schema.

    Raises:
        errors.DatabaseUnsuitable: the server is too old, or the database is not UTF-8.
        errors.DatabaseUnavailable: the server does not answer, or does not let us in.
    """
    with engine.translated(), engine.reading_dsn():
        connection = await asyncpg.connect(dsn, server_settings={"search_path": "public"})
    try:
        await require_suitable(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def check(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """See that the database is fit and its schema is exactly this release's; changes nothing.

    Raises:
        errors.DatabaseUnsuitable: the server is too old, the database is not UTF-8, or the role may not look.
        errors.SchemaError: the schema is missing, older, newer or unknown.
    """
    await require_suitable(connection)
    found = await _found(connection)
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


def require_known(found: tuple[str, ...]) -> None:
    """Refuse a schema that this release does not know, which it would misread.

    Raises:
        errors.SchemaError: a revision is a newer release's or another program's.
    """
    known = revisions()
    if unknown := [revision for revision in found if revision not in known]:
        raise errors.SchemaError(
            f"the schema is at revision {_listed(unknown)}, which this release does not know (its newest is "
            f"{_listed(_newest())}): a newer JobLedger or another program made it. Run that release, or use "
            "another database"
        )


def location() -> Path:
    """Where the migrations lie: in a wheel in the package, in a checkout at its top."""
    here = Path(__file__)
    installed, checkout = here.parents[1] / "migrations", here.parents[3] / "migrations"
    return installed if installed.is_dir() else checkout


def revisions() -> Sequence[str]:
    """Every revision that this release knows, in order: each is a file that its number begins."""
    return sorted(file.name.partition("_")[0] for file in (location() / "versions").glob("[0-9]*_*.py"))


async def _found(connection: asyncpg.Connection[asyncpg.Record]) -> tuple[str, ...]:
    if not await connection.fetchval("SELECT to_regclass('public.alembic_version') IS NOT NULL"):
        return ()
    try:
        rows = await connection.fetch("SELECT version_num FROM public.alembic_version ORDER BY 1")
    except asyncpg.InsufficientPrivilegeError as error:
        role: str = await connection.fetchval("SELECT current_user")
        raise errors.DatabaseUnsuitable(
            f"the role {role} may not do this ({error}); name the service's or the owner's in "
            "JOBLEDGER_DATABASE_URL. An auditor proves the log in psql, with audit.verify()"
        ) from error
    return tuple(row["version_num"] for row in rows)


def _newest() -> tuple[str, ...]:
    return (revisions()[-1],)


def _listed(listed: Sequence[str]) -> str:
    return ", ".join(listed) if listed else "none"
