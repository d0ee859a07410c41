"""The signal: what ClusterD says of a job, field by field, as text."""

from __future__ import annotations

from typing import Final

import msgspec

JOB_STATUSES = ("pending", "running", "complete", "failed")
"""Every jobStatus. ``failed`` is not terminal: rescheduling leads from it back to ``running``."""

ENDED_STATUSES = ("complete", "failed")
"""The statuses in which a job has a finish time."""

INITIALIZING = '{"status":"initializing"}'
"""HcclJson of a job whose devices are still being allocated."""


WIRE_NAMES: Final = {
    "job_id": "jobId",
    "job_name": "jobName",
    "framework": "frameWork",
    "job_status": "jobStatus",
    "cm_index": "cmIndex",
    "hccl_json": "HcclJson",
    "delete_time": "deleteTime",
    "shared_tor_ip": "sharedTorIp",
    "master_addr": "masterAddr",
}
"""What fields are called on the wire, and in messages, where that is not their name here."""


class Signal(msgspec.Struct, frozen=True, gc=False):
    """One JobSummarySignal without our own fields. Every text is as on the wire; ``""`` is not given.

    A struct, since one is made for every event: a frozen dataclass of sixteen fields takes ten times as long.
    """

    uuid: str = ""
    """The event's uuid, in any spelling until it was admitted, then lower-case and hyphenated."""

    job_id: str = ""
    """The workload's Kubernetes UID or any opaque id."""

    job_name: str = ""
    namespace: str = ""
    framework: str = ""

    job_status: str = ""
    """One of :data:`JOB_STATUSES`."""

    time: str = ""
    """When the job started, in epoch seconds, decimal."""

    cm_index: str = ""
    """Which part of the job's rank table this is, from 0, decimal."""

    total: str = ""
    """How many parts there are, decimal."""

    hccl_json: str = ""
    """The rank table: a JSON object as text, kept to the byte."""

    delete_time: str = ""
    """When the job ended, in epoch seconds, decimal."""

    shared_tor_ip: str = ""
    """A JSON array of addresses as text."""

    master_addr: str = ""
    operator: str = ""
    """``add`` or ``delete``."""

    sid: str = ""

    unknown: bytes = b""
    """Fields of a newer publisher, as encoded; they survive to every reader."""
