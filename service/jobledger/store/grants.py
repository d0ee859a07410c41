"""Making the roles and grants of ``roles`` that are missing, as far as the migrating user may."""

from __future__ import annotations

import logging

import sqlalchemy as sa
from sqlalchemy import exc

from jobledger.store import roles

_log = logging.getLogger(__name__)


def ensure(connection: sa.Connection) -> None:
    """See that both roles are there and may do what they are for; needs the migration lock.

    Changes nothing that is as it should be, so that it costs other sessions nothing. Commits what it does.
    """
    made = [role for role in roles.ROLES if _exists(connection, role) or _make(connection, role)]
    due = [
        f"GRANT {', '.join(privileges)} ON {kind} {name} TO {role}"
        for kind, name, role, privileges in roles.GRANTS
        if role in made and not _granted(connection, kind, name, role, privileges)
    ]
    for statement in due:
        if (error := _attempt(connection, statement)) is not None:
            _log.warning(
                "the user that migrates may not: %s (%s); have an administrator run it", statement, error
            )


def let_log_in(connection: sa.Connection) -> None:
    """Let both roles log in by themselves: for a cluster that nobody else uses. Commits what it does."""
    for role in roles.ROLES:
        can = connection.scalar(
            sa.text("SELECT rolcanlogin FROM pg_roles WHERE rolname = :role"), {"role": role}
        )
        if can is False and (error := _attempt(connection, f"ALTER ROLE {role} LOGIN")) is not None:
            _log.warning("role %s cannot be let in: %s", role, error)


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
