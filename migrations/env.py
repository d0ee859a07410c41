"""How alembic runs a migration here: on the connection that ``jobledger.store.migrating`` hands over.

That connection holds the session advisory lock already. It cannot be taken here: alembic keeps this context
in module globals, and a second run of the same process, waiting, would mix with the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context

from jobledger.store import migrating, schema, tables


def run(connection: sa.Connection) -> None:
    """Run what is due, in one transaction, and say in the database what its columns mean."""
    context.configure(connection=connection, target_metadata=tables.metadata)
    before = context.get_context().get_current_heads()
    schema.require_known(before)
    with context.begin_transaction():
        context.run_migrations()
        if context.get_context().get_current_heads() != before:
            migrating.describe(connection)


run(context.config.attributes["connection"])
