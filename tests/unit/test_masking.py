from __future__ import annotations

import json
from time import process_time
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobledger.model import cwai, detail, masking, secrecy

HEAD, TAIL = "c4n4ry", "yr4n4c"
"""Both ends of every planted secret: a mask that stops early, or starts late, shows one of them."""

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
secrets = texts.map(lambda middle: f"{HEAD}{middle}{TAIL}")
words = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\"\\;&|()$@{}[]"), max_size=20
)
plain_secrets = words.map(lambda middle: f"{HEAD}{middle}{TAIL}").filter(lambda secret: "://" not in secret)


def parsed(members: object) -> cwai.Detail:
    return detail.parse(json.dumps(members), ZoneInfo("Asia/Shanghai")).detail


def masked(members: object) -> dict[str, object]:
    return json.loads(detail.encode(masking.mask(parsed(members)).detail))


def in_yaml(yaml: object) -> object:
    (pod,) = msgspec.convert(masked({"pods": [{"yaml": yaml}]})["pods"], list[dict[str, object]])
    return pod["yaml"]


@pytest.mark.parametrize("place", ["output", "logOutput"])
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"accessKeySecret": "abc"}, {"accessKeySecret": "******"}),
        ({"accessKeySecret": ""}, {}),
        ({"accessKeyID": "AKID12345XYZ"}, {"accessKeyID": "AKID****XYZ"}),
        ({"accessKeyID": "AKID1234XYZ"}, {"accessKeyID": "****"}),
        ({"accessKeyID": "a"}, {"accessKeyID": "****"}),
        ({"accessKeyID": ""}, {"accessKeyID": ""}),
        ({"accessKeyID": "AKID****XYZ"}, {"accessKeyID": "AKID****XYZ"}),
        ({"zosEndpoint": "http://u:p@h"}, {"zosEndpoint": "http://******@h"}),
        ({"zosEndpoint": "u:p@h:80"}, {"zosEndpoint": "******@h:80"}),
        ({"zosEndpoint": "http://10.0.0.1:80"}, {"zosEndpoint": "http://10.0.0.1:80"}),
    ],
)
def test_access_to_the_store_is_hidden(place: str, given: dict[str, str], shown: dict[str, str]) -> None:
    assert masked({place: given}) == {place: shown}


def test_a_variables_value_is_hidden_by_its_name_or_by_what_it_says() -> None:
    envs = [
        {"name": "HF_TOKEN", "value": "abc"},
        {"name": "A_KEY", "value": ""},
        {"name": "A_KEY"},
        {"name": "URL", "value": "http://u:p@h"},
        {"name": "ARGS", "value": "-Dtoken=abc -x"},
        {"name": "CONFIG", "value": '{"db": {"password": "abc", "port": 1.50}}'},
        {"name": "A_TOKEN=abc", "value": "x"},
        {"name": "name1", "value": "value1"},
    ]

    assert masked({"envs": envs})["envs"] == [
        {"name": "HF_TOKEN", "value": "******"},
        {"name": "A_KEY", "value": ""},
        {"name": "A_KEY"},
        {"name": "URL", "value": "http://******@h"},
        {"name": "ARGS", "value": "-Dtoken=****** -x"},
        {"name": "CONFIG", "value": '{"db":{"password":"******","port":1.50}}'},
        {"name": "A_TOKEN=******", "value": "******"},
        {"name": "name1", "value": "value1"},
    ]


def test_the_argument_after_a_secret_flag_is_hidden() -> None:
    command = [
        "train",
        "--hf-token",
        "-abc d",
        "--use-ssh-key",
        "--api-key",
        "abc",
        "--port",
        "80",
        "-c",
        "A_KEY=a b",
    ]

    assert masked({"command": command})["command"] == [
        "train", "--hf-token", "******", "--use-ssh-key", "--api-key", "******", "--port", "80",
        "-c", "A_KEY=****** b",
    ]  # fmt: skip


def test_a_pods_yaml_is_masked_at_every_depth() -> None:
    yaml = {
        "metadata": {
            "annotations": {"last": '{"env":[{"name":"A_TOKEN","value":"abc"}]}', "url": "http://u:p@h"}
        },
        "spec": {
            "containers": [
                {
                    "command": ["sh", "-c", "export A_KEY=abc; x"],
                    "args": ["--hf-token", "abc", "--rate", "1"],
                    "env": [{"name": "A_TOKEN", "value": "abc"}, {"name": "b", "value": "c"}],
                    "resources": {"limits": {"cpu": 1.50}},
                }
            ],
            "secrets": {"a": {"b": ["abc", 7777, None, True, ""]}},
            "nothing": None,
        },
    }

    assert in_yaml(yaml) == {
        "metadata": {
            "annotations": {"last": '{"env":[{"name":"A_TOKEN","value":"******"}]}', "url": "http://******@h"}
        },
        "spec": {
            "containers": [
                {
                    "command": ["sh", "-c", "export A_KEY=******; x"],
                    "args": ["--hf-token", "******", "--rate", "1"],
                    "env": [{"name": "A_TOKEN", "value": "******"}, {"name": "b", "value": "c"}],
                    "resources": {"limits": {"cpu": 1.50}},
                }
            ],
            "secrets": {"a": {"b": ["******", "******", None, True, ""]}},
            "nothing": None,
        },
    }


def test_a_yaml_without_secrets_stays_to_the_digit() -> None:
    described = parsed({"name": "n"})
    pods = (cwai.Pod(yaml=msgspec.Raw(b'{"a":1.10,"b":[null,1E+2]}')),)

    assert masking.mask(msgspec.structs.replace(described, pods=pods)).detail.pods == pods


@pytest.mark.parametrize(
    "text", ['{"token":"abc","x":NaN}', "{'token': 'abc'}", "[" * 70 + '{"token":"abc"}' + "]" * 70]
)
def test_text_that_is_nearly_json_is_hidden_as_a_whole(text: str) -> None:
    assert masked({"envs": [{"name": "a", "value": text}]}) == {"envs": [{"name": "a", "value": "******"}]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"\u0074oken":"abc"}', '{"token":"******"}'),
        (r'{"a":["--pass\u0077ord","abc"]}', '{"a":["--password","******"]}'),
        (r'{"a":"http:\/\/u:p@h"}', '{"a":"http://******@h"}'),
        (r'{"a":"http:/\/u:p@h"}', '{"a":"http://******@h"}'),
        (r'{"a":"\u003cb\u003e \/"}', r'{"a":"\u003cb\u003e \/"}'),
    ],
)
def test_json_within_text_is_masked_by_what_it_says_not_by_how_it_is_escaped(text: str, shown: str) -> None:
    assert masked({"envs": [{"name": "a", "value": text}]}) == {"envs": [{"name": "a", "value": shown}]}


def test_urls_are_cleaned_in_every_other_text() -> None:
    given = {
        "comment": "see http://u:p@h",
        "imageName": "u:p@reg:5000/img",
        "datasets": [{"mountPath": "x://u:p@h"}],
        "output": {"hpfsSharePath": "x://u:p@h"},
        "pods": [{"status": "pulling http://u:p@h"}],
    }

    assert masked(given) == {
        "comment": "see http://******@h",
        "imageName": "******@reg:5000/img",
        "datasets": [{"mountPath": "x://******@h"}],
        "output": {"hpfsSharePath": "x://******@h"},
        "pods": [{"status": "pulling http://******@h"}],
    }


def test_a_secret_that_looks_like_a_flag_is_hidden() -> None:
    given = {"command": ["--hf-token", "-abcKEY0def", "--password", "-myToken", "--port", "80"]}

    assert masked(given) == {"command": ["--hf-token", "******", "--password", "******", "--port", "80"]}


def everywhere(any_text: str, word: str) -> dict[str, object]:
    """A description with a secret in every place that may hold one."""
    output = {
        "accessKeySecret": any_text,
        "accessKeyID": any_text,
        "zosEndpoint": f"http://u:{word}@h/?token={word}",
    }
    arguments = [
        "x", "--hf-token", f"-{any_text}", "--api-key", any_text, f"--password={any_text}", f"http://u:{word}@h",
        f"export A_TOKEN={word}; sh -c 'A_KEY={word}' --my-secret {word}",
        f"A_PWD='{word} {word}' B_PWD=\"{word} {word}\" http://a:{word}@h",
    ]  # fmt: skip
    envs = [
        {"name": "MY_PASSWORD", "value": any_text},
        {"name": "x", "value": f"y --token={word} http://u:{word}@h"},
    ]
    return {
        "output": output,
        "logOutput": output,
        "envs": [*envs, {"name": "json", "value": json.dumps({"env": envs, "apiKey": [any_text]})}],
        "command": arguments,
        "imageName": f"u:{word}@registry/img",
        "comment": f"from http://u:{word}@h",
        "pods": [
            {
                "yaml": {
                    "env": envs,
                    "args": arguments,
                    "deep": [{"dbPasswd": {"x": [any_text]}, "credentials": any_text}],
                }
            }
        ],
    }


@given(secrets, plain_secrets)
def test_a_secret_shows_from_no_place(any_text: str, word: str) -> None:
    described = parsed(everywhere(any_text, word))

    text = detail.encode(masking.mask(described).detail)

    # accessKeyID alone shows its first four and last three characters, which are no end of a canary.
    assert HEAD not in text
    assert TAIL not in text


@given(secrets, secrets, plain_secrets)
def test_changed_secrets_change_nothing_that_is_stored(one: str, other: str, word: str) -> None:
    assert (
        masking.mask(parsed(everywhere(one, word))).detail
        == masking.mask(parsed(everywhere(other, word))).detail
    )


@given(
    st.lists(
        st.sampled_from(
            ["--x-token", "--x-token=a b", "A_KEY=", "abc", "******", "--port", '{"key":1}', "[key"]
        )
    )
)
def test_masking_a_description_again_changes_nothing(texts: list[str]) -> None:
    envs = [{"name": text, "value": text} for text in texts]
    once = masking.mask(
        parsed({"command": texts, "envs": envs, "pods": [{"yaml": {"a": texts, "key": texts}}]})
    ).detail

    assert masking.mask(once).detail == once


def shown_back(present: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """What becomes of a description that somebody was shown, changed and sent back."""
    state = masking.mask(parsed(present)).detail
    sent = json.loads(detail.encode(state)) | changes
    filled = masking.fill_kept(masking.mask(parsed(sent)), state)
    return json.loads(detail.encode(filled))


pieces = st.lists(
    st.sampled_from(
        (
            "a ",
            "=",
            "--",
            ":",
            "//",
            "://",
            "@",
            "\\",
            '"',
            "'",
            "\n",
            "Key",
            "{",
            "}",
            "\\u006bey",
            '{"to',
            '":"x"}',
            "Key",
            "k",
            "ey",
            "to",
            "ken",
            "token",
            "S",
            "K",
            "ak",
            "pass",
            "pwd",
        )
    ),
    max_size=3,
).map("".join)


@given(pieces, pieces, pieces)
def test_what_one_look_lets_through_holds_nothing_for_the_closer_ones(
    one: str, other: str, third: str
) -> None:
    described = parsed(
        {
            "name": one,
            "imageName": other,
            "command": [third, one],
            "envs": [{"name": other, "value": third}],
            "datasets": [{"name": one, "mountPath": third}],
            "output": {"zosEndpoint": other, "zosBucket": one},
            "pods": [{"name": third, "yaml": {other: third, "x": [{"name": one, "value": other}]}}],
        }
    )
    masked = masking.mask(described)
    assert masking.mask_and_write(described) == (masked, detail.encode(masked.detail))


def test_what_was_shown_masked_and_comes_back_keeps_what_the_job_shows() -> None:
    present: dict[str, object] = {
        "output": {"accessKeyID": "AKID12345XYZ", "accessKeySecret": "abc"},
        "envs": [{"name": "A_TOKEN", "value": "abc"}],
    }

    assert shown_back(present, {"comment": "new"}) == {
        "output": {"accessKeyID": "AKID****XYZ", "accessKeySecret": "******"},
        "envs": [{"name": "A_TOKEN", "value": "******"}],
        "comment": "new",
    }


def test_a_masked_key_id_of_another_key_keeps_the_jobs_own() -> None:
    present: dict[str, object] = {"output": {"accessKeyID": "AKID12345XYZ"}}

    assert shown_back(present, {"output": {"accessKeyID": "ZZZZ****ZZZ"}}) == {
        "output": {"accessKeyID": "AKID****XYZ"}
    }


def test_a_mask_without_a_secret_behind_it_is_not_given() -> None:
    given = {
        "output": {"accessKeyID": "****", "accessKeySecret": "******", "mountDir": "/m"},
        "logOutput": {"accessKeySecret": "******"},
        "envs": [{"name": "A_TOKEN", "value": "******"}, {"name": "plain", "value": "******"}],
    }
    expected = {
        "output": {"mountDir": "/m"},
        "logOutput": {},
        "envs": [{"name": "A_TOKEN"}, {"name": "plain", "value": "******"}],
    }
    without = masking.mask(parsed(given))

    assert json.loads(detail.encode(masking.fill_kept(without, None))) == expected
    assert (
        json.loads(detail.encode(masking.fill_kept(without, parsed({"name": "n", "output": {}})))) == expected
    )


def test_a_secret_that_was_given_is_not_taken_from_the_job() -> None:
    masked_now = masking.mask(parsed({"output": {"accessKeySecret": "new", "accessKeyID": "NEWK12345XYZ"}}))

    assert masking.fill_kept(masked_now, None) == masked_now.detail
    assert masked_now.kept == frozenset()


@pytest.mark.parametrize(
    "piece",
    ["v" * 20 + " ", "A_KEY=b ", "key", "http://a:", 'A_KEY="', 'A_KEY=\\"', "A_KEY=$(", "key" + " " * 50,
     "A_KEY=a'b\"", "[key", "-key", "--a-key "],
)  # fmt: skip
def test_masking_takes_time_linear_in_the_text(piece: str) -> None:
    def seconds(size_bytes: int) -> float:
        text = (piece * size_bytes)[:size_bytes]
        started = process_time()
        masking.mask(cwai.Detail(envs=(cwai.Env(name="a", value=text),), command=(f"-x {text}",)))
        return process_time() - started

    # Sixteen times the text takes 16 times as long, and 256 times if it is quadratic.
    assert seconds(16 * 16_384) < 80 * max(min(seconds(16_384) for _ in range(3)), 0.001)


def test_the_masks_of_secrecy_are_what_the_document_shows() -> None:
    assert secrecy.MASK == "******"
