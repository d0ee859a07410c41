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
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import channels
import writer

from jobledger import embedded
from jobledger.model import selection
from jobledger.model.signal import Signal
from jobledger.wire import messages, signals

EVENT_BYTES = 600
"""About what a small job's event weighs, as delivered."""

FILL_EVENTS = 500
"""In each message of :func:`fill`."""

SHORT = 100
"""Numbers below are shown with two digits more."""


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
    def http_port(self) -> str:
        """Its port alone."""
        return self.http.rpartition(":")[2]

    @property
    def grpc_port(self) -> str:
        """Its port alone."""
        return self.grpc.rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table: what was measured, and how it stands beside its peer."""

    what: str
    value: float
    unit: str
    ratio: float | None = None
    """Of the peer's in the same run, more being better; the peer's own is 1. None without a peer."""

    note: str = ""

    def __str__(self) -> str:
        """A line of a Markdown table."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        digits = 0 if self.value >= SHORT else 2
        return f"| {self.what} | {self.value:,.{digits}f} {self.unit} | {ratio} | {self.note} |"


HEAD = "| what | measured | of the peer | |\n|---|---|---|---|"
"""Of such a table."""


@contextlib.asynccontextmanager
async def postgres() -> AsyncGenerator[embedded.Server]:
    """A Postgres in a directory that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-", ignore_cleanup_errors=True) as directory:
        async with embedded.running(Path(directory)) as server:
            yield server


@contextlib.asynccontextmanager
async def serving(on: embedded.Server | None = None) -> AsyncGenerator[Service]:
    """``jobledger serve`` on that Postgres, else on one of its own."""
    async with contextlib.AsyncExitStack() as stack:
        server = on or await stack.enter_async_context(postgres())
        ports = ("--grpc-port", "0", "--http-port", "0")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jobledger", "serve", "--json", *ports),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "JOBLEDGER_DATABASE_URL": server.dsn},
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            ready = json.loads(await process.stdout.readline())
            yield Service(
                grpc=ready["grpc"],
                http=ready["http"],
                postgres=server.dsn,
                pid=process.pid,
                postgres_pid=server.pid,
            )
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


class Reading:
    """``reader.py`` in a process of its own, which reads streams of one server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def started(cls, kind: str, port: int | str, *asked: str, readers: int, messages: int) -> Reading:
        """Once every stream was answered; ``asked`` as reader.py's last arguments."""
        arguments = (kind, str(port), str(readers), str(messages), *asked)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name("reader.py")), *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None  # noqa: S101 - it was asked for
        if await process.stdout.readline() != b"open\n":
            raise SystemExit("the reader found no server")
        return cls(process)

    async def finished(self) -> float:
        """Seconds from the first request to the last message, as soon as that came."""
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        out = await self._process.stdout.readline()
        if not out:
            raise SystemExit("the reader did not get all messages")
        return float(out)

    async def seconds(self) -> float:
        """The same, once the reader has closed its connections, which costs the server something too."""
        took = await self.finished()
        await self._process.wait()
        return took


def client_info(start: selection.StartFrom, **fields: str) -> str:
    """What a subscriber of ``job.Job`` asks, for the reader."""
    number = list(selection.StartFrom).index(start) + 1
    return messages.ClientInfo(role="Bench", startFrom=number, **fields).SerializeToString().hex()


async def fill(address: str, events: int, *, jobs: int) -> float:
    """Append events by one publisher; how many a second."""
    async with channels.dial(address) as channel:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        began = time.perf_counter()
        for start in range(0, events, FILL_EVENTS):
            count = min(FILL_EVENTS, events - start)
            await call.write(encoded_request([f"job-{(start + n) % jobs}" for n in range(count)]))
            await call.read()
        took = time.perf_counter() - began
        await call.done_writing()
    return events / took


async def recorded(dsn: str) -> int:
    """How many events the log holds."""
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval("select coalesce(max(position), 0) from job_events")
    finally:
        await connection.close()


async def checkpoint(dsn: str) -> None:
    """Have Postgres write all that it holds, and keep the files of its own log to use them again."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("checkpoint")
    finally:
        await connection.close()


def resident_bytes(pid: int) -> int:
    """Memory that a process has in RAM."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def encoded_signal(job_id: str, uuid: str = "") -> bytes:
    """A running job's signal of about :data:`EVENT_BYTES`; without a uuid it gets one."""
    device = '{"device_id":"0","device_ip":"192.168.101.11","rank_id":"0"}'
    table = (
        '{"status":"complete","server_list":[{"device":['
        + ",".join([device] * 4)
        + '],"server_id":"10.20.0.1",'
        '"host_ip":"10.20.0.1","server_name":"node-1"}],"server_count":"1","total":1}'
    )
    return encoded(running_signal(job_id, table, uuid))


def running_signal(job_id: str, rank_table: str, uuid: str = "") -> Signal:
    """What a running job's publisher says; without a uuid it gets one."""
    return Signal(
        uuid=uuid or str(uuid4()),
        job_id=job_id,
        job_name="train-llama",
        namespace="team-a",
        framework="pytorch",
        job_status="running",
        time="1700000000",
        cm_index="0",
        total="1",
        hccl_json=rank_table,
        operator="add",
    )


def encoded(given: Signal) -> bytes:
    """A signal as its publisher sends it."""
    return messages.JobSummarySignal.FromString(
        signals.stored_signal(given) + signals.given_signal(given)
    ).SerializeToString()


def encoded_request(job_ids: Sequence[str]) -> bytes:
    """An AppendRequest of one event a job."""
    return request([encoded_signal(job_id) for job_id in job_ids])


def template_request(events: int) -> bytes:
    """An AppendRequest of so many events, each of a new job, with ``writer.MARK`` in each uuid and job id."""
    mark = writer.MARK.decode()
    uuids = [f"{mark}-0000-4000-8000-{nth:012}" for nth in range(events)]
    return request([encoded_signal(f"job-{mark}-{nth}", uuid) for nth, uuid in enumerate(uuids)])


def request(signals_sent: Sequence[bytes]) -> bytes:
    """An AppendRequest of encoded signals."""
    events = [messages.EventParts(signal=each).SerializeToString() for each in signals_sent]
    return messages.AppendRequestParts(events=events).SerializeToString()


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, in user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_seconds(pid: int) -> float:
    """Processor time that a process's children have used, those that live."""
    total = 0.0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            total += processor_seconds(int(child))
    return total


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
