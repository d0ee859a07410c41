"""Migration 0006 numbers the epochs that are there in the order in which they began."""

from __future__ import annotations

import asyncpg

from tests.support import migrations

AS_BEFORE = """
    alter table ledger_epochs drop column number,
        add constraint ledger_epochs_from_position_key unique (from_position);
    insert into ledger_epochs values
        ('ffffffff-0000-4000-8000-000000000000', 51), ('00000000-0000-4000-8000-000000000000', 101)
"""


async def test_epochs_are_numbered_in_the_order_of_their_positions(
    connection: asyncpg.Connection[asyncpg.Record],
) -> None:
    # The function reads the column that is to go.
    await connection.execute("drop function audit.head()")
    await connection.execute(AS_BEFORE)

    for statement in migrations.statements("0006"):
        await connection.execute(statement)

    numbered = await connection.fetch("select from_position, number from ledger_epochs order by number")
    assert [tuple(row) for row in numbered] == [(1, 1), (51, 2), (101, 3)]
