"""What is done beside a service, or while none runs: proof, repair, epochs. Put together here, as app is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from jobledger import database
from jobledger.ledger import epochs, rebuild, verify
from jobledger.settings import Settings
from jobledger.store import engine, ledgerinfo


@contextlib.asynccontextmanager
async def _connected(
    settings: Settings, *, as_owner: bool = False
) -> AsyncGenerator[tuple[engine.Own, ledgerinfo.LedgerInfo]]:
    async with database.attached(settings) as used:
        dsn = used.owner if as_owner else used.dsn
        info = await database.checked(dsn)
        connection = await engine.connect(dsn)
        try:
            yield connection, info
        finally:
            connection.terminate()


async def check(
    settings: Settings,
    *,
    first: int | None,
    last: int | None,
    anchor: verify.Anchor | None,
    on_progress: verify.OnProgress,
) -> verify.Report:
    """Check the log and the view; see :func:`verify.run`.

    Raises:
        errors.SetupError: There is no database that will do.
        errors.InvalidRequest: The part is not in the log.
        errors.DatabaseUnavailable: Postgres does not answer.
    """
    async with _connected(settings) as (connection, info):
        return await verify.run(
            connection, floor=info.floor, first=first, last=last, anchor=anchor, on_progress=on_progress
        )


async def repair(settings: Settings, *, on_progress: verify.OnProgress) -> rebuild.Report:
    """Make the view again from the log; see :func:`rebuild.run`.

    Raises:
        errors.SetupError: There is no database that will do.
        errors.DatabaseUnavailable: Postgres does not answer; nothing was changed.
    """
    async with _connected(settings) as (connection, _):
        return await rebuild.run(connection, on_progress=on_progress)


async def known_epochs(settings: Settings) -> Sequence[ledgerinfo.Epoch]:
    """The log's epochs, the oldest first.

    Raises:
        errors.SetupError: There is no database that will do.
        errors.DatabaseUnavailable: Postgres does not answer.
    """
    async with _connected(settings) as (connection, _):
        with engine.translated():
            return await ledgerinfo.epochs(connection)


async def new_epoch(settings: Settings) -> ledgerinfo.Epoch:
    """Begin a new epoch after the head, as is due when an older backup was restored.

    Raises:
        errors.SetupError: There is no database that will do.
        errors.DatabaseUnavailable: Postgres does not answer; nothing was changed.
    """
    async with _connected(settings, as_owner=True) as (connection, _):
        return await epochs.begin(connection)
