"""The job as the CWAI document answers it: every key present, in the document's order.

What a description does not say is derived from the signal and its rank table. Times are written in the
configured zone here, and nowhere before.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from jobledger.model import cwai, job, moment, ranktable, searchkeys

WORKER = "worker"
"""The role of a pod that only the rank table names."""

EMPTY_YAML = msgspec.Raw(b'{"metadata":{"creationTimestamp":null},"spec":{"containers":null},"status":{}}')
"""A pod's yaml when nobody gave one, as in the document's example."""


class Dataset(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """Data that the job reads, and where it is mounted."""

    name: str = ""
    dataset_id: str = ""
    mount_path: str = ""


class Env(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """An environment variable of every container; secrets are masked."""

    name: str = ""
    value: str = ""


class Resources(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename=cwai.wire_name):
    """What each replica may use."""

    cpu_limit: cwai.Int64 = 0
    gpu_limit: cwai.Int64 = 0
    mem_limit: cwai.Int64 = 0
    hca_shared: cwai.Int64 = 0


class Output(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """Where results or logs go."""

    storage_type: str = ""
    zos_bucket: str = ""
    zos_endpoint: str = ""
    access_key_id: str = ""
    access_key_secret: str = ""
    """``******`` if one was given."""

    mount_dir: str = ""
    sfs_uuid: str = ""
    hpfs_id: str = ""
    sfs_size: str = ""
    hpfs_share_path: str = ""
    pvc_name: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """One pod of the job."""

    role: str = ""
    name: str = ""
    restart_count: cwai.Int32 = 0
    pod_ip: str = ""
    host_ip: str = ""
    yaml: msgspec.Raw = msgspec.field(default_factory=lambda: EMPTY_YAML)
    """A JSON object."""

    container_names: tuple[str, ...] = ()
    start_time: str = ""
    finish_time: str = ""
    status: str = ""


class JobObject(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    """``returnObj``: the job."""

    name: str = ""
    job_id: str = ""
    user_id: str = ""
    account_id: str = ""
    region_id: str = ""
    az_name: str = ""
    resource_group_id: str = ""
    resource_group_name: str = ""
    queue_id: str = ""
    queue_name: str = ""
    train_type: str = ""
    train_frame: str = ""
    job_operator: str = ""
    is_deepspeed: bool = False
    datasets: tuple[Dataset, ...] = ()
    image_name: str = ""
    image_version: str = ""
    command: tuple[str, ...] = ()
    envs: tuple[Env, ...] = ()
    replicas: cwai.Int32 = 0
    resources: Resources = Resources()
    output: Output = Output()
    log_output: Output = Output()
    comment: str = ""
    pods: tuple[Pod, ...] = ()
    status: str = ""
    create_time: str = ""
    """``YYYY-MM-DD HH:MM:SS`` in the configured zone."""

    finish_time: str = ""
    """The same; "" until the job ended."""


class EndedJobObject(JobObject, frozen=True, kw_only=True, rename=cwai.wire_name):
    """A job among which ended ones may be."""

    delete_time: str = ""
    """When it was deleted, like the other times; "" while it lives."""


class ListedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename=cwai.wire_name):
    """A job in a list: without pods, command, envs, datasets, output and logOutput."""

    name: str = ""
    job_id: str = ""
    user_id: str = ""
    account_id: str = ""
    region_id: str = ""
    az_name: str = ""
    resource_group_id: str = ""
    resource_group_name: str = ""
    queue_id: str = ""
    queue_name: str = ""
    train_type: str = ""
    train_frame: str = ""
    job_operator: str = ""
    is_deepspeed: bool = False
    image_name: str = ""
    image_version: str = ""
    replicas: cwai.Int32 = 0
    resources: Resources = Resources()
    comment: str = ""
    status: str = ""
    create_time: str = ""
    finish_time: str = ""


class EndedListedJob(ListedJob, frozen=True, kw_only=True, gc=False, rename=cwai.wire_name):
    """A job in a list in which ended ones may be."""

    delete_time: str = ""
    """When it was deleted, like the other times; "" while it lives."""


class _Given(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which of the keys that can be derived a description gives."""

    pods: msgspec.Raw | UnsetType = UNSET
    replicas: msgspec.Raw | UnsetType = UNSET
    finish: datetime | None = msgspec.field(default=None, name="finishTime")


# The stored text has the same keys as the answer: one read fills in all that is absent.
_JOB_OBJECT = msgspec.json.Decoder(JobObject)
_LISTED_JOB = msgspec.json.Decoder(ListedJob)
_GIVEN = msgspec.json.Decoder(_Given)
_NOTHING = "{}"

_Shown = TypeVar("_Shown", JobObject, ListedJob)


def build(folded: job.Job, rank_table: str, zone: tzinfo) -> JobObject:
    """The job as it is shown.

    Args:
        folded: The job, live or ended.
        rank_table: The HcclJson of its present state; "" if there is none. Anything else
            than a rank table is passed over.
        zone: Where its times are shown.

    Raises:
        msgspec.DecodeError: the job's description was not stored by us.
    """
    text = folded.detail or _NOTHING
    given = _GIVEN.decode(text)
    ranks = ranktable.RankTable()
    if given.pods is UNSET or given.replicas is UNSET:
        ranks = ranktable.read(rank_table)
    shown = _derived(_JOB_OBJECT.decode(text), given, folded, ranks.count, zone)
    pods = _derived_pods(ranks, shown.status) if given.pods is UNSET else _shown_pods(shown.pods, zone)
    return replace(shown, pods=pods)


def listed(folded: job.Job, servers: int, zone: tzinfo) -> ListedJob:
    """The job as a list shows it; ``servers`` is the count that its rank table says."""
    text = folded.detail or _NOTHING
    return _derived(_LISTED_JOB.decode(text), _GIVEN.decode(text), folded, servers, zone)


def with_delete_time(shown: JobObject, folded: job.Job, zone: tzinfo) -> EndedJobObject:
    """The same, with when it was deleted."""
    return EndedJobObject(**_fields(shown), delete_time=_deleted(folded, zone))


def listed_with_delete_time(shown: ListedJob, folded: job.Job, zone: tzinfo) -> EndedListedJob:
    """The same, with when it was deleted."""
    return EndedListedJob(**_fields(shown), delete_time=_deleted(folded, zone))


def _derived(described: _Shown, given: _Given, folded: job.Job, servers: int, zone: tzinfo) -> _Shown:
    """What is described, with what the job's events say beside it."""
    job_status = folded.signal.job_status
    finished = given.finish or folded.ended_at
    return replace(
        described,
        name=described.name or folded.signal.job_name,
        job_id=folded.job_id,
        user_id=folded.user_id,
        account_id=folded.account_id,
        region_id=folded.region,
        train_frame=described.train_frame or folded.signal.framework,
        replicas=servers if given.replicas is UNSET else described.replicas,
        status=described.status or searchkeys.STATUS_WORDS.get(job_status, job_status),
        create_time=moment.local(folded.create_time, zone),
        finish_time=moment.local(finished, zone) if finished is not None else "",
    )


def _fields(shown: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(shown, name) for name in shown.__struct_fields__}


def _deleted(folded: job.Job, zone: tzinfo) -> str:
    if folded.deleted_at is None:
        return ""
    return moment.local(job.epoch_seconds(folded.signal.delete_time) or folded.deleted_at, zone)


def _derived_pods(ranks: ranktable.RankTable, status: str) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            role=WORKER,
            name=server.pod_name,
            host_ip=server.host_ip or server.server_id,
            container_names=tuple(server.container_ids or ()),
            status=status,
        )
        for server in ranks.servers
    )


def _shown_pods(pods: tuple[Pod, ...], zone: tzinfo) -> tuple[Pod, ...]:
    return tuple(
        replace(pod, start_time=_shown(pod.start_time, zone), finish_time=_shown(pod.finish_time, zone))
        for pod in pods
    )


def _shown(stored: str, zone: tzinfo) -> str:
    return moment.local(moment.read(stored, UTC), zone) if stored else ""
