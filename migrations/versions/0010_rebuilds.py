"""Rebuilds of the view leave a trace.

An append may be worked out before it has the append lock, on jobs that it read before. That holds if the log
still ends there, and if no rebuild has put other rows in place of those, of which the log would say nothing.

For an auditor it says when the view was mended. A rebuild by a jobledger of the release before leaves no
trace: use the new one's, or run it when nobody appends.
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE TABLE view_rebuilds (
        number     integer     NOT NULL CONSTRAINT view_rebuilds_pkey PRIMARY KEY,
        head       bigint      NOT NULL,
        differed   integer     NOT NULL,
        rebuilt_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    "COMMENT ON TABLE view_rebuilds IS 'Each time the view was made again and rows of it had been wrong.'",
    "COMMENT ON COLUMN view_rebuilds.number IS '1, 2, 3 ... in the order in which they were committed.'",
    "COMMENT ON COLUMN view_rebuilds.head IS 'The last position that it was made from.'",
    "COMMENT ON COLUMN view_rebuilds.differed IS 'How many rows were not as the log says, and now are.'",
    "COMMENT ON COLUMN view_rebuilds.rebuilt_at IS 'When; by the database''s clock.'",
    """
    COMMENT ON COLUMN job_events.recorded_at IS
        'When it was being appended, by Postgres'' clock; never decreases with position.'
    """,
)


def upgrade() -> None:
    """Add the table."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
