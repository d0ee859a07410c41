"""The row of the log that an event becomes: its bytes, what they say in columns, its link of the chain."""

from __future__ import annotations

from datetime import datetime

from jobledger import errors
from jobledger.model import chain, completion, event, job, ranktable
from jobledger.store import eventlog
from jobledger.wire import delivery, signals


def make(
    draft: completion.Draft,
    completed: completion.Completed,
    *,
    current: job.Job | None,
    position: event.Position,
    previous: bytes,
    recorded_at: datetime,
    limit_bytes: int,
) -> eventlog.Row:
    """The row of an event at a position; ``current`` is its job before it, ``previous`` the hash before it.

    Raises:
        errors.EventTooLarge: Completed and delivered it is larger than the limit.
    """
    signal = completed.signal
    stored = draft.stored if signal is draft.signal else None
    if stored is None:
        stored = signals.stored_signal(signal)
    hccl = signal.hccl_json or None
    size = delivery.signal_size(stored, hccl)
    delivered = size + delivery.OWN_FIELDS_BYTES + delivery.LIST_OF_ONE_BYTES
    if delivered > limit_bytes:
        raise errors.EventTooLarge(field="signal", size_bytes=delivered, limit_bytes=limit_bytes)
    alive = current if current is not None and current.live else None
    # By position, in the order of its fields: with 28 names it takes three times as long.
    return eventlog.Row(
        position,
        draft.uuid,
        signal.job_id,
        signal.operator,
        signal.job_status,
        signal.job_name,
        signal.namespace,
        signal.framework,
        *job.numbers(signal),
        signal.shared_tor_ip,
        signal.master_addr,
        signal.sid,
        completed.region,
        completed.account_id,
        completed.user_id,
        draft.publisher,
        hccl,
        completed.detail,
        stored,
        draft.content_hash,
        size,
        _left(alive, "namespace", signal.namespace),
        _left(alive, "framework", signal.framework),
        recorded_at,
        chain.link(
            previous=previous,
            position=position,
            uuid=draft.uuid,
            content_hash=draft.content_hash,
            recorded_at=recorded_at,
            signal=stored,
            hccl=hccl,
            detail=completed.detail,
            region=completed.region,
            account_id=completed.account_id,
            user_id=completed.user_id,
            publisher=draft.publisher,
        ),
        draft.servers if signal.hccl_json is draft.signal.hccl_json else ranktable.servers(signal.hccl_json),
    )


def _left(alive: job.Job | None, name: str, now: str) -> str | None:
    """What a live job had before the event and has no longer: whoever followed it must hear of that."""
    before: str | None = getattr(alive.signal, name) if alive is not None else None
    return before if before != now else None
