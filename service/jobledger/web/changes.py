"""What an event changes of its job, by name: whoever wants the values asks for the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jobledger.model import event, signal

_FIELDS: Final = tuple(
    name for name in signal.Signal.__struct_fields__ if name not in ("uuid", "job_id", "operator", "unknown")
)
_OWNERS: Final = (("region", "regionID"), ("account_id", "accountID"), ("user_id", "userID"))
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Changes:
    """Compares each event of a job with the one before."""

    def __init__(self, previous: event.RecordedEvent | None) -> None:
        self._previous = previous
        self._described = _members(previous)

    def next(self, recorded: event.RecordedEvent) -> Sequence[str]:
        """Names of what the event changes: of the signal, the owners, and the detail's keys."""
        before, self._previous = self._previous, recorded
        if before is not None and before.signal.operator == event.Operator.DELETE:
            before, self._described = None, {}
        changed = [
            signal.WIRE_NAMES.get(name, name)
            for name in _FIELDS
            if getattr(recorded.signal, name) != (getattr(before.signal, name) if before is not None else "")
        ]
        changed += [
            shown
            for name, shown in _OWNERS
            if getattr(recorded, name) != (getattr(before, name) if before is not None else "")
        ]
        if recorded.signal.operator == event.Operator.DELETE:
            # It says which job, not that its ranks are gone.
            return [
                name
                for name in changed
                if name not in ("HcclJson", "time", "cmIndex", "sharedTorIp", "masterAddr")
            ]
        if recorded.detail is not None:
            described = _members(recorded)
            changed += [
                f"detail.{key}"
                for key in sorted({*described, *self._described})
                if described.get(key) != self._described.get(key)
            ]
            self._described = described
        return changed


def _members(recorded: event.RecordedEvent | None) -> dict[str, bytes]:
    if recorded is None or recorded.detail is None:
        return {}
    return {key: bytes(member) for key, member in _MEMBERS.decode(recorded.detail).items()}
