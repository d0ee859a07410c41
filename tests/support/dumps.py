"""A dump of a test's database, restored into a cluster that has never seen it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from jobledger.store import roles, schema
from tests.support import postgres as support


def program(server: support.Postgres, name: str) -> Path:
    """A client program of the server's own release; without one the test is skipped."""
    found = server.server._placed.found.directory / name
    if not found.exists():
        pytest.skip(f"these binaries have no {name}")
    return found


async def dump(server: support.Postgres, dsn: str, file: Path) -> None:
    """Write a database into a file, as an operator does while the service runs."""
    await _run(program(server, "pg_dump"), "--format=custom", f"--file={file}", dsn)


@contextlib.asynccontextmanager
async def restored(server: support.Postgres, file: Path, *, bare: bool = False) -> AsyncGenerator[str]:
    """The DSN of the dump's database in a fresh cluster, migrated; ``bare``: one without our roles."""
    restore = program(server, "pg_restore")
    with support.started() as fresh:
        await fresh.execute("create database restored template template0")
        dsn = fresh.dsn("restored")
        if bare:
            # The template of this test cluster was migrated, and roles are the cluster's.
            await fresh.execute(f"drop database {support.TEMPLATE}")
            await fresh.execute(f"drop role {roles.APPLICATION}, {roles.AUDITOR}")
        options = ["--no-owner", "--no-privileges"] if bare else []
        await _run(restore, "--exit-on-error", *options, f"--dbname={dsn}", file)
        await schema.migrate(dsn, default_region="default")
        yield dsn


async def _run(*command: str | Path) -> None:
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
