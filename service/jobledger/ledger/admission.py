"""The door: what a publisher gave is checked, masked and encoded, without the append lock.

Every refusal names the field, the value and the remedy, and concerns that event alone.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from jobledger import errors
from jobledger.model import chain, completion, detail, event, jsontext, masking, ranktable, searchkeys
from jobledger.model.signal import JOB_STATUSES, WIRE_NAMES, Signal
from jobledger.store import eventlog
from jobledger.wire import signals

JOB_ID_CHARACTERS: Final = 256
"""The longest job id (CWAI contract)."""

NAME_CHARACTERS: Final = 512
"""The longest of all other names: twice what Kubernetes allows, and still within an index entry."""

LATEST_SECOND: Final = 253_402_300_799
"""The last second of the year 9999 in UTC, the last one that a datetime holds."""

LARGEST_PART: Final = 999_999_999
"""The largest cmIndex or total; both are integers in the table."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_SMALL_NUMBERS: Final = frozenset({"", "0", "1"})
"""What most numbers are, or nothing at all."""

_NAMES: Final = ("job_name", "namespace", "framework", "master_addr", "sid")
_OTHER_TEXTS: Final = ("job_id", "shared_tor_ip", "hccl_json")
_OWNERS: Final = ("region", "accountId", "userId")
_GIVEN_NAMES: Final = attrgetter(*_NAMES)
_GIVEN_TEXTS: Final = attrgetter(*_OTHER_TEXTS)
_NAME_FIELDS: Final = tuple(f"signal.{WIRE_NAMES.get(name, name)}" for name in _NAMES)
_OTHER_FIELDS: Final = tuple(f"signal.{WIRE_NAMES.get(name, name)}" for name in _OTHER_TEXTS)
_INDEXED: Final = ("detail.name", "detail.queueID")
"""What lists look up in an index, which has no room for more than a name."""

_STATUSES_BY_WORD: Final = {word: status for status, word in searchkeys.STATUS_WORDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Checks events against the rules that need no database."""

    zone: ZoneInfo
    """The zone in which times of a description without an offset are read."""

    detail_limit_bytes: int
    """The largest description, as JSON text in UTF-8."""

    def admit(self, submission: event.Submission, *, publisher: str) -> completion.Draft:
        """Check, mask and encode one event.

        Raises:
            errors.EventError: It is refused, for the reason given.
        """
        signal = submission.signal
        described: masking.Masked | None = None
        text: str | None = None
        region, account_id, user_id = submission.region, submission.account_id, submission.user_id
        if submission.detail:
            parsed = detail.parse(
                submission.detail, self.zone, limit_bytes=self.detail_limit_bytes, tree=submission.tree
            )
            described, text = masking.mask_and_write(parsed.detail)
            _check_names(_INDEXED, (described.detail.name or "", described.detail.queue_id or ""))
            signal = replace(signal, job_id=_agreed("jobID", signal.job_id, parsed.job_id))
            region = _agreed("regionID", region, parsed.region)
            account_id = _agreed("accountID", account_id, parsed.account_id)
            user_id = _agreed("userID", user_id, parsed.user_id)
            if submission.completes_all and not signal.job_status:
                signal = replace(signal, job_status=_status(described.detail))
        identity = _check_uuid(signal.uuid)
        owners = (region, account_id, user_id)
        if not _are_plain("".join((*owners, *_GIVEN_NAMES(signal)))):
            _check_names(_OWNERS, owners)
            _check_names(_NAME_FIELDS, _GIVEN_NAMES(signal))
        _check_signal(signal, completes_all=submission.completes_all)
        servers = _named_servers(signal.hccl_json)
        if (spelt := str(identity)) != signal.uuid:
            signal = replace(signal, uuid=spelt)
        encoded = submission.encoded if signal is submission.signal else None
        given = encoded.given if encoded is not None else signals.given_signal(signal)
        return completion.Draft(
            uuid=identity,
            signal=signal,
            described=described,
            detail=text,
            stored=encoded.stored if encoded is not None else None,
            servers=servers,
            region=region,
            account_id=account_id,
            user_id=user_id,
            completes_all=submission.completes_all,
            content_hash=chain.content_hash(
                signal=given, detail=text, region=region, account_id=account_id, user_id=user_id
            ),
            publisher=publisher,
            size_bytes=len(given) + len(text or ""),
        )


def _agreed(field: str, given: str, described: str) -> str:
    """The one value of a field that may stand in two places."""
    if given and described and given != described:
        raise errors.InvalidEvent(
            field=f"detail.{field}",
            value=described,
            problem=f"contradicts {errors.shown(given)}, given beside the detail",
            remedy="give it once, or the same twice",
        )
    return given or described


def _status(described: detail.Detail) -> str:
    """The jobStatus that a description's own status word stands for; "" if it has none."""
    if not described.status:
        return ""
    try:
        return _STATUSES_BY_WORD[described.status]
    except KeyError:
        raise errors.InvalidEvent(
            field="detail.status",
            value=described.status,
            problem=f"is none of {', '.join(_STATUSES_BY_WORD)}",
            remedy=f"give signal.jobStatus beside it ({', '.join(JOB_STATUSES)})",
        ) from None


def _check_uuid(text: str) -> uuid.UUID:
    """The event's uuid in any spelling that Python reads; a fresh one if none was given."""
    if not text:
        return uuid.uuid4()
    try:
        return eventlog.uuid_of(text)
    except ValueError:
        remedy = "send any valid UUID, or leave it empty and one is made"
        raise errors.InvalidEvent(
            field="signal.uuid", value=text, problem="is not a uuid", remedy=remedy
        ) from None


def _are_plain(together: str) -> bool:
    """Whether none of some short texts can be at fault, by one look at all of them, joined: nearly always."""
    return len(together) <= JOB_ID_CHARACTERS and together.isascii() and together.isprintable()


def _check_signal(signal: Signal, *, completes_all: bool) -> None:
    _check_texts(_OTHER_FIELDS, _GIVEN_TEXTS(signal))
    if not signal.job_id or not _are_plain(signal.job_id):
        _check_job_id(signal.job_id)
    deleting = signal.operator == event.Operator.DELETE
    if not deleting and signal.operator != event.Operator.ADD:
        raise errors.InvalidEvent(
            field="signal.operator", value=signal.operator, problem="is unknown", remedy="use add or delete"
        )
    optional = deleting or completes_all
    if signal.job_status not in JOB_STATUSES and (signal.job_status or not optional):
        raise errors.InvalidEvent(
            field="signal.jobStatus",
            value=signal.job_status,
            problem="is no job status",
            remedy=f"use {', '.join(JOB_STATUSES)}",
        )
    _check_number("signal.time", signal.time, LATEST_SECOND, "epoch seconds")
    _check_number("signal.deleteTime", signal.delete_time, LATEST_SECOND, "epoch seconds")
    _check_number("signal.cmIndex", signal.cm_index, LARGEST_PART, "a part's index")
    _check_number("signal.total", signal.total, LARGEST_PART, "a number of parts")


def _named_servers(hccl_json: str) -> str | None:
    """Those that a rank table names, once it is sure that it can be recorded."""
    if not hccl_json:
        return None
    named = ranktable.servers(hccl_json)
    (jsontext.check_object if named is None else jsontext.check_values)(hccl_json, field="signal.HcclJson")
    return named


def _check_job_id(job_id: str) -> None:
    if not job_id:
        problem, remedy = "is empty", "name the job that the event speaks of"
        raise errors.InvalidEvent(field="signal.jobId", problem=problem, remedy=remedy)
    if len(job_id) > JOB_ID_CHARACTERS or _CONTROL.search(job_id):
        raise errors.InvalidEvent(
            field="signal.jobId",
            value=job_id,
            problem=f"is longer than {JOB_ID_CHARACTERS} characters or holds control characters",
            remedy="use the workload's UID or another short printable id",
        )


def _check_texts(fields: Sequence[str], values: Sequence[str]) -> None:
    """Refuse what no column can hold; nearly always one look at all of them together is enough."""
    together = "".join(values)
    if together.isascii() and "\0" not in together:
        return
    for field, value in zip(fields, values, strict=True):
        if "\0" in value:
            remedy = "send it without that character"
            raise errors.InvalidEvent(field=field, value=value, problem="holds U+0000", remedy=remedy)
        if _SURROGATE.search(value):
            remedy = "send well-formed Unicode"
            raise errors.InvalidEvent(
                field=field, value=value, problem="holds a lone surrogate", remedy=remedy
            )


def _check_names(fields: Sequence[str], values: Sequence[str]) -> None:
    _check_texts(fields, values)
    if sum(map(len, values)) <= NAME_CHARACTERS:
        return
    for field, value in zip(fields, values, strict=True):
        if len(value) > NAME_CHARACTERS:
            raise errors.InvalidEvent(
                field=field,
                value=value,
                problem=f"has {len(value)} characters",
                remedy=f"use at most {NAME_CHARACTERS}",
            )


def _check_number(field: str, text: str, largest: int, meaning: str) -> None:
    if text in _SMALL_NUMBERS:
        return
    if not _DECIMAL.fullmatch(text) or int(text) > largest:
        raise errors.InvalidEvent(
            field=field,
            value=text,
            problem=f"is not {meaning} as a decimal number from 0 to {largest}",
            remedy="send digits without sign, point, spaces or leading zeros, or nothing",
        )
