"""A private Postgres, for a machine where nobody has set one up.

::

    data directory
    ├── lock           held by the service and inherited by Postgres: free only when both are gone
    ├── postgres/      the cluster, owned by the account that Postgres runs as
    ├── postgres.log   what initdb and Postgres said; the log before it is postgres.log.1
    └── socket/        where it listens; elsewhere when this path is too long for a socket

It listens on a Unix socket alone, in a directory that only its account (and root) may enter: whoever gets
there is trusted, nobody else gets there. It dies with the process that started it, even by ``kill -9``, and
keeps everything that was committed. Settings that invariant 2 rests on are given on its command line, where
nothing overrides them.

Must never change the permissions of a directory that it did not make.
"""

from __future__ import annotations

from jobledger.embedded.server import CONNECTIONS, Server, running, running_dsn

__all__ = ["CONNECTIONS", "Server", "running", "running_dsn"]
