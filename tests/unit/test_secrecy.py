from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobledger.model import secrecy

HEAD, TAIL = "c4n4ry", "yr4n4c"
"""Both ends of every planted secret: a mask that stops early, or starts late, shows one of them."""

pieces = st.sampled_from(
    ["A_KEY", "TOKEN", "--x-token", "-", "=", ":", ": ", "'", '"', "\\", " ", "\n", "://", "http://", "@",
     "/", "?", "a", "u:p", "80", ",", ";", "&&", "{", "}", "[", "]", "$(", ")", "Bearer ", secrecy.MASK,
     "--long-one"]
)  # fmt: skip
hostile_texts = st.lists(pieces, max_size=25).map("".join)


def planted(alphabet: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Secrets with anything of the alphabet between their ends."""
    return st.text(alphabet, max_size=20).map(lambda middle: f"{HEAD}{middle}{TAIL}")


def shows(text: str) -> bool:
    """Whether a planted secret shows, in whole or in part."""
    return HEAD in text or TAIL in text


printable = st.characters(min_codepoint=33, max_codepoint=126)


@pytest.mark.parametrize(
    "name",
    ["KEY", "key", "API_KEY", "apiKey", "APIKey", "apikey", "AWSAccessKey", "accessKeySecret", "SSH-KEY",
     "sshkeys", "HF_TOKEN", "hftoken", "MAX_TOKENS", "TOKEN2", "OAUTH2TOKEN", "x.token", "db_passwd",
     "PGPASSWORD", "PASS", "DbPwd", "AK", "my-sk", "AWS_CREDENTIALS", "encryptionkey", "secretKeyRef",
     "--x-token"],
)  # fmt: skip
def test_names_with_a_secret_word_are_secret(name: str) -> None:
    assert secrecy.names_secret(name)


@pytest.mark.parametrize(
    "name",
    ["", "name1", "monkey", "KEYBOARD", "TOKENIZER", "PASSAGE", "BYPASS", "TASK", "BREAK", "K8S", "SKIP",
     "MASTER_ADDR", "makefile", "密码"],
)  # fmt: skip
def test_names_that_only_contain_the_letters_are_not(name: str) -> None:
    assert not secrecy.names_secret(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("export TOKEN=abc; python x", "export TOKEN=******; python x"),
        ("TOKEN='v w' y", "TOKEN=****** y"),
        ('TOKEN="v \\" w" y', "TOKEN=****** y"),
        ('TOKEN=a"b c"d y', "TOKEN=****** y"),
        ('TOKEN="never ends', "TOKEN=******"),
        ("sh -c 'TOKEN=abc' z", "sh -c 'TOKEN=******' z"),
        ("env 'TOKEN=a b' z", "env 'TOKEN=******' z"),
        ("A_KEY=$(cat /run/x) y", "A_KEY=****** y"),
        ("token = 'abc' # c", "token = ****** # c"),
        ("train --hf-token abc x", "train --hf-token ****** x"),
        ("train --hf-token \\\n  abc x", "train --hf-token \\\n  ****** x"),
        ("--api-token=abc --foo 1", "--api-token=****** --foo 1"),
        ("--use-auth-token --epochs 3 --api-key V", "--use-auth-token --epochs 3 --api-key ******"),
        ("-Dapi.key=abc -Xmx1g", "-Dapi.key=****** -Xmx1g"),
        ("curl -H 'X-Auth-Token: a b' h", "curl -H 'X-Auth-Token: ******' h"),
        ("X-Api-Token: Bearer abc def", "X-Api-Token: ****** def"),
        ('-d \'{"password": "a,b","x":1}\'', '-d \'{"password": "******","x":1}\''),
        ("http://h/?token=abc", "http://h/?token=******"),
        ("http://u:p@h/x", "http://******@h/x"),
        ("http://u:p/a@s@h/p", "http://******@h/p"),
        ("redis://:p@h a://u:p@h", "redis://******@h a://******@h"),
        ("https://ghp_abc@github.com/a", "https://******@github.com/a"),
        ("TOKENIZER=abc", "TOKENIZER=abc"),
        ("ssh://git@h/x", "ssh://git@h/x"),
        ("http://registry:4873/@scope/pkg", "http://registry:4873/@scope/pkg"),
        ("a --key-value", "a --key-value"),
    ],
)
def test_text_shows_everything_but_its_secrets(text: str, masked: str) -> None:
    assert secrecy.in_text(text) == masked


def test_a_flags_value_is_its_whole_argument() -> None:
    assert secrecy.in_argument("--password=correct horse battery") == "--password=******"
    assert secrecy.in_argument("--env=A_KEY=a b") == "--env=A_KEY=******"


def test_an_images_digest_is_no_password() -> None:
    digest = "img:tag@sha256:" + "a" * 64

    assert secrecy.in_image(digest) == digest
    assert secrecy.in_image("user:p@registry:5000/img") == "******@registry:5000/img"


def test_an_endpoint_needs_no_scheme() -> None:
    assert secrecy.in_endpoint("user:p@10.0.0.1:9000") == "******@10.0.0.1:9000"


@given(hostile_texts)
@example("://u:K_KEY='a b'\"@h")
def test_masking_text_again_changes_nothing(text: str) -> None:
    for mask in (secrecy.in_text, secrecy.in_argument, secrecy.in_url, secrecy.in_endpoint, secrecy.in_image):
        assert mask(mask(text)) == mask(text), mask


@given(
    st.sampled_from(["", "export ", "cd /x && ", "sh -c 'x' && ", "A=b ", 'echo "a b"; ']),
    planted(printable.filter(lambda c: c not in "'\"\\;&|()$")),
)
def test_a_bare_value_never_shows(before: str, secret: str) -> None:
    assert not shows(secrecy.in_text(f"{before}HF_TOKEN={secret} python x"))


@given(planted(st.characters(exclude_categories=["Cs"], exclude_characters="'")))
def test_a_quoted_value_never_shows(secret: str) -> None:
    assert not shows(secrecy.in_text(f"export HF_TOKEN='{secret}' && python x"))


@given(planted(st.characters(exclude_categories=["Cs"])))
def test_a_flags_value_never_shows(secret: str) -> None:
    assert not shows(secrecy.in_argument(f"--hf-token={secret}"))


@given(planted(printable.filter(lambda c: c != "@")).filter(lambda secret: "://" not in secret))
def test_a_urls_password_never_shows(secret: str) -> None:
    for mask in (secrecy.in_text, secrecy.in_url, secrecy.in_endpoint):
        assert not shows(mask(f"postgres://user:{secret}@host:5432/db")), mask
