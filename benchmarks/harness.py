"""What all benchmarks share: the service as a process of its own, and events that were encoded before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from jobledger import embedded
from jobledger.model.signal import Signal
from jobledger.wire import messages, signals

EVENT_BYTES = 600
"""About what a small job's event weighs, as delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service."""

    grpc: str
    http: str
    postgres: str
    pid: int
    postgres_pid: int
    """Of the server whose children are its sessions."""

    @property
    def grpc_port(self) -> str:
        """Its port alone."""
        return self.grpc.rpartition(":")[2]


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[Service]:
    """``jobledger serve`` on a Postgres of its own, in a directory that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-", ignore_cleanup_errors=True) as directory:
        async with embedded.running(Path(directory)) as postgres:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-m",
                    "jobledger",
                    "serve",
                    "--json",
                    "--grpc-port",
                    "0",
                    "--http-port",
                    "0",
                ),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "JOBLEDGER_DATABASE_URL": postgres.dsn},
            )
            assert process.stdout is not None  # noqa: S101 - it was asked for
            try:
                ready = json.loads(await process.stdout.readline())
                yield Service(
                    grpc=ready["grpc"],
                    http=ready["http"],
                    postgres=postgres.dsn,
                    pid=process.pid,
                    postgres_pid=postgres.pid,
                )
            finally:
                process.send_signal(signal.SIGTERM)
                await process.wait()


def encoded_signal(job_id: str) -> bytes:
    """A running job's signal of about :data:`EVENT_BYTES`."""
    device = '{"device_id":"0","device_ip":"192.168.101.11","rank_id":"0"}'
    table = (
        '{"status":"complete","server_list":[{"device":['
        + ",".join([device] * 4)
        + '],"server_id":"10.20.0.1",'
        '"host_ip":"10.20.0.1","server_name":"node-1"}],"server_count":"1","total":1}'
    )
    given = Signal(
        uuid=str(uuid4()),
        job_id=job_id,
        job_name="train-llama",
        namespace="team-a",
        framework="pytorch",
        job_status="running",
        time="1700000000",
        cm_index="0",
        total="1",
        hccl_json=table,
        operator="add",
    )
    return messages.JobSummarySignal.FromString(
        signals.stored_signal(given) + signals.given_signal(given)
    ).SerializeToString()


def encoded_request(job_ids: Sequence[str]) -> bytes:
    """An AppendRequest of one event a job."""
    events = [messages.EventParts(signal=encoded_signal(job_id)).SerializeToString() for job_id in job_ids]
    return messages.AppendRequestParts(events=events).SerializeToString()


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, in user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_seconds(pid: int) -> float:
    """Processor time that a process's children have used, those that live."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(processor_seconds(int(child)) for child in children)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent of the others stay below."""
    return statistics.quantiles(values, n=100)[percent - 1]


def machine() -> str:
    """What it ran on, in a line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"Python {platform.python_version()}, {len(_cores())} cores of {model}"


def _cores() -> list[str]:
    return [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("processor")]
