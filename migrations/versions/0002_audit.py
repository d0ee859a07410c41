"""The schema ``audit``: the ledger readable, as it was at any position, and provable, with plain SQL.

The statements are in the directory beside this file. Who may use it is granted by ``jobledger.store.roles``,
at every migration, since a dump may be restored where the roles are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BETWEEN = "\n----\n"
"""Parts the statements of a file: to psql a comment, to the driver, which takes one at a time, the end."""


def statements() -> Iterator[str]:
    """Every statement, in the order of the files' names."""
    for file in sorted(Path(__file__).with_suffix("").glob("*.sql")):
        yield from file.read_text(encoding="utf-8").split(BETWEEN)


def upgrade() -> None:
    """Make the schema, its views and functions, and the index from servers to events."""
    for statement in statements():
        # Not as text(): a colon of theirs is no parameter.
        op.get_bind().exec_driver_sql(statement)
