"""A program: what of a posted job is hashed, stored and answered, for tests of the zone that it runs in."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from jobledger.ledger import admission
from jobledger.model import completion, event, job, returnobj
from jobledger.web import envelope, submissions

ZONE = ZoneInfo("Asia/Shanghai")
RECORDED_AT = datetime(2023, 11, 5, 6, 30, tzinfo=UTC)

# 01:30 of this day is there twice in New York.
POSTED = """{"jobID":"job-1","regionID":"r","uuid":"00000000-0000-4000-8000-000000000001",
  "status":"Succeeded","createTime":"2023-11-05 01:30:00",
  "pods":[{"startTime":"2023-11-05 01:30:00","finishTime":"2023-11-05T01:30:00-05:00"}]}"""


def main() -> None:
    """Print the host's zone, then everything that must not depend on it."""
    posted = submissions.read(POSTED)
    draft = admission.Admission(zone=ZONE, detail_limit_bytes=10_000).admit(
        event.Submission(
            signal=replace(posted.signal, job_id=posted.job_id),
            detail=posted.detail,
            region=posted.region,
            completes_all=True,
        ),
        publisher="publisher",
    )
    completed = completion.complete(
        draft, current=None, rank_table="", default_region="default", recorded_at=RECORDED_AT
    )
    folded = job.evolve(
        None,
        event.RecordedEvent(
            position=event.Position(1),
            uuid=draft.uuid,
            signal=completed.signal,
            detail=completed.detail,
            region=completed.region,
            account_id="",
            user_id="",
            recorded_at=RECORDED_AT,
        ),
    )
    assert folded is not None
    shown = envelope.success(returnobj.build(folded, completed.signal.hccl_json, ZONE))
    assert isinstance(shown.body, bytes)
    lines = (
        ",".join(time.tzname),
        draft.content_hash.hex(),
        str(completed.detail),
        completed.signal.time,
        shown.body.decode(),
    )
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
