"""What is refused in a text that is checked without being read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobledger import errors
from jobledger.model import jsontext

SPACES = st.text("\t\n\r ", max_size=2)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?[eE][+-]?[0-9]{3,4}", fullmatch=True)


@given(SPACES, NUMBERS, SPACES, st.sampled_from(['{{"a":{}}}', '{{"a":[1,{}]}}', '{{"b":"c","a":[{}]}}']))
def test_large_exponents_are_refused_as_by_reading(before: str, number: str, after: str, around: str) -> None:
    text = around.format(before + number + after)
    assert _refused(lambda: jsontext.check_object(text, field="x")) == _refused(
        lambda: jsontext.read(text, "x")
    )


def _refused(check: object) -> str:
    try:
        assert callable(check)
        check()
    except errors.EventError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text", ['{"serial":"7E4830"}', '{"a":"1e400"}', '{"a":"x,1e400"}', '{"a":"b\\\\u0000"}', '{"a":1e30}']
)
def test_what_only_looks_like_a_large_exponent_passes(text: str) -> None:
    jsontext.check_object(text, field="x")


@pytest.mark.parametrize("text", ['{"a":"\\u0000"}', '{"a\\u0000":1}', '{"a":"\\uD800"}', '{"a":-1e999}'])
def test_what_postgres_would_choke_on_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidEvent):
        jsontext.check_object(text, field="x")
