"""The workers of a service: who they are, and a client of each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from tests.support import clusterd, services

TRIES = 60
"""Connections until each worker has one: the kernel spreads them by hash. That one of two stays without is a
matter of 2⁻⁵⁹."""

_ESTABLISHED = "01"
"""/proc/net/tcp's word for it."""


def pids(process: services.Process) -> list[int]:
    """The workers' process ids, as the kernel has them."""
    parent = process.process.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if "jobledger.workers" in _command(int(pid))]


def alive(pid: int) -> bool:
    """Whether such a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.asynccontextmanager
async def clients(process: services.Process) -> AsyncGenerator[Mapping[int, clusterd.Subscriber]]:
    """A client of each worker, by its process id."""
    async with contextlib.AsyncExitStack() as stack:
        found: dict[int, clusterd.Subscriber] = {}
        workers = pids(process)
        port = int(process.grpc.rpartition(":")[2])
        for _ in range(TRIES):
            before = {pid: _connections(pid, port) for pid in workers}
            client = await stack.enter_async_context(clusterd.subscriber(process.grpc, own_connection=True))
            await client.register()
            [reached] = [pid for pid in workers if _connections(pid, port) - before[pid]]
            found.setdefault(reached, client)
            if len(found) == len(workers):
                break
        assert len(found) == len(workers), f"{TRIES} connections reached only {list(found)} of {workers}"
        yield found


def _command(pid: int) -> Sequence[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _connections(pid: int, port: int) -> set[str]:
    """The inodes of the connections to that port which a process has accepted."""
    own: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            own.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == _ESTABLISHED} & own
