"""A dump restored into a fresh cluster, which has none of our roles, proves the same."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from jobledger.store import roles
from tests.integration import test_verify
from tests.support import auditing, dumps, events, ledgers
from tests.support import postgres as support

TABLE = events.rank_table("10.0.0.1")


@pytest.mark.parametrize("bare", [True, False], ids=["without-privileges", "roles-made-first"])
async def test_proof_holds_after_a_dump_is_restored_into_a_fresh_cluster(
    database: str, connection: auditing.Connection, postgres: support.Postgres, tmp_path: Path, *, bare: bool
) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(
            *(events.submission(f"训练-{n}", job_status="running", hccl_json=TABLE) for n in range(30)),
            events.submission("job-1", detail={"comment": "🚀"}),
        )
    head = await connection.fetchrow("select * from audit.head()")
    await dumps.dump(postgres, database, tmp_path / "dump")

    async with dumps.restored(postgres, tmp_path / "dump", bare=bare) as dsn:
        report = await test_verify.verified(dsn)
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
    assert (report.finding, report.events, report.jobs) == (None, 31, 31)
