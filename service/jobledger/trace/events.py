"""Pods into events: what a scheduler would have reported of them, and when.

::

    created ──▶ add pending      HcclJson {"status":"initializing"}
    scheduled ──▶ add running    a rank table with a device for each GPU, on one invented server
    deleted ──▶ add complete | failed, if it had succeeded or failed, then delete
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid5

from jobledger.model import event, signal
from jobledger.trace import pods

EPOCH = int(datetime(2023, 1, 1, tzinfo=UTC).timestamp())
"""The moment, in epoch seconds, at which traces start; any fixed one will do."""

SERVERS = 1_200
"""Servers to invent: about the size of the cluster that the trace is from."""

NAMESPACE = UUID("0f2b6ac8-5d0e-5f0c-9f4e-3c1d7a0b52e6")
"""What the events' uuids are derived from, so that the same trace published again makes duplicates."""

ENDED = {pods.Phase.SUCCEEDED: "complete", pods.Phase.FAILED: "failed"}
"""jobStatus of a pod that had ended by itself when it was deleted."""


def of(trace: Iterable[pods.Pod]) -> list[event.Submission]:
    """Every event of a trace, by time, as a cluster's jobs interleave.

    At equal times the pods' order holds, and a job's own events keep theirs.
    """
    timed = [timed_signal for pod in trace for timed_signal in _life(pod)]
    timed.sort(key=lambda item: item[0])  # stable: equal times stay in order
    return [event.Submission(signal=of_job) for _, of_job in timed]


def _life(pod: pods.Pod) -> Iterator[tuple[int, signal.Signal]]:
    """A pod's events, each with its second in the trace."""
    yield pod.created, _signal(pod, "pending", hccl_json=signal.INITIALIZING)
    status, hccl_json, master = "pending", signal.INITIALIZING, ""
    if pod.scheduled is not None:
        address = _address(pod)
        status, hccl_json, master = "running", _rank_table(pod, address), address if pod.gpus else ""
        yield pod.scheduled, _signal(pod, status, hccl_json=hccl_json, master_addr=master)
    if pod.phase in ENDED:
        status = ENDED[pod.phase]
        yield pod.deleted, _signal(pod, status, hccl_json=hccl_json, master_addr=master, ended=True)
    yield pod.deleted, _signal(pod, status, operator=event.Operator.DELETE, ended=True)


def _signal(
    pod: pods.Pod,
    status: str,
    *,
    operator: event.Operator = event.Operator.ADD,
    hccl_json: str = "",
    master_addr: str = "",
    ended: bool = False,
) -> signal.Signal:
    return signal.Signal(
        uuid=str(uuid5(NAMESPACE, f"{pod.name}/{operator} {status}")),
        job_id=pod.name,
        job_name=pod.name,
        namespace=pod.qos,
        framework="pytorch",
        job_status=status,
        time=str(EPOCH + pod.created),
        cm_index="0",
        total="1",
        hccl_json=hccl_json,
        delete_time=str(EPOCH + pod.deleted) if ended else "",
        master_addr=master_addr,
        operator=operator.value,
    )


def _server(pod: pods.Pod) -> int:
    # Not hash(): that differs from process to process.
    return zlib.crc32(pod.name.encode()) % SERVERS


def _address(pod: pods.Pod) -> str:
    return f"10.20.{_server(pod) // 250}.{_server(pod) % 250 + 1}"


def _rank_table(pod: pods.Pod, address: str) -> str:
    server = _server(pod)
    devices = [
        {
            "device_id": str(rank),
            "device_ip": f"192.168.{server % 250}.{server // 250 * 16 + rank + 1}",
            "rank_id": str(rank),
        }
        for rank in range(pod.gpus)
    ]
    host: dict[str, object] = {
        "device": devices,
        "server_id": address,
        "host_ip": address,
        "server_name": f"node-{server:04}",
        "pod_name": pod.name,
        "container_ids": {},
    }
    servers = [host] if devices else []
    table = {"status": "complete", "server_list": servers, "server_count": str(len(servers)), "total": 1}
    return json.dumps(table, separators=(",", ":"))
