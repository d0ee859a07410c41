"""A batch as it is sent, and what became of its events."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1 as pb_ledger
from jobledger.model import event, signal
from jobledger.wire import signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An event that the log did not take; its neighbours are not touched by it."""

    code: str
    """A stable word: invalid, conflict or too_large."""

    field: str
    """The field at fault, such as ``signal.jobId``."""

    reason: str
    """What is wrong, and what to do."""


Batch = Sequence[event.Submission]
"""Events that are sent together, in one message."""

Outcome = event.Receipt | Refused


def request(batch: Batch) -> pb_ledger.AppendRequest:
    """The batch as it is sent."""
    return pb_ledger.AppendRequest(
        events=[
            pb_ledger.Event(
                signal=_signal(submission.signal),
                detail=submission.detail or "",
                region=submission.region,
                account_id=submission.account_id,
                user_id=submission.user_id,
            )
            for submission in batch
        ]
    )


def _signal(given: signal.Signal) -> pb_job.JobSummarySignal:
    if given.unknown:
        message = pb_job.JobSummarySignal.parse(signals.given_signal(given))
        message.uuid = given.uuid
        return message
    return pb_job.JobSummarySignal(
        uuid=given.uuid,
        job_id=given.job_id,
        job_name=given.job_name,
        namespace=given.namespace,
        frame_work=given.framework,
        job_status=given.job_status,
        time=given.time,
        cm_index=given.cm_index,
        total=given.total,
        hccl_json=given.hccl_json,
        delete_time=given.delete_time,
        shared_tor_ip=given.shared_tor_ip,
        master_addr=given.master_addr,
        operator=given.operator,
        sid=given.sid,
    )


def outcomes(response: pb_ledger.AppendResponse) -> list[Outcome]:
    """What became of a batch's events, in their order."""
    return [_outcome(receipt) for receipt in response.receipts]


def _outcome(receipt: pb_ledger.Receipt) -> Outcome:
    if receipt.error is not None:
        return Refused(code=receipt.error.code, field=receipt.error.field, reason=receipt.error.reason)
    return event.Receipt(
        uuid=uuid.UUID(receipt.uuid),
        position=event.Position(receipt.position),
        duplicate=receipt.duplicate,
    )
