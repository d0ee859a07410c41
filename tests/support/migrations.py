"""What a migration says, for tests that run a part of it again."""

from __future__ import annotations

from collections.abc import Sequence

from jobledger.store import migrating


def statements(revision: str) -> Sequence[str]:
    """The statements of a migration that lists them, as alembic loads it."""
    return migrating.scripts().get_revision(revision).module.STATEMENTS
