"""Appending in one order, and reading in that order. Knows no transport.

::

    Appender ──commit──▶ job_events ──▶ Tail ──▶ Window ─┐
                              │                          ├──▶ Subscription, one a stream: a cursor and a loop
                              └──────▶ page cache ───────┘
"""
