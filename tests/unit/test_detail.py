from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobledger import errors
from jobledger.model import detail

SHANGHAI = ZoneInfo("Asia/Shanghai")
EXAMPLE = Path(__file__).parent.parent / "data" / "cwai-job-running.json"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
known_keys = st.sampled_from(
    [
        "name",
        "envs",
        "pods",
        "output",
        "resources",
        "replicas",
        "createTime",
        "command",
        "yaml",
        "value",
        "status",
    ]
)
nearly_described = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known_keys, inner, max_size=4),
    max_leaves=12,
)


def parsed(text: str, zone: str = "Asia/Shanghai") -> detail.Detail:
    return detail.parse(text, ZoneInfo(zone)).detail


def stored(text: str) -> str:
    return detail.encode(parsed(text))


def refusal(text: str) -> errors.InvalidEvent:
    with pytest.raises(errors.InvalidEvent) as caught:
        detail.parse(text, SHANGHAI)
    return caught.value


def test_identity_is_lifted_out() -> None:
    given = detail.parse('{"jobID":"j","regionID":"r","userID":"u","accountID":"a","name":"n"}', SHANGHAI)

    assert (given.job_id, given.region, given.user_id, given.account_id) == ("j", "r", "u", "a")
    assert detail.encode(given.detail) == '{"name":"n"}'


def test_the_documents_example_is_kept_but_for_identity_and_times() -> None:
    example = json.loads(EXAMPLE.read_text())["returnObj"]

    kept = json.loads(stored(json.dumps(example)))

    for key in ("jobID", "regionID", "userID", "accountID", "finishTime"):
        del example[key]
    del example["pods"][0]["finishTime"]
    example["createTime"] = "2023-10-13T03:22:01Z"
    example["pods"][0]["startTime"] = "2023-10-13T03:22:13Z"
    assert kept == example


def test_stored_text_has_sorted_keys_and_characters_as_themselves() -> None:
    assert stored('{"queueName":"\\u8bad\\ud83d\\ude80","name":"a"}') == '{"name":"a","queueName":"训🚀"}'


def test_null_is_not_given() -> None:
    given = (
        '{"name":null,"createTime":null,"envs":null,"resources":{"cpuLimit":null},'
        '"output":{"zosBucket":null,"mountDir":"/m"},"pods":[{"yaml":null,"startTime":null}]}'
    )

    assert stored(given) == '{"output":{"mountDir":"/m"},"pods":[{}],"resources":{}}'


def test_a_pods_yaml_keeps_nulls_and_every_digit() -> None:
    text = '{"pods":[{"yaml":{"a":null,"b":1.10,"c":12345678901234567890123,"d":0.1234567890123456789}}]}'

    assert stored(text) == text


def test_integers_of_resources_may_come_as_text() -> None:
    given = '{"resources":{"cpuLimit":"12","gpuLimit":8,"memLimit":"","hcaShared":"-0"}}'

    assert stored(given) == '{"resources":{"cpuLimit":12,"gpuLimit":8,"hcaShared":0}}'


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2023-10-13 11:22:01", "2023-10-13T03:22:01Z"),
        ("2023-10-13T11:22:01+08:00", "2023-10-13T03:22:01Z"),
        ("2023-10-13t03:22:01z", "2023-10-13T03:22:01Z"),
        ("2023-10-13T03:22:01.1234567Z", "2023-10-13T03:22:01.123456Z"),
    ],
)
def test_times_are_kept_in_utc(given: str, kept: str) -> None:
    assert stored(json.dumps({"createTime": given})) == json.dumps(
        {"createTime": kept}, separators=(",", ":")
    )


def test_an_empty_time_or_status_is_not_given() -> None:
    assert (
        stored('{"createTime":"","finishTime":"","status":"","pods":[{"startTime":""}]}') == '{"pods":[{}]}'
    )


@pytest.mark.parametrize(
    ("local", "utc"),
    [
        ("2024-11-03 01:30:00", "2024-11-03T05:30:00Z"),  # twice: the earlier, still summer time
        (
            "2024-03-10 02:30:00",
            "2024-03-10T07:30:00Z",
        ),  # never: read with the offset before, 03:30 summer time
    ],
)
def test_local_times_at_a_change_of_the_clock_are_decided(local: str, utc: str) -> None:
    given = parsed(json.dumps({"createTime": local}), "America/New_York")

    assert detail.encode(given) == json.dumps({"createTime": utc}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "detail"),
        ("[]", "detail"),
        ('"text"', "detail"),
        ('{"name":', "detail"),
        ('{"name":"a\x01"}', "detail"),
        ('{"name":"a","name":"b"}', "detail"),
        ('{"envs":[{"name":"a","name":"b"}]}', "detail.envs[0]"),
        ('{"datasets":[{"name":1}]}', "detail.datasets[0].name"),
        ('{"command":["a",null]}', "detail.command[1]"),
        ('{"pods":{}}', "detail.pods"),
        ('{"pods":[{"yaml":[]}]}', "detail.pods[0].yaml"),
        ('{"pods":[{"restartCount":2147483648}]}', "detail.pods[0].restartCount"),
        ('{"replicas":-2147483649}', "detail.replicas"),
        ('{"replicas":1.5}', "detail.replicas"),
        ('{"replicas":"1"}', "detail.replicas"),
        ('{"isDeepspeed":1}', "detail.isDeepspeed"),
        ('{"resources":{"cpuLimit":"1.5"}}', "detail.resources.cpuLimit"),
        ('{"resources":{"memLimit":99999999999999999999}}', "detail.resources.memLimit"),
        ('{"regionID":5}', "detail.regionID"),
        ('{"createTime":5}', "detail.createTime"),
        ('{"createTime":"2023-02-30 00:00:00"}', "detail.createTime"),
        ('{"createTime":"2023-10-13T11:22:01"}', "detail.createTime"),
        ('{"createTime":"0001-01-01 00:00:00"}', "detail.createTime"),
        ('{"createTime":"0001-06-01T00:00:00Z"}', "detail.createTime"),
        ('{"createTime":"9999-12-31T23:59:59-12:00"}', "detail.createTime"),
        ('{"pods":[{"finishTime":"soon"}]}', "detail.pods[0].finishTime"),
        ('{"name":"a\\u0000b"}', "detail.name"),
        ('{"name":"a\0b"}', "detail"),
        ('{"name":"\\ud800"}', "detail.name"),
        ('{"name":"\udc00"}', "detail.name"),
        ('{"pods":[{"yaml":{"a":{"b\\u0000":1}}}]}', "detail.pods[0].yaml.a, in a key"),
        ('{"pods":[{"yaml":{"a":1e400000}}]}', "detail.pods[0].yaml.a"),
        ('{"pods":[{"yaml":{"a":1e-400000}}]}', "detail.pods[0].yaml.a"),
        ('{"pods":[{"yaml":{"a":1e99999999999999999999}}]}', "detail.pods[0].yaml.a"),
        ('{"pods":[{"yaml":{"a":[1,NaN]}}]}', "detail.pods[0].yaml.a[1]"),
        ('{"pods":[{"yaml":{"a":' + "9" * 400 + "}}]}", "detail.pods[0].yaml.a"),
        ('{"pods":[{"yaml":{"a":' + "[" * 65 + "]" * 65 + "}}]}", "detail"),
        ('{"a":' * 100_000, "detail"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_its_place(text: str, field: str) -> None:
    assert refusal(text).field == field


def test_an_escaped_backslash_before_u0000_is_no_u0000() -> None:
    assert stored('{"name":"a\\\\u0000"}') == '{"name":"a\\\\u0000"}'


def test_an_unknown_key_is_named_with_the_nearest_and_all_allowed() -> None:
    refused = refusal('{"output":{"acessKeyId":"x"}}')

    assert refused.field == "detail.output.acessKeyId"
    assert "did you mean accessKeyID?" in refused.reason
    assert "storageType, zosBucket, zosEndpoint" in refused.reason


def test_a_wrong_value_is_shown_with_a_remedy() -> None:
    assert str(refusal('{"replicas":3000000000}')) == (
        "detail.replicas: '3000000000' is out of range; give an integer <= 2147483647"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"output":{"accessKeySecret":7777}}',
        '{"output":{"accessKeySecret":{"a":"7777"}}}',
        '{"logOutput":{"accessKeyID":7777}}',
        '{"envs":[{"name":"A_TOKEN","value":7777}]}',
        '{"envs":{"A_TOKEN":"7777"}}',
        '{"command":["--token",7777]}',
        '{"command":"--token=7777"}',
        '{"envs":[{"name":"A_TOKEN","value":"7777]}',
        '{"envs":[{"name":"A_TOKEN","value":"7777\\u0000"}]}',
        '{"pods":[{"yaml":{"token":"7777","token":"7777"}}]}',
        '{"pods":[{"yaml":"7777"}]}',
        '{"pods":[{"yaml":{"pin":7777e999}}]}',
    ],
)
def test_a_refusal_does_not_show_what_may_be_secret(text: str) -> None:
    refused = refusal(text)

    # Neither in its text nor in what a traceback could print beneath it.
    assert "7777" not in f"{refused} {refused.__cause__!r} {refused.__context__!r}"
    assert refused.__context__ is None


def test_a_description_above_the_limit_is_too_large() -> None:
    text = '{"name":"训练"}'
    size_bytes = len(text.encode())

    detail.parse(text, SHANGHAI, limit_bytes=size_bytes)
    with pytest.raises(errors.EventTooLarge):
        detail.parse(text, SHANGHAI, limit_bytes=size_bytes - 1)


@given(json_values.map(json.dumps) | nearly_described.map(json.dumps) | st.text())
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    try:
        kept = stored(text)
    except errors.InvalidEvent as refused:
        assert refused.field.startswith("detail")  # noqa: PT017 - most texts are refused, some are not
        str(refused).encode()
    else:
        assert detail.encode(detail.decode(kept)) == kept


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_a_pods_yaml_survives_as_equal_json(yaml: dict[str, object]) -> None:
    text = json.dumps({"pods": [{"yaml": yaml}]})
    try:
        kept = stored(text)
    except errors.InvalidEvent:
        return

    assert json.loads(kept) == json.loads(text)


KEPT = (
    '{"createTime":"2023-10-13T03:22:01Z","finishTime":"2023-10-14T00:00:00Z","name":"n","newerKey":[1.50],'
    '"pods":[{"name":"p"}],"replicas":2,"status":"Scheduling"}'
)


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        (set[str](), []),
        ({"status"}, ['"finishTime":"2023-10-14T00:00:00Z",', ',"status":"Scheduling"']),
        ({"ranks"}, ['"pods":[{"name":"p"}],"replicas":2,']),
        (
            {"status", "ranks"},
            [
                '"finishTime":"2023-10-14T00:00:00Z",',
                ',"pods":[{"name":"p"}],"replicas":2,"status":"Scheduling"',
            ],
        ),
    ],
)
def test_what_no_longer_holds_is_taken_out_and_all_else_stays_to_the_byte(
    changed: set[str], gone: list[str]
) -> None:
    left = detail.without_derived(KEPT, status_changed="status" in changed, ranks_changed="ranks" in changed)

    expected = KEPT
    for text in gone:
        expected = expected.replace(text, "")
    assert left == expected


def test_times_are_read_from_stored_text() -> None:
    assert detail.create_time(KEPT) == datetime(2023, 10, 13, 3, 22, 1, tzinfo=UTC)
    assert detail.finish_time(KEPT) == datetime(2023, 10, 14, tzinfo=UTC)
    assert detail.create_time("{}") is None
    assert detail.finish_time("{}") is None
