"""pgbouncer between a service and its Postgres; from Debian's package."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from jobledger.embedded import accounts
from tests.support import clusters, polling

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

_CONFIGURATION = """\
[databases]
jobledger = host=127.0.0.1 port={postgres} dbname=jobledger
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
; What pgbouncer does not track, and a client's start asks for.
ignore_startup_parameters = jit, enable_seqscan
"""


@contextlib.asynccontextmanager
async def pgbouncer(cluster: clusters.Cluster, *, mode: str) -> AsyncGenerator[str]:
    """A pooler before a cluster, in ``session`` or ``transaction`` mode; the DSN through it."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(prefix="jobledger-pgbouncer-") as name:
        port = clusters.free_port()
        configuration = _configured(Path(name), port=port, postgres=cluster.port, mode=mode)
        # It refuses to run as root, as Postgres does.
        account = accounts.choose(Path("/nonexistent"))
        process = accounts.spawn([PROGRAM, configuration], account=account, output=subprocess.DEVNULL)
        try:
            await polling.eventually(lambda: _answers(port), 30)
            yield f"postgresql://jobledger@127.0.0.1:{port}/jobledger"
        finally:
            # At once, whoever is connected.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _configured(place: Path, *, port: int, postgres: int, mode: str) -> Path:
    place.chmod(0o755)
    users, configuration = place / "users.txt", place / "pgbouncer.ini"
    users.write_text('"jobledger" ""\n')
    configuration.write_text(_CONFIGURATION.format(postgres=postgres, port=port, users=users, mode=mode))
    return configuration


def _answers(port: int) -> None:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError as error:
        raise AssertionError(str(error)) from error
