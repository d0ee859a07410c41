"""Events with sensible defaults: a test names only what it is about."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from jobledger.model import event
from jobledger.model.principal import Principal
from jobledger.model.signal import INITIALIZING, Signal

PUBLISHER = Principal.anonymous("127.0.0.1")


def rank_table(
    *servers: str, devices: int = 1, status: str = "complete", server_count: int | None = None
) -> str:
    """A running job's HcclJson with some devices on each server; a part's if there are to be more of them."""
    server_list = [
        {
            "device": [
                {"device_id": str(nth), "device_ip": f"192.168.{number}.{nth}", "rank_id": str(nth)}
                for nth in range(devices)
            ],
            "server_id": server,
            "host_ip": server,
            "pod_name": f"job-worker-{number}",
        }
        for number, server in enumerate(servers)
    ]
    return json.dumps(
        {
            "status": status,
            "server_list": server_list,
            "server_count": str(server_count or len(servers)),
            "total": 1,
        },
        separators=(",", ":"),
    )


def signal(job_id: str = "job-1", **fields: Any) -> Signal:
    """An add of a pending job."""
    given: dict[str, Any] = {
        "uuid": str(uuid4()),
        "job_id": job_id,
        "job_name": "train",
        "namespace": "default",
        "framework": "pytorch",
        "job_status": "pending",
        "time": "1700000000",
        "cm_index": "0",
        "total": "1",
        "hccl_json": INITIALIZING,
        "operator": "add",
    }
    return Signal(**{**given, **fields})


def submission(
    job_id: str = "job-1",
    *,
    detail: dict[str, Any] | None = None,
    region: str = "",
    account_id: str = "",
    user_id: str = "",
    completes_all: bool = False,
    **fields: Any,
) -> event.Submission:
    """An add of a pending job, as a publisher gives it."""
    return event.Submission(
        signal=signal(job_id, **fields),
        detail=None if detail is None else json.dumps(detail),
        region=region,
        account_id=account_id,
        user_id=user_id,
        completes_all=completes_all,
    )


def part(
    place: int, *servers: str, job_id: str = "job-1", total: int = 2, server_count: int = 4, **fields: Any
) -> event.Submission:
    """A running job's part: some of its servers."""
    given: dict[str, Any] = {
        "job_status": "running",
        "cm_index": str(place),
        "total": str(total),
        "hccl_json": rank_table(*servers, server_count=server_count),
    }
    return submission(job_id, **{**given, **fields})


def deletion(job_id: str = "job-1", **fields: Any) -> event.Submission:
    """A delete that says nothing but which job."""
    return event.Submission(signal=Signal(uuid=str(uuid4()), job_id=job_id, operator="delete", **fields))
