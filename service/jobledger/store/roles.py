"""The database's two roles, and what each may do: nobody who serves or audits can change history.

::

    owner                 migrates; owns the tables; the one that can change the schema, triggers included
    jobledger_app         serves: reads, appends events, keeps the view and the subscribers
    jobledger_auditor     reads, and nothing else

Roles belong to the cluster, grants to a database: a restored dump may come without either. So both are
looked at whenever the schema is migrated, and what is missing is made, if the migrating user may; if not, the
log says what an administrator has to run, and everything goes on under the user that the service was given.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

APPLICATION: Final = "jobledger_app"
"""Whoever serves is this role, or a member of it."""

AUDITOR: Final = "jobledger_auditor"
"""Whoever audits is a member of this role."""

ROLES: Final = (APPLICATION, AUDITOR)

# Kind, object, role, privileges. No UPDATE, DELETE, TRUNCATE or TRIGGER on job_events for anybody, and
# neither role owns anything.
GRANTS: Final = (
    ("schema", "public", APPLICATION, ("USAGE",)),
    ("table", "public.job_events", APPLICATION, ("SELECT", "INSERT")),
    ("table", "public.jobs", APPLICATION, ("SELECT", "INSERT", "UPDATE", "DELETE")),
    ("table", "public.subscribers", APPLICATION, ("SELECT", "INSERT", "UPDATE", "DELETE")),
    ("table", "public.ledger_info", APPLICATION, ("SELECT",)),
    ("table", "public.ledger_epochs", APPLICATION, ("SELECT",)),
    ("table", "public.view_rebuilds", APPLICATION, ("SELECT", "INSERT")),
    ("table", "public.alembic_version", APPLICATION, ("SELECT",)),
    ("schema", "public", AUDITOR, ("USAGE",)),
    ("schema", "audit", AUDITOR, ("USAGE",)),
    ("table", "public.job_events", AUDITOR, ("SELECT",)),
    ("table", "public.jobs", AUDITOR, ("SELECT",)),
    ("table", "public.ledger_info", AUDITOR, ("SELECT",)),
    ("table", "public.ledger_epochs", AUDITOR, ("SELECT",)),
    ("table", "public.view_rebuilds", AUDITOR, ("SELECT",)),
    ("table", "audit.events", AUDITOR, ("SELECT",)),
    ("table", "audit.jobs", AUDITOR, ("SELECT",)),
    ("table", "audit.job_history", AUDITOR, ("SELECT",)),
    ("table", "audit.publishers", AUDITOR, ("SELECT",)),
    ("table", "audit.event_servers", AUDITOR, ("SELECT",)),
)

# $1 kinds, $2 objects, $3 roles, $4 privileges; what PUBLIC gives counts
_ALL_GRANTED = """
    SELECT bool_and(
        CASE kind
            WHEN 'schema' THEN has_schema_privilege(role, object, privilege)
            ELSE has_table_privilege(role, object, privilege)
        END
    )
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS due (kind, object, role, privilege)
"""


async def complete(connection: asyncpg.Connection[asyncpg.Record], *, log_in: bool) -> bool:
    """Whether both roles are there and may do what they are for, ``log_in`` included; needs the schema."""
    found = await connection.fetch("SELECT rolcanlogin FROM pg_roles WHERE rolname = ANY ($1)", list(ROLES))
    if len(found) < len(ROLES) or (log_in and not all(row["rolcanlogin"] for row in found)):
        return False
    due = [(*grant[:3], privilege) for grant in GRANTS for privilege in grant[3]]
    return await connection.fetchval(_ALL_GRANTED, *map(list, zip(*due, strict=True)))


def as_role(dsn: str, role: str) -> str:
    """The DSN of the same database for another role, which needs no password there."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))
