"""What lists look for and sort by that only a job's description, or the fold of it, tells.

Columns of the view beside the folded ones: a pure function of the job, so that rebuild writes them as append
does. They say what the answer shows: the name, the status' word, when it finished.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from jobledger.model import cwai, job

STATUS_WORDS = {"pending": "Pending", "running": "Running", "complete": "Succeeded", "failed": "Failed"}
"""What the document calls each jobStatus."""


class Keys(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a list sees of a job beside its folded fields."""

    shown_name: str
    """The described name, else the signal's."""

    shown_status: str
    """The publisher's own word while it holds, else the document's for the jobStatus."""

    train_frame: str
    """The described one, else the signal's frameWork."""

    queue_id: str
    resource_group_id: str
    finish_time: datetime | None
    """The described one, else since when it is ended; None while it is not. UTC."""

    live: bool


class _Described(msgspec.Struct, frozen=True, kw_only=True, rename=cwai.wire_name):
    name: str = ""
    status: str = ""
    train_frame: str = ""
    queue_id: str = ""
    resource_group_id: str = ""
    finish_time: datetime | None = None


_DESCRIBED = msgspec.json.Decoder(_Described)
_NOTHING = _Described()


def of(folded: job.Job) -> Keys:
    """The keys of a job.

    Raises:
        msgspec.DecodeError: the job's description was not stored by us.
    """
    described = _DESCRIBED.decode(folded.detail) if folded.detail is not None else _NOTHING
    finished = described.finish_time
    return Keys(
        shown_name=described.name or folded.signal.job_name,
        shown_status=described.status or STATUS_WORDS.get(folded.signal.job_status, folded.signal.job_status),
        train_frame=described.train_frame or folded.signal.framework,
        queue_id=described.queue_id,
        resource_group_id=described.resource_group_id,
        finish_time=finished.astimezone(UTC) if finished is not None else folded.ended_at,
        live=folded.live,
    )
