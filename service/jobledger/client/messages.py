"""What a subscription yields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1 as pb_ledger
from jobledger.model import event, signal

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """An event of the log."""

    position: event.Position
    recorded_at: datetime
    """UTC, in milliseconds."""

    signal: signal.Signal

    @property
    def uuid(self) -> str:
        """The event's id, and the cursor with which to go on after it."""
        return self.signal.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """Everything up to the head was delivered; what follows is news."""

    position: event.Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An event that the service can no longer read was left out; an operator should look at it."""

    position: event.Position
    uuid: str
    """Still a valid cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Nothing to say, but the stream is alive."""

    position: event.Position
    """Looked at up to here, matching the filter or not."""

    uuid: str
    """The cursor at that position; empty while the log is."""

    head: event.Position


Message = Delivered | CaughtUp | Skipped | Heartbeat


def read(response: pb_ledger.SubscribeResponse) -> Message | None:
    """The message in a response; None for a kind that a newer service has and this client has not."""
    if response.event is not None:
        return Delivered(
            position=event.Position(response.event.position),
            recorded_at=_UNIX_EPOCH + timedelta(milliseconds=response.event.recorded_at_unix_ms),
            signal=_signal(response.event),
        )
    if response.caught_up is not None:
        return CaughtUp(position=event.Position(response.caught_up.position))
    if response.skipped is not None:
        return Skipped(position=event.Position(response.skipped.position), uuid=response.skipped.uuid)
    if response.heartbeat is not None:
        return Heartbeat(
            position=event.Position(response.heartbeat.position),
            uuid=response.heartbeat.uuid,
            head=event.Position(response.heartbeat.head),
        )
    return None


def _signal(message: pb_job.JobSummarySignal) -> signal.Signal:
    return signal.Signal(
        uuid=message.uuid,
        job_id=message.job_id,
        job_name=message.job_name,
        namespace=message.namespace,
        framework=message.frame_work,
        job_status=message.job_status,
        time=message.time,
        cm_index=message.cm_index,
        total=message.total,
        hccl_json=message.hccl_json,
        delete_time=message.delete_time,
        shared_tor_ip=message.shared_tor_ip,
        master_addr=message.master_addr,
        operator=message.operator,
        sid=message.sid,
    )
