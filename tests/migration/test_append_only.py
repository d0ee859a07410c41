"""Nobody updates or deletes history: invariant 7, its triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

INSERT = """
INSERT INTO job_events (position, uuid, job_id, operator, job_status, job_name, namespace, framework,
    shared_tor_ip, master_addr, sid, region, account_id, user_id, publisher, signal, content_hash, size,
    recorded_at, hash)
VALUES ($1, gen_random_uuid(), 'job-1', 'add', 'running', '', '', '', '', '', '', 'default', '', '', '',
    '', sha256(''), 0, now(), sha256(''))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE job_events SET job_status = 'failed' WHERE position = 1",
        "UPDATE job_events SET size = size WHERE false",
        "DELETE FROM job_events",
        "TRUNCATE job_events",
        "TRUNCATE job_events CASCADE",
        "TRUNCATE jobs, job_events RESTART IDENTITY CASCADE",
        "MERGE INTO job_events USING jobs ON false WHEN MATCHED THEN DELETE",
        f"{INSERT.replace('$1', '1')} ON CONFLICT (position) DO UPDATE SET size = 1",
        "WITH gone AS (DELETE FROM job_events RETURNING 1) SELECT count(*) FROM gone",
        "SET session_replication_role = replica; DELETE FROM job_events",
    ],
)
async def test_history_is_not_changed_by(connection: Connection, statement: str) -> None:
    await connection.execute(INSERT, 1)
    before = await connection.fetch("SELECT * FROM job_events")

    with pytest.raises(
        asyncpg.InsufficientPrivilegeError, match=r"job_events is append-only: [A-Z]+ refused"
    ):
        await connection.execute(statement)

    assert await connection.fetch("SELECT * FROM job_events") == before


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"$1": "0"}, "job_events_position_check"),
        ({"$1": "1"}, "job_events_pkey"),
        ({"$1": "2", "'add'": "'change'"}, "job_events_operator_check"),
        ({"$1": "2", "now(), sha256('')": "now(), ''"}, "job_events_hash_check"),
        ({"$1": "2", "sha256(''), 0": "'', 0"}, "job_events_content_hash_check"),
    ],
)
async def test_a_row_that_cannot_be_an_event_is_refused(
    connection: Connection, change: dict[str, str], constraint: str
) -> None:
    await connection.execute(INSERT, 1)
    statement = INSERT
    for old, new in change.items():
        statement = statement.replace(old, new)

    with pytest.raises(asyncpg.IntegrityConstraintViolationError) as refused:
        await connection.execute(statement)

    assert refused.value.constraint_name == constraint  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
