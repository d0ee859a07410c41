"""Our decoder and encoder against betterproto2's, which the published client uses, on whatever bytes come.

Where ours takes bytes, betterproto2 reads the same values from them. Where ours refuses, they break the
wire format, as a walk through it that was written apart says: betterproto2 lets cut-off texts, wrong wire
types and groups pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import hypothesis
import msgspec
from hypothesis import strategies as st

from jobledger import errors
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1
from jobledger.model import event, selection
from jobledger.model.signal import Signal
from jobledger.wire import delivery, requests, signals

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
STRINGS = range(1, 16)
OWN = (100, 101)
TEXTS = [name for name in Signal.__struct_fields__ if name != "unknown"]
"""Of a signal, in the order of their numbers."""

often = hypothesis.settings(
    derandomize=True,
    max_examples=200,
    deadline=None,
    # A busy machine makes the examples too slowly for its taste.
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One of a message, as it stands in the bytes."""

    number: int
    wire_type: int
    payload: bytes

    @property
    def encoded(self) -> bytes:
        tag = varint(self.number << 3 | self.wire_type)
        return tag + (varint(len(self.payload)) if self.wire_type == BYTES else b"") + self.payload


class Malformed(Exception):
    """It is no sequence of fields without groups."""


class Walk:
    """Reads bytes by the encoding guide alone."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[Field]:
        while self._at < len(self._data):
            tag = self._varint(5, (1 << 32) - 1)
            if not tag >> 3:
                raise Malformed
            yield Field(tag >> 3, tag & 7, self._payload(tag & 7))

    def _payload(self, wire_type: int) -> bytes:
        if wire_type == VARINT:
            start = self._at
            self._varint(10, (1 << 70) - 1)  # what exceeds 64 bits is dropped
            return self._data[start : self._at]
        if wire_type == BYTES:
            return self._take(self._varint(5, (1 << 31) - 1))
        try:
            return self._take({FIXED64: 8, FIXED32: 4}[wire_type])
        except KeyError:
            raise Malformed from None

    def _take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise Malformed
        return self._data[self._at - count : self._at]

    def _varint(self, longest: int, most: int) -> int:
        value = 0
        for nth in range(longest):
            [byte] = self._take(1)
            value |= (byte & 0x7F) << 7 * nth
            if byte < 0x80:
                if value > most:
                    raise Malformed
                return value
        raise Malformed


def walked(data: bytes) -> list[Field]:
    return list(Walk(data).fields())


def is_a_signal(data: bytes) -> bool:
    try:
        fields = walked(data)
        for each in fields:
            if each.number in STRINGS:
                if each.wire_type != BYTES:
                    return False
                each.payload.decode()
            elif each.number in OWN and each.wire_type != VARINT:
                return False
    except (Malformed, UnicodeDecodeError):
        return False
    return True


payloads = {
    VARINT: st.integers(0, (1 << 64) - 1).map(varint),
    FIXED64: st.binary(min_size=8, max_size=8),
    FIXED32: st.binary(min_size=4, max_size=4),
    BYTES: st.text(max_size=40).map(str.encode) | st.binary(max_size=200),
}


def fields(numbers: st.SearchStrategy[int], *wire_types: int) -> st.SearchStrategy[Field]:
    return st.sampled_from(wire_types).flatmap(
        lambda wire_type: st.builds(Field, numbers, st.just(wire_type), payloads[wire_type])
    )


def texts(numbers: Sequence[int]) -> st.SearchStrategy[Field]:
    encoded = st.text(max_size=40).map(str.encode)
    return st.builds(Field, st.sampled_from(numbers), st.just(BYTES), encoded)


unknown = fields(st.integers(16, 99) | st.integers(102, (1 << 29) - 1), *payloads)
"""Fields of a newer publisher."""

any_field = fields(st.sampled_from([*STRINGS, *OWN]) | st.integers(1, (1 << 29) - 1), *payloads)
honest = st.lists(texts(STRINGS) | unknown | fields(st.sampled_from(OWN), VARINT), max_size=12)


def joined(given: Sequence[Field]) -> bytes:
    return b"".join(each.encoded for each in given)


@st.composite
def spoiled(draw: st.DrawFn, given: st.SearchStrategy[list[Field]]) -> bytes:
    """What was a message once: cut off, with bytes changed, or with others in between."""
    data = bytearray(joined(draw(given)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("cut", "change", "insert"))):
            case "cut":
                del data[at:]
            case "change":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=6))
    return bytes(data)


raw = st.binary(max_size=60) | spoiled(honest) | spoiled(st.lists(any_field, max_size=8))


def agree_on(data: bytes, given: Signal) -> None:
    theirs: Any = pb_job.JobSummarySignal.parse(data)
    assert [getattr(given, name) for name in TEXTS] == [getattr(theirs, named(name)) for name in TEXTS]
    assert given.unknown == theirs._unknown_fields


def named(name: str) -> str:
    return {"framework": "frame_work"}.get(name, name)


@often
@hypothesis.given(raw)
def test_bytes_are_taken_if_they_are_a_signal_and_then_mean_the_same_to_both(data: bytes) -> None:
    try:
        given = signals.decode(data)
    except errors.InvalidEvent:
        assert not is_a_signal(data)
    else:
        assert is_a_signal(data)
        agree_on(data, given)


@often
@hypothesis.given(honest)
def test_fields_in_any_order_repeated_and_of_newer_publishers_mean_the_same_to_both(
    given: list[Field],
) -> None:
    agree_on(joined(given), signals.decode(joined(given)))


@often
@hypothesis.given(raw)
def test_event_is_refused_alone_and_by_the_same_rule(data: bytes) -> None:
    neighbour = Field(1, BYTES, Field(2, BYTES, b"a").encoded).encoded
    three = (neighbour, Field(1, BYTES, data).encoded, neighbour)
    request = joined([Field(1, BYTES, each) for each in three])

    before, found, after = requests.decode_append(request)

    assert isinstance(before, event.Submission)
    assert before == after
    assert isinstance(found, event.Submission) is is_a_signal(data)
    if isinstance(found, event.Submission):
        assert found.signal == signals.decode(data)


text = st.text(max_size=30)
many_texts = st.fixed_dictionaries(dict.fromkeys(TEXTS, text))


def ours(given: dict[str, str], *, unknown: bytes = b"") -> Signal:
    texts_of_ours: Any = given
    return Signal(**texts_of_ours, unknown=unknown)


def as_theirs(given: dict[str, str]) -> pb_job.JobSummarySignal:
    fields_of_theirs: Any = {named(name): value for name, value in given.items()}
    return pb_job.JobSummarySignal(**fields_of_theirs)


@often
@hypothesis.given(many_texts, st.lists(unknown, max_size=3))
def test_encoded_signals_are_the_bytes_of_betterproto2_with_unknown_fields_last(
    given: dict[str, str], newer: list[Field]
) -> None:
    signal = ours(given, unknown=joined(newer))

    assert signals.stored_signal(signal) == bytes(as_theirs({**given, "hccl_json": ""})) + joined(newer)
    assert signals.given_signal(signal) == bytes(as_theirs({**given, "uuid": ""})) + joined(newer)


@often
@hypothesis.given(many_texts, text, text)
def test_events_read_at_once_are_those_read_part_by_part(
    given: dict[str, str], detail: str, region: str
) -> None:
    said = v1.Event(signal=as_theirs(given), detail=detail, region=region)
    request = bytes(v1.AppendRequest(events=[said]))
    of_a_newer_release = request + Field(99, BYTES, b"").encoded

    [at_once] = requests.decode_append(request)
    [in_parts] = requests.decode_append(of_a_newer_release)

    assert isinstance(at_once, event.Submission)
    encodings = event.Encoded(signals.given_signal(ours(given)), signals.stored_signal(ours(given)))
    assert at_once.encoded == encodings
    assert in_parts == msgspec.structs.replace(at_once, encoded=None)


moments = st.integers(0, 4_000_000_000_000)


@often
@hypothesis.given(many_texts, st.integers(1, (1 << 63) - 1), moments)
def test_delivered_messages_mean_to_betterproto2_what_was_stored(
    given: dict[str, str], position: int, milliseconds: int
) -> None:
    message = delivery.signal(
        stored=signals.stored_signal(ours(given)),
        hccl=given["hccl_json"],
        position=event.Position(position),
        recorded_at=datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds),
    )
    expected = as_theirs(given)
    expected.position, expected.recorded_at_unix_ms = position, milliseconds

    assert pb_job.JobSummarySignal.parse(message) == expected
    assert v1.SubscribeResponse.parse(delivery.ledger_event(message)).event == expected
    listed = pb_job.JobSummarySignalList.parse(
        delivery.list_of([message, message], report_time_ms=milliseconds, jobs=2)
    )
    assert listed.job_summary_signals == [expected, expected]


@often
@hypothesis.given(st.lists(st.tuples(st.uuids(), st.integers(1, (1 << 63) - 1), st.booleans()), max_size=5))
def test_receipts_mean_the_same_to_both(given: list[tuple[UUID, int, bool]]) -> None:
    receipts = [
        event.Receipt(uuid=uuid, position=event.Position(position), duplicate=duplicate)
        for uuid, position, duplicate in given
    ]
    theirs = v1.AppendResponse.parse(requests.encode_receipts(receipts))

    assert [(UUID(each.uuid), each.position, each.duplicate) for each in theirs.receipts] == given


INT32 = (1 << 32) - 1
"""What protobuf keeps of an enum; betterproto2 keeps all of the varint."""

STARTS = {0: None, **dict(enumerate(selection.StartFrom, 1))}


@often
@hypothesis.given(
    st.lists(
        texts((1, 3, 100, 103))
        | st.integers(0, 3).map(lambda number: Field(101, VARINT, varint(number)))
        | fields(st.sampled_from((1, 3, 100, 101, 102, 103)), *payloads)
        | st.lists(texts((1, 2, 3, 4)), max_size=4).map(lambda inner: Field(102, BYTES, joined(inner)))
        | unknown,
        max_size=6,
    )
)
def test_subscription_means_the_same_to_both_or_is_refused(given: list[Field]) -> None:
    data = joined(given)
    try:
        found = requests.decode_client_info(data)
    except errors.InvalidRequest:
        assert not is_client_info(given)
        return
    assert is_client_info(given)
    theirs = pb_job.ClientInfo.parse(data)
    assert (found.role, found.client_id, found.after, found.epoch) == (
        theirs.role,
        theirs.client_id,
        theirs.last_seen_uuid,
        theirs.ledger_epoch,
    )
    assert found.start_from == STARTS[int(theirs.start_from) & INT32]
    # Protobuf joins a message that is given twice; betterproto2 takes the last.
    if sum(each.number == 102 for each in given) == 1:
        wanted = theirs.filter
        assert wanted is not None
        assert found.filter.namespaces == set(wanted.namespace)
        assert found.filter.job_ids == set(wanted.job_id)
        assert found.filter.frameworks == set(wanted.frame_work)
        assert found.filter.operators == set(wanted.operator)


def is_client_info(given: Sequence[Field]) -> bool:
    starts = [0, *(number(each.payload) for each in given if each.number == 101)]
    return all(map(fits_client_info, given)) and starts[-1] & INT32 in STARTS


def number(encoded: bytes) -> int:
    return sum((byte & 0x7F) << 7 * nth for nth, byte in enumerate(encoded))


def fits_client_info(each: Field) -> bool:
    try:
        match each.number:
            case 1 | 3 | 100 | 103:
                each.payload.decode()
                return each.wire_type == BYTES
            case 101:
                return each.wire_type == VARINT
            case 102:
                return each.wire_type == BYTES and all(map(fits_filter, walked(each.payload)))
            case _:
                return True
    except (Malformed, UnicodeDecodeError):
        return False


def fits_filter(each: Field) -> bool:
    if each.number <= 4:
        each.payload.decode()
        return each.wire_type == BYTES
    return True
