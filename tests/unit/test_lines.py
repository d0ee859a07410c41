from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from jobledger import errors
from jobledger.cli import lines
from jobledger.client import messages
from jobledger.model import event, signal


def test_a_line_gives_every_field_of_an_event() -> None:
    given = {
        "signal": {
            "uuid": "u", "jobId": "j", "jobName": "n", "namespace": "ns", "frameWork": "pytorch",
            "jobStatus": "running", "time": "1", "cmIndex": "0", "total": "2", "HcclJson": "{}",
            "deleteTime": "3", "sharedTorIp": "[]", "masterAddr": "m", "operator": "add", "sid": "s",
        },
        "detail": {"name": "训练"}, "region": "r", "accountId": "a", "userId": "p",
    }  # fmt: skip

    assert lines.read(json.dumps(given, ensure_ascii=False).encode()) == event.Submission(
        signal=signal.Signal(
            uuid="u", job_id="j", job_name="n", namespace="ns", framework="pytorch",
            job_status="running", time="1", cm_index="0", total="2", hccl_json="{}",
            delete_time="3", shared_tor_ip="[]", master_addr="m", operator="add", sid="s",
        ),
        detail='{"name": "训练"}', region="r", account_id="a", user_id="p",
    )  # fmt: skip


def test_numbers_are_taken_where_the_wire_wants_decimal_text() -> None:
    read = lines.read(b'{"signal":{"jobId":"j","time":1700000000,"cmIndex":0,"total":1,"deleteTime":2}}')

    assert (read.signal.time, read.signal.cm_index, read.signal.total, read.signal.delete_time) == (
        "1700000000",
        "0",
        "1",
        "2",
    )


def test_a_rank_table_given_as_json_is_kept_to_the_byte() -> None:
    read = lines.read(b'{"signal":{"jobId":"j","HcclJson": {"rate" : 1.50, "n":"\\u8bad"} }}')

    assert read.signal.hccl_json == '{"rate" : 1.50, "n":"\\u8bad"}'


def test_what_is_left_out_is_not_given() -> None:
    assert lines.read(b'{"signal":{}}') == event.Submission(signal=signal.Signal())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"signal":{"jobid":"j"}}', "signal.jobid: is unknown"),
        (b'{"signal":{},"Region":""}', "Region: is unknown"),
        (b"{}", "signal: is missing"),
        (b'{"signal":{"jobId":5}}', "signal.jobId: '5' is an integer; give a string"),
        (b'{"signal":{"jobId":["a"]}}', "signal.jobId: is a list; give a string"),
        (b'{"signal":"running"}', "signal: 'running' is a string; give an object"),
        (b'{"signal":{},"region":null}', "region: is null; give a string"),
        (
            b'{"signal":{"time":1.5}}',
            "signal.time: '1.5' is a number with a fraction; give an integer or a string",
        ),
        (b'{"signal":{"time":true}}', "signal.time: 'true' is true or false; give an integer or a string"),
        (b"[]", "JSON: is a list; give an object"),
        (b'{"signal":', "JSON: Input data was truncated"),
        (b'{"signal":{"jobId":"\xff"}}', "JSON: Invalid UTF-8"),
        (b'{"signal":{"jobId":"\\ud800"}}', "JSON: a string holds a lone surrogate"),
        (b'{"signal":{"HcclJson":{"a":"\xff"}}}', "signal.HcclJson: is not UTF-8 text"),
        (b'{"signal":{},"detail":{"a":"\xff"}}', "detail: is not UTF-8 text"),
    ],
)
def test_a_line_that_is_no_event_is_refused_by_the_key_at_fault(line: bytes, said: str) -> None:
    with pytest.raises(errors.InvalidEvent) as refused:
        lines.read(line)

    assert str(refused.value).startswith(said)


def test_a_delivered_event_is_written_with_its_cursor_and_a_signal_that_can_be_published() -> None:
    delivered = messages.Delivered(
        position=event.Position(7),
        recorded_at=datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC),
        signal=signal.Signal(uuid="u", job_id="训练", hccl_json='{"a":1}', framework="pytorch"),
    )

    line = json.loads(lines.write(delivered))

    assert (line["type"], line["position"], line["uuid"]) == ("event", 7, "u")
    assert line["recordedAt"] == "2026-01-02T03:04:05.006Z"
    assert lines.read(json.dumps({"signal": line["signal"]}).encode()).signal == delivered.signal


def test_every_mark_of_a_stream_is_written_by_its_name() -> None:
    position = event.Position(3)
    marks = (
        messages.CaughtUp(position=position),
        messages.Skipped(position=position, uuid="u"),
        messages.Heartbeat(position=position, uuid="u", head=position),
    )

    assert [json.loads(lines.write(mark))["type"] for mark in marks] == ["caughtUp", "skipped", "heartbeat"]
