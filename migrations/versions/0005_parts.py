"""Parts: what the fold must remember of a rank table that comes in several signals, in ``jobs.arriving``.

Null for the ordinary, whole signal, so that the table is not written anew. Rows of jobs whose newest add is a
part are made right by the SQL fold; what a part had taken out of a description comes back by
``jobledger rebuild``.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BETWEEN = "\n----\n"
"""Parts the statements of the file, as in 0002."""


def upgrade() -> None:
    """Replace the SQL fold, add the column, and fill it where a job's newest add is a part."""
    file = Path(__file__).with_suffix("") / "parts.sql"
    for statement in file.read_text(encoding="utf-8").split(BETWEEN):
        op.get_bind().exec_driver_sql(statement)
