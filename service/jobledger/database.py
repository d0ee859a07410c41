"""The Postgres that a service runs on: given or embedded, waited for, migrated and found fit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobledger import embedded, errors
from jobledger.settings import Settings
from jobledger.store import engine, ledgerinfo, roles, schema

RETRY_SECONDS: Final = 0.5
"""Between two looks, at the start, at whether Postgres answers by now."""

OWN_CONNECTIONS: Final = 2
"""Connections of a process beside its pool: one appends, one listens."""

PEOPLES_CONNECTIONS: Final = 20
"""Connections of the private Postgres for psql, ``jobledger verify`` and the like."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Where the log is, for each of those who use it (``store.roles``)."""

    dsn: str
    """For the service; on the private Postgres as the role that can only append to the log."""

    owner: str
    """For migrations and whatever else changes more than the service may."""

    people: str
    """For psql; on the private Postgres as the auditor's role, which can only read."""

    private: bool
    """Whether nobody else uses this cluster, so that its roles are ours to let in."""


@contextlib.asynccontextmanager
async def provided(settings: Settings) -> AsyncGenerator[Database]:
    """The given Postgres, else a private one that runs for as long as the block.

    Raises:
        errors.SetupError: the password's file will not do, or the private one does not run.
    """
    if settings.database_url is not None:
        dsn = _with_password(settings.database_url.get_secret_value(), settings.database_password_file)
        separate = settings.migration_database_url
        owner = separate.get_secret_value() if separate is not None else dsn
        yield Database(dsn=dsn, owner=owner, people=dsn, private=False)
        return
    ours = settings.workers * (settings.read_pool_size + OWN_CONNECTIONS)
    connections = max(embedded.CONNECTIONS, ours + PEOPLES_CONNECTIONS)
    async with embedded.running(
        settings.data_dir, binaries=settings.postgres_binaries, connections=connections
    ) as server:
        yield _private(server.dsn)


@contextlib.asynccontextmanager
async def attached(settings: Settings) -> AsyncGenerator[Database]:
    """The database that is there, for work beside a service or without one; makes and migrates nothing.

    The private Postgres that a service runs is used as it is; with no service, one runs for the block.

    Raises:
        errors.SetupError: there is none, or the private one does not run.
    """
    dsn = None if settings.database_url is not None else embedded.running_dsn(settings.data_dir)
    if dsn is None:
        async with provided(settings) as used:
            yield used
    else:
        yield _private(dsn)


def _private(dsn: str) -> Database:
    return Database(
        dsn=roles.as_role(dsn, roles.APPLICATION),
        owner=dsn,
        people=roles.as_role(dsn, roles.AUDITOR),
        private=True,
    )


def _with_password(dsn: str, file: Path | None) -> str:
    if file is None:
        return dsn
    if engine.has_password(dsn):
        raise errors.SetupError(
            "JOBLEDGER_DATABASE_URL and JOBLEDGER_DATABASE_PASSWORD_FILE both give a password; use one"
        )
    try:
        password = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise errors.SetupError(f"JOBLEDGER_DATABASE_PASSWORD_FILE: {file}: {reason}") from None
    return engine.with_password(dsn, password.removesuffix("\n").removesuffix("\r"))


async def prepared(used: Database, settings: Settings, *, migrate: bool, stop: asyncio.Event) -> bool:
    """Wait until the database answers and its schema is up; False if told to stop before that.

    Raises:
        errors.SetupError: The database will not do.
        errors.DatabaseUnavailable: It does not answer, for as long as the settings say.
    """
    deadline = time.monotonic() + settings.database_wait_seconds
    told = False
    while not stop.is_set():
        try:
            if migrate:
                with engine.translated():
                    await schema.migrate(
                        used.owner, default_region=settings.default_region, roles_log_in=used.private
                    )
            elif used.private:
                # The roles come with the schema: without it, say that it is missing, not that they are.
                await checked(used.owner)
            await checked(used.dsn)
        except errors.DatabaseUnavailable as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                _log.warning("waiting for Postgres, up to %g s: %s", settings.database_wait_seconds, error)
            told = True
        else:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS):
                await stop.wait()
    return False


async def checked(dsn: str) -> ledgerinfo.LedgerInfo:
    """What the ledger says of itself, once its database is known to be fit.

    Raises:
        errors.SetupError: The database will not do.
        errors.DatabaseUnavailable: It does not answer.
    """
    connection = await engine.connect(dsn)
    try:
        with engine.translated():
            await schema.check(connection)
            return await ledgerinfo.read(connection)
    finally:
        connection.terminate()
