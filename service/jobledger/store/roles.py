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

import logging
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import sqlalchemy as sa
from sqlalchemy import exc

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
    ("table", "public.alembic_version", APPLICATION, ("SELECT",)),
    ("schema", "public", AUDITOR, ("USAGE",)),
    ("schema", "audit", AUDITOR, ("USAGE",)),
    ("table", "public.job_events", AUDITOR, ("SELECT",)),
    ("table", "public.jobs", AUDITOR, ("SELECT",)),
    ("table", "public.ledger_info", AUDITOR, ("SELECT",)),
    ("table", "public.ledger_epochs", AUDITOR, ("SELECT",)),
    ("table", "audit.events", AUDITOR, ("SELECT",)),
    ("table", "audit.jobs", AUDITOR, ("SELECT",)),
    ("table", "audit.job_history", AUDITOR, ("SELECT",)),
    ("table", "audit.publishers", AUDITOR, ("SELECT",)),
    ("table", "audit.event_servers", AUDITOR, ("SELECT",)),
)

_log = logging.getLogger(__name__)


def ensure(connection: sa.Connection) -> None:
    """See that both roles are there and may do what they are for; needs the migration lock.

    Changes nothing that is as it should be, so that it costs other sessions nothing. Commits what it does.
    """
    made = [role for role in ROLES if _exists(connection, role) or _make(connection, role)]
    due = [
        f"GRANT {', '.join(privileges)} ON {kind} {name} TO {role}"
        for kind, name, role, privileges in GRANTS
        if role in made and not _granted(connection, kind, name, role, privileges)
    ]
    for statement in due:
        if (error := _attempt(connection, statement)) is not None:
            _log.warning(
                "the user that migrates may not: %s (%s); have an administrator run it", statement, error
            )


def let_log_in(connection: sa.Connection) -> None:
    """Let both roles log in by themselves: for a cluster that nobody else uses. Commits what it does."""
    for role in ROLES:
        can = connection.scalar(
            sa.text("SELECT rolcanlogin FROM pg_roles WHERE rolname = :role"), {"role": role}
        )
        if can is False and (error := _attempt(connection, f"ALTER ROLE {role} LOGIN")) is not None:
            _log.warning("role %s cannot be let in: %s", role, error)


def as_role(dsn: str, role: str) -> str:
    """The DSN of the same database for another role, which needs no password there."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))


def _exists(connection: sa.Connection, role: str) -> bool:
    found = connection.scalar(sa.text("SELECT count(*) FROM pg_roles WHERE rolname = :role"), {"role": role})
    return found == 1


def _make(connection: sa.Connection, role: str) -> bool:
    error = _attempt(connection, f"CREATE ROLE {role} NOLOGIN")
    # Another database's migration may have made it in the meantime: the migration lock is not the cluster's.
    if error is None or _exists(connection, role):
        return True
    _log.warning(
        "the user that migrates may not make role %s (%s); have an administrator run CREATE ROLE %s NOLOGIN, "
        "and migrate again",
        role,
        error,
        role,
    )
    return False


def _granted(connection: sa.Connection, kind: str, name: str, role: str, privileges: tuple[str, ...]) -> bool:
    # Asked for each, because a list of them is true if any is; what PUBLIC gives counts.
    has = getattr(sa.func, f"has_{kind}_privilege")
    return all(connection.scalar(sa.select(has(role, name, privilege))) for privilege in privileges)


def _attempt(connection: sa.Connection, statement: str) -> str | None:
    """Run a statement by itself; what the server said if it refused."""
    try:
        connection.exec_driver_sql(statement)
    except exc.DBAPIError as error:
        connection.rollback()
        return str(error.orig).rpartition(": ")[2]
    connection.commit()
    return None
