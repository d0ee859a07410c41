"""Epochs are numbered, so that several may begin at one position, as when a backup is restored twice.

Before, the later took the place of the earlier one, and a cursor of that one was refused where both agree.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = (
    "ALTER TABLE ledger_epochs ADD COLUMN number integer",
    """
    UPDATE ledger_epochs SET number = numbered.nth
    FROM (SELECT epoch, row_number() OVER (ORDER BY from_position) AS nth FROM ledger_epochs) AS numbered
    WHERE numbered.epoch = ledger_epochs.epoch
    """,
    """
    ALTER TABLE ledger_epochs
        ALTER COLUMN number SET NOT NULL,
        ADD CONSTRAINT ledger_epochs_number_key UNIQUE (number),
        DROP CONSTRAINT ledger_epochs_from_position_key
    """,
    """
    CREATE OR REPLACE FUNCTION audit.head(out "position" bigint, out hash bytea, out epoch uuid)
        LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
        SELECT coalesce(last.position, 0), coalesce(last.hash, decode(repeat('00', 32), 'hex')), (
            SELECT ledger_epochs.epoch FROM public.ledger_epochs ORDER BY number DESC LIMIT 1
        )
        FROM (SELECT) AS one
        LEFT JOIN LATERAL (
            SELECT e.position, e.hash FROM public.job_events AS e ORDER BY e.position DESC LIMIT 1
        ) AS last ON true;
    END
    """,
)


def upgrade() -> None:
    """Number the epochs in the order of their positions, which was the only one."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
