"""docs/audit.md keeps its word: its vectors, its formula, its twenty questions and their answers.

The real trace is not ours to ship. Where TRACE (or JOBLEDGER_TRACE) names its file, every answer must be the
page's; elsewhere the questions are asked of a generated one, and only the columns are compared.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import pytest

from jobledger.model import chain
from tests.support import auditing

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
ASKED = re.compile(r"\n### (\d+)\. (.+?)\n\n```sql\n(.+?)\n```\n\n```csv\n(.+?)\n```\n", re.DOTALL)


class Asked(NamedTuple):
    """A question of the page."""

    number: str
    words: str
    query: str
    answer: str


QUESTIONS = [Asked(*found) for found in ASKED.findall(PAGE)]


def vectors() -> Sequence[dict[str, Any]]:
    found = re.search(r"```json\n(.+?)\n```", PAGE, re.DOTALL)
    assert found is not None
    return [json.loads(line) for line in found[1].split("\n")]


def bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


async def answered(connection: auditing.Connection, query: str) -> str:
    """As psql --csv prints it."""
    out = io.BytesIO()
    await connection.copy_from_query(query, output=out, format="csv", header=True)
    return out.getvalue().decode().removesuffix("\n")


async def test_twenty_questions_are_answered(database: str, connection: auditing.Connection) -> None:
    timed, real = auditing.trace()
    await auditing.record_as_it_happened(database, timed)
    await connection.execute("set timezone = 'UTC'; analyze")

    answers = [await answered(connection, asked.query) for asked in QUESTIONS]

    assert [asked.number for asked in QUESTIONS] == [str(n) for n in range(1, 21)]
    for asked, answer in zip(QUESTIONS, answers, strict=True):
        expected = asked.answer if real else asked.answer.split("\n")[0]
        assert (answer if real else answer.split("\n")[0]) == expected, asked.words
    assert (await auditing.outsider(connection))["ok"]


def test_service_computes_the_vectors() -> None:
    previous = chain.GENESIS
    for row in vectors():
        previous = chain.link(
            previous=previous,
            position=row["position"],
            uuid=UUID(row["uuid"]),
            content_hash=bytes_of(row["content_hash"]),
            recorded_at=datetime.fromisoformat(row["recorded_at"]),
            signal=bytes_of(row["signal"]),
            **{key: row[key] for key in ("hccl", "detail", "region", "account_id", "user_id", "publisher")},
        )
        assert previous == bytes_of(row["hash"])


async def test_sql_and_the_outsider_compute_the_vectors(
    connection: asyncpg.Connection[asyncpg.Record],
) -> None:
    for row in vectors():
        await connection.execute(
            "insert into job_events select * from json_populate_record(null::job_events, $1::json)",
            json.dumps(row),
        )

    verdict = await connection.fetchrow("select * from audit.verify(deep => true)")

    assert verdict == (True, 3, None, None)
    assert (await auditing.outsider(connection))["ok"]


def test_the_first_vector_is_hashed_as_as_many_bytes_as_said() -> None:
    row = vectors()[0]
    texts = ("hccl", "detail", "region", "account_id", "user_id", "publisher")
    parts = [bytes_of(row["signal"]), *((row[key] or "").encode() for key in texts)]
    length = 32 + 8 + 16 + 32 + 8 + 4 * 7 + sum(map(len, parts))

    assert f"hashed as {length} bytes" in PAGE


@pytest.mark.parametrize("name", ["jobledger_app", "jobledger_auditor", "JOBLEDGER_MIGRATION_DATABASE_URL"])
def test_what_the_page_names_exists(name: str) -> None:
    root = Path(__file__).parents[2] / "service" / "jobledger"
    source = (root / "store" / "roles.py").read_text() + (root / "settings.py").read_text()

    assert name in PAGE
    assert name.removeprefix("JOBLEDGER_").lower() in source or name in source
