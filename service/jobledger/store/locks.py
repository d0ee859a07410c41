"""The advisory locks: who may do what only one at a time may do.

Advisory locks belong to a database and are named by two numbers; the first is ours, so that another
program in the same database does not meet them by chance.
"""

from __future__ import annotations

NAMESPACE = 0x4A4C
"""First number of every lock of JobLedger: "JL"."""

APPEND = 1
"""Held, to the end of its transaction, by whoever appends: makes commit order position order."""

MIGRATION = 2
"""Held, by its session, by whoever migrates the schema."""
