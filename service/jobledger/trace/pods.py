"""Pods, and the public pod list of Alibaba's GPU cluster of 2023 (alibaba/clusterdata)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from jobledger import errors

COLUMNS = ("name", "num_gpu", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
"""The columns that are read; others may stand beside them."""


class Phase(StrEnum):
    """What had become of a pod when the trace ended or it was deleted."""

    PENDING = "Pending"
    """It was never scheduled."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod's life; times are seconds from the trace's start, and never decrease in this order."""

    name: str
    gpus: int
    """Devices it asked for; 0 for a pod that only computes on processors."""

    qos: str
    phase: Phase
    created: int
    scheduled: int | None
    """None if it never was."""

    deleted: int


def read(path: Path) -> list[Pod]:
    """The pods of a pod list, in the file's order.

    Raises:
        errors.InvalidRequest: the file is not such a list; the message names file, line and column.
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return list(_rows(file, path))


def _rows(file: TextIO, path: Path) -> Iterator[Pod]:
    reader = csv.DictReader(file)
    missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise errors.InvalidRequest(
            f"{path} has no column {', '.join(missing)}; expected is openb_pod_list_default.csv of "
            "github.com/alibaba/clusterdata, cluster-trace-gpu-v2023"
        )
    for row in reader:
        try:
            yield _pod(row)
        except (ValueError, TypeError) as error:
            raise errors.InvalidRequest(f"{path} line {reader.line_num}: {error}") from error


def _pod(row: dict[str, str]) -> Pod:
    scheduled = row["scheduled_time"]
    pod = Pod(
        name=row["name"],
        gpus=int(row["num_gpu"]),
        qos=row["qos"],
        phase=Phase(row["pod_phase"]),
        created=int(row["creation_time"]),
        scheduled=int(scheduled) if scheduled else None,
        deleted=int(row["deletion_time"]),
    )
    if not pod.created <= (pod.created if pod.scheduled is None else pod.scheduled) <= pod.deleted:
        raise ValueError(f"the times of {pod.name} run backwards")
    return pod
