"""The shape of a CWAI description as it is given and stored, without identity: every key is optional.

The shape that is answered, where every key is present, is in ``returnobj``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
LARGEST_INT64 = 2**63 - 1
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=LARGEST_INT64)]

_ABBREVIATIONS = {"id", "ip", "uuid"}


def wire_name(name: str) -> str:
    """A field as the document spells it: ``access_key_id`` is ``accessKeyID``."""
    first, *rest = name.split("_")
    return first + "".join(part.upper() if part in _ABBREVIATIONS else part.capitalize() for part in rest)


class Dataset(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Data that the job reads, and where it is mounted."""

    name: str | UnsetType = UNSET
    dataset_id: str | UnsetType = UNSET
    mount_path: str | UnsetType = UNSET


class Env(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """An environment variable of every container."""

    name: str | UnsetType = UNSET
    value: str | UnsetType = UNSET


class Resources(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What each replica may use; the document names no units."""

    cpu_limit: Int64 | UnsetType = UNSET
    gpu_limit: Int64 | UnsetType = UNSET
    mem_limit: Int64 | UnsetType = UNSET
    hca_shared: Int64 | UnsetType = UNSET


class Output(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Where results or logs go."""

    storage_type: str | UnsetType = UNSET
    zos_bucket: str | UnsetType = UNSET
    zos_endpoint: str | UnsetType = UNSET
    access_key_id: str | UnsetType = UNSET
    access_key_secret: str | UnsetType = UNSET
    """After masking: the mask if one was given, else not given."""

    mount_dir: str | UnsetType = UNSET
    sfs_uuid: str | UnsetType = UNSET
    hpfs_id: str | UnsetType = UNSET
    sfs_size: str | UnsetType = UNSET
    hpfs_share_path: str | UnsetType = UNSET
    pvc_name: str | UnsetType = UNSET


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """One pod, as the publisher saw it."""

    role: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    restart_count: Int32 | UnsetType = UNSET
    pod_ip: str | UnsetType = UNSET
    host_ip: str | UnsetType = UNSET
    yaml: msgspec.Raw | UnsetType = UNSET
    """A JSON object, as jsontext.write spells it: nulls and every digit of its numbers are kept."""

    container_names: tuple[str, ...] | UnsetType = UNSET
    start_time: datetime | UnsetType = UNSET
    finish_time: datetime | UnsetType = UNSET
    status: str | UnsetType = UNSET


class Detail(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """A description without identity; what was not given is UNSET."""

    name: str | UnsetType = UNSET
    az_name: str | UnsetType = UNSET
    resource_group_id: str | UnsetType = UNSET
    resource_group_name: str | UnsetType = UNSET
    queue_id: str | UnsetType = UNSET
    queue_name: str | UnsetType = UNSET
    train_type: str | UnsetType = UNSET
    train_frame: str | UnsetType = UNSET
    job_operator: str | UnsetType = UNSET
    is_deepspeed: bool | UnsetType = UNSET
    datasets: tuple[Dataset, ...] | UnsetType = UNSET
    image_name: str | UnsetType = UNSET
    image_version: str | UnsetType = UNSET
    command: tuple[str, ...] | UnsetType = UNSET
    envs: tuple[Env, ...] | UnsetType = UNSET
    replicas: Int32 | UnsetType = UNSET
    resources: Resources | UnsetType = UNSET
    output: Output | UnsetType = UNSET
    log_output: Output | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    pods: tuple[Pod, ...] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    create_time: datetime | UnsetType = UNSET
    finish_time: datetime | UnsetType = UNSET
