"""Completion: what a partial event leaves out is taken from the job that it speaks of.

A delete by REST has no namespace, a gRPC event no region. Whoever follows a namespace must hear of the
delete all the same, so the log holds events completed. Pure; runs with the job as it is when the append
lock is held, or as it will be.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from jobledger import errors
from jobledger.model import chain, detail, event, job, masking, moment
from jobledger.model.signal import ENDED_STATUSES, INITIALIZING, Signal

FROM_ANY_LIFE = ("job_name", "namespace", "framework")
"""Signal fields that every event on a live job takes from it."""

BY_DELETE = ("job_status", "total", "sid")
"""Signal fields that a delete takes as well."""

BY_DESCRIPTION = ("job_status", "time", "cm_index", "total", "shared_tor_ip", "master_addr", "sid")
"""Signal fields that a description takes as well: describing a running job must not make it pending."""

WHOLE = {"cm_index": "0", "total": "1"}
"""What a signal says that is no part."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that was checked, masked and encoded, and waits for its place in the log."""

    uuid: UUID
    signal: Signal
    described: masking.Masked | None
    """The masked description and which of its secrets were not given anew."""

    detail: str | None
    """The masked description as text."""

    stored: bytes | None
    """The signal as the log keeps it, if it is known already."""

    servers: str | None
    """Those that the signal's rank table names, as ranktable.servers says."""

    region: str
    account_id: str
    user_id: str
    completes_all: bool
    content_hash: bytes
    publisher: str
    size_bytes: int
    """About what it takes in memory and on the wire."""


class Completed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the log will hold of a draft, but for its place."""

    signal: Signal
    detail: str | None
    region: str
    account_id: str
    user_id: str


def needs_rank_table(draft: Draft, current: job.Job | None) -> bool:
    """Whether completion wants the job's present rank table, which only the log has."""
    return (
        draft.completes_all
        and current is not None
        and current.live
        and draft.signal.operator == event.Operator.ADD
        and not draft.signal.hccl_json
    )


def complete(
    draft: Draft,
    *,
    current: job.Job | None,
    rank_table: str,
    default_region: str,
    recorded_at: datetime,
) -> Completed:
    """The event with everything that its job can tell of it.

    ``rank_table`` is the job's present one, joined, where :func:`needs_rank_table` asked for it, else "".

    Raises:
        errors.EventConflict: The job is live in another region.
    """
    alive = current if current is not None and current.live else None
    if alive is not None and draft.region and draft.region != alive.region:
        raise errors.EventConflict(
            field="region",
            reason=f"{errors.shown(draft.region)} was given, but job {errors.shown(alive.job_id)} is live in "
            f"region {errors.shown(alive.region)}; delete it there first",
        )
    text = draft.detail
    if draft.described is not None and draft.described.kept:
        text = detail.encode(masking.fill_kept(draft.described, _described(alive)))
    return Completed(
        signal=_signal(draft, alive=alive, rank_table=rank_table, recorded_at=recorded_at),
        detail=text,
        region=draft.region or (alive.region if alive is not None else default_region),
        account_id=draft.account_id or (alive.account_id if alive is not None else ""),
        user_id=draft.user_id or (alive.user_id if alive is not None else ""),
    )


def _described(alive: job.Job | None) -> detail.Detail | None:
    return detail.decode(alive.detail) if alive is not None and alive.detail is not None else None


def _signal(draft: Draft, *, alive: job.Job | None, rank_table: str, recorded_at: datetime) -> Signal:
    given = draft.signal
    filled: dict[str, str] = {}
    deleting = given.operator == event.Operator.DELETE
    if alive is not None:
        names = FROM_ANY_LIFE
        if deleting:
            names += BY_DELETE
        elif draft.completes_all:
            names += BY_DESCRIPTION
        filled = {name: getattr(alive.signal, name) for name in names if not getattr(given, name)}
    if draft.completes_all and not deleting:
        filled |= _life_start(draft) if alive is None else _life_goes_on(given, alive, rank_table, filled)
    if deleting and not given.delete_time:
        filled["delete_time"] = str(chain.microseconds(recorded_at) // 1_000_000)
    return replace(given, **filled) if filled else given


def _life_goes_on(given: Signal, alive: job.Job, rank_table: str, filled: dict[str, str]) -> dict[str, str]:
    more: dict[str, str] = {}
    if not given.hccl_json:
        more["hccl_json"] = rank_table
    if alive.arriving is not None:
        # The job's own are those of a part; what is described is whole.
        more |= {name: number for name, number in WHOLE.items() if not getattr(given, name)}
    if not given.delete_time and (given.job_status or filled["job_status"]) in ENDED_STATUSES:
        more["delete_time"] = alive.signal.delete_time
    return more


def _life_start(draft: Draft) -> dict[str, str]:
    given = draft.signal
    described = draft.described.detail if draft.described is not None else detail.Detail()
    created = detail.create_time(draft.detail) if draft.detail is not None else None
    defaults = {
        "job_status": "pending",
        "hccl_json": INITIALIZING,
        "job_name": described.name or "",
        "framework": (described.train_frame or "").lower(),
        "time": str(moment.epoch_seconds(created)) if created is not None else "",
    }
    return {name: value for name, value in defaults.items() if not getattr(given, name)}
