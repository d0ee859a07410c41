"""JSON that is kept as text but must be readable as jsonb: what Postgres would refuse is refused here."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

from jobledger import errors

NUMERIC_DIGITS_BEFORE_POINT = 131_072
NUMERIC_DIGITS_AFTER_POINT = 16_383
"""The range of Postgres' numeric, which jsonb keeps numbers in (PostgreSQL manual, 8.1 Numeric Types)."""

INTEGER_DIGITS = 4_000
"""Longer integers are refused: Python's own conversion limit is 4,300 digits."""

_LONG_INTEGER = re.compile(rf"\d{{{INTEGER_DIGITS}}}")


def _within_numeric(text: str) -> None:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not (
        number.adjusted() < NUMERIC_DIGITS_BEFORE_POINT and exponent >= -NUMERIC_DIGITS_AFTER_POINT
    ):
        message = f"the number {errors.shown(text)} is out of range"
        raise ValueError(message)


_decoder = msgspec.json.Decoder(float_hook=_within_numeric)


def check_object(text: str, *, field: str) -> None:
    """Make sure that a text is a JSON object that Postgres can read as jsonb.

    Raises:
        errors.InvalidEvent: It is not JSON, not an object, or holds U+0000, a lone surrogate, a number
            out of range, or nesting too deep.
    """
    try:
        if _LONG_INTEGER.search(text):
            problem = f"holds an integer of more than {INTEGER_DIGITS} digits"
            raise errors.InvalidEvent(field=field, problem=problem, remedy="send it as a string")
        value: object = _decoder.decode(text)
    except (msgspec.DecodeError, ValueError, ArithmeticError) as error:
        problem = f"is not JSON that can be kept: {error}"
        raise errors.InvalidEvent(field=field, problem=problem, remedy="send a JSON object as text") from None
    except RecursionError:
        problem = "is nested too deeply"
        raise errors.InvalidEvent(field=field, problem=problem, remedy="send a flatter JSON object") from None
    if not isinstance(value, dict):
        problem = f"is a JSON {type(value).__name__}, not an object"
        raise errors.InvalidEvent(field=field, problem=problem, remedy='send a JSON object, such as {"status":"initializing"}')
    if "\\u0000" in text and _holds_nul(value):  # pyright: ignore[reportUnknownArgumentType]
        raise errors.InvalidEvent(field=field, problem="holds U+0000", remedy="send it without that character")


def _holds_nul(value: object) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case list():
            return any(map(_holds_nul, value))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return False
