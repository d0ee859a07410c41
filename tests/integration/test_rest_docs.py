"""docs/rest.md stays true: its commands run, and its index serves the list that it says."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import asyncpg

from jobledger.model import listing
from jobledger.store import jobs
from jobledger.store import listing as store_listing
from tests.support import ledgers, rest

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
TIMED_OUT = 28


async def test_every_command_of_the_page_does_what_it_is_for(database: str) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    commands = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    answers: list[str] = []
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        for command in commands:
            process = await asyncio.create_subprocess_shell(
                command.replace("localhost:8080", f"127.0.0.1:{api.port}"), stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert process.returncode in (0, TIMED_OUT), command
            answers.append(said.decode())

    assert len(answers) == 15
    for command, said in zip(commands, answers, strict=True):
        if "/v4/cwai/job" in command:
            assert json.loads(said)["statusCode"] == 800, (command, said)
    assert [answer.count("event: signal") for answer in answers if answer.startswith(": position")] == [3]
    assert "demo-1" in answers[3]
    assert "demo-1" in answers[4]


async def test_default_list_is_read_from_its_index_in_order(
    connection: asyncpg.Connection[asyncpg.Record],
) -> None:
    # An empty table is scanned, or sorted, whatever it has: as if there were many rows.
    await connection.execute("set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off")
    statement, arguments = store_listing.select(
        jobs.NAMES, listing.Filter(region="r1"), listing.Order(), after=None, offset=0, limit=100
    )

    plan = "\n".join(row[0] for row in await connection.fetch(f"explain {statement}", *arguments))

    assert plan.count("Index Scan Backward using jobs_status_created_idx") == 4, plan
    assert plan.count("->  Limit") == 4
    assert plan.count("Sort Key") == 1
