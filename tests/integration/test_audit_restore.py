"""A dump restored into a fresh cluster, which has none of our roles, proves the same."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import asyncpg
import pytest

from jobledger.store import roles, schema
from tests.support import auditing, events, ledgers
from tests.support import postgres as support

TABLE = events.rank_table("10.0.0.1")


def program(server: support.Postgres, name: str) -> Path:
    """A client program of the server's own release."""
    found = server.server._placed.found.directory / name
    if not found.exists():
        pytest.skip(f"these binaries have no {name}")
    return found


async def run(*command: str | Path) -> None:
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)


@pytest.mark.parametrize("bare", [True, False], ids=["without-privileges", "roles-made-first"])
async def test_proof_holds_after_a_dump_is_restored_into_a_fresh_cluster(
    database: str, connection: auditing.Connection, postgres: support.Postgres, tmp_path: Path, *, bare: bool
) -> None:
    dump, restore = program(postgres, "pg_dump"), program(postgres, "pg_restore")
    async with ledgers.running(database) as ledger:
        await ledger.receipts(
            *(events.submission(f"训练-{n}", job_status="running", hccl_json=TABLE) for n in range(30)),
            events.submission("job-1", detail={"comment": "🚀"}),
        )
    head = await connection.fetchrow("select * from audit.head()")
    await run(dump, "--format=custom", f"--file={tmp_path / 'dump'}", database)

    with support.started() as fresh:
        await fresh.execute("create database restored template template0")
        dsn = fresh.dsn("restored")
        if bare:
            # The template of this test cluster was migrated, and roles are the cluster's.
            await fresh.execute(f"drop database {support.TEMPLATE}")
            await fresh.execute(f"drop role {roles.APPLICATION}, {roles.AUDITOR}")
        options = ["--no-owner", "--no-privileges"] if bare else []
        await run(restore, "--exit-on-error", *options, f"--dbname={dsn}", tmp_path / "dump")
        await schema.migrate(dsn, default_region="default")

        restored = await asyncpg.connect(dsn)
        try:
            assert await restored.fetchrow("select * from audit.head()") == head
            await restored.execute(f"set session authorization {roles.AUDITOR}")
            verdict = await restored.fetchrow("select * from audit.verify(deep => true)")
            assert verdict == (True, 31, None, None)
            assert (await auditing.outsider(restored))["checked"] == 31
            assert len(await restored.fetch("select * from audit.jobs_on_server('10.0.0.1')")) == 30
        finally:
            await restored.close()
