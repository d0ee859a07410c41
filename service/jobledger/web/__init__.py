"""The REST edge: the CWAI job API over the ledger, and health. Everything but health is said in one envelope.

::

    Connection ─▶ Router ─▶ Jobs ─┬─ read ───▶ store
    (parser errors)               └─ write ──▶ Appender
         └───────────┴──────────────┴──▶ envelope: what our errors are to a REST client
"""
