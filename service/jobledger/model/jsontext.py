"""JSON text read without losing anything and without trusting it.

What Postgres, a driver or another reader would later change or choke on is refused here, with the place
at fault: keys given twice, U+0000, lone surrogates, NaN, numbers beyond a double, deep nesting. Messages
never quote a value: nothing was masked yet.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, cast

import msgspec

from jobledger import errors

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | Decimal | bool | None"
"""A JSON value; numbers with a fraction or an exponent are Decimals, so that none is rounded."""

MAX_DEPTH = 64
"""Levels of arrays and objects. Pod specs have about 15; every reader in reach takes 64."""

MAX_EXPONENT = 308
"""The largest power of ten of a double, either way: beyond it jsonb refuses or other readers round to 0."""

MAX_NUMBER_LENGTH = 400
"""Characters of a number: enough for every one within MAX_EXPONENT, too few to cost time."""

KINDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number with a fraction",
    "decimal": "a number with a fraction",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
"""What msgspec's errors call a value's kind, in words."""

_CODEC = msgspec.json.Encoder(order="sorted", decimal_format="number")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SKELETON = bytes.maketrans(b"E,[ \t\r\n", b"e" + 6 * b":")
"""Makes one of what may stand before a number, when :data:`_FLESH` is left out."""

_FLESH = b"0123456789.+-abcdfghijklmopqrtvwxyz_"
"""Without it a number with an exponent is an e behind what stood before it. Outside of strings, nothing else
is one: of true and false, something is left before theirs."""

_OUTLINE = bytes.maketrans(b"123456789.E,[ \t\r\n", b"0000000000e" + 6 * b":")
"""Makes all digits one, and one of what may stand before a number; its signs are to be left out."""

_LARGE_EXPONENT = re.compile(rb":0+e000")
"""In such an outline: an exponent of three digits or more, or some rare text that looks like one."""
_DUBIOUS_ESCAPE = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)
"""An escape that may stand for U+0000 or half of a pair; most of them are innocent."""

_DUBIOUS_CHARACTER = re.compile("[\0\ud800-\udfff]")

_TOO_DEEP = f"nests deeper than {MAX_DEPTH} levels"
_PLAIN_KEY = re.compile(r"[\w./-]{1,64}")


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands in the tree where something cannot be recorded, until its path is known."""

    problem: str
    remedy: str


class _Reader(threading.local):
    """What json asks for each object and number; flaws stay in the tree until it is walked."""

    found_flaws = False

    def members(self, pairs: list[tuple[str, object]]) -> object:
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        keys = Counter(key for key, _ in pairs)
        twice = next(key for key, times in keys.items() if times > 1)
        return self._flaw(f"has the key {errors.shown(twice)} twice", "give each key once")

    def integer(self, digits: str) -> object:
        return int(digits) if len(digits) <= MAX_EXPONENT else self._beyond()

    def decimal(self, digits: str) -> object:
        number = _decimal(digits)
        return self._beyond() if number is None else number

    def constant(self, _word: str) -> object:
        return self._flaw("is NaN or Infinity, which JSON does not have", "give a number, a string or null")

    def _beyond(self) -> _Flaw:
        return self._flaw("is beyond the range of a double", "give a number within it, or a string")

    def _flaw(self, problem: str, remedy: str) -> _Flaw:
        self.found_flaws = True
        return _Flaw(problem, remedy)


_reader = _Reader()
_DECODER = json.JSONDecoder(
    object_pairs_hook=_reader.members,
    parse_int=_reader.integer,
    parse_float=_reader.decimal,
    parse_constant=_reader.constant,
)


def read(text: str, field: str) -> Tree:
    """The value that the text holds.

    Args:
        text: JSON of any size; time and memory are linear in it.
        field: What the value is called in errors.

    Raises:
        errors.InvalidEvent: it is no JSON, or something in it cannot be recorded; names the place.
    """
    _reader.found_flaws = False
    problem = ""
    value: object = None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        problem = f"is no JSON: {error.msg} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        problem = _TOO_DEEP
    # Raised out here, so that no handler finds the whole text in the exception's context.
    if problem:
        raise errors.InvalidEvent(field=field, problem=problem, remedy="send well-formed, flat JSON")
    if text.count("{") + text.count("[") > MAX_DEPTH and _too_deep(value):
        raise errors.InvalidEvent(field=field, problem=_TOO_DEEP, remedy="send something flatter")
    has_dubious_escape = "\\" in text and _DUBIOUS_ESCAPE.search(text)
    if _reader.found_flaws or has_dubious_escape or _has_dubious_character(text):
        _refuse_flaws(value, field)
    return cast("Tree", value)


def check_object(text: str, *, field: str) -> None:
    """Refuse a text that is no JSON object, without reading what is in it; made for megabytes.

    Raises:
        errors.InvalidEvent: as :func:`read`, but keys given twice and numbers without exponent pass.
    """
    problem = ""
    try:
        _MEMBERS.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        problem = "is no JSON object"
    if problem:
        raise errors.InvalidEvent(
            field=field, problem=problem, remedy='send one, such as {"status":"initializing"}'
        )
    check_values(text, field=field)


def check_values(text: str, *, field: str) -> None:
    """The rest of what :func:`check_object` does, for a text that is known to be an object.

    Raises:
        errors.InvalidEvent: as there.
    """
    if _dubious(text):
        read(text, field)


def _dubious(text: str) -> bool:
    """Whether JSON text may hold an escape or a number that cannot be recorded.

    Looks for plain bytes before it looks for a pattern: those cost a fraction, and most texts have neither.
    """
    if "\\" in text and _DUBIOUS_ESCAPE.search(text):
        return True
    data = text.encode()
    if b":e" not in data.translate(_SKELETON, _FLESH):
        return False
    return _LARGE_EXPONENT.search(data.translate(_OUTLINE, b"+-")) is not None


def write(value: object) -> str:
    """The one text of a value: sorted keys, no spaces, characters as themselves, numbers exact."""
    return _CODEC.encode(value).decode()


def member(path: str, key: str) -> str:
    """The path of a key's value; a key that would spoil a message is quoted and cut."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}.{errors.shown(key)}"


def _decimal(digits: str) -> Decimal | None:
    if len(digits) > MAX_NUMBER_LENGTH:
        return None
    try:
        number = Decimal(digits)
    except ArithmeticError:
        return None
    return number if abs(number.adjusted()) <= MAX_EXPONENT else None


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _children(node: object) -> list[object]:
    if isinstance(node, dict):
        return list(cast("dict[str, object]", node).values())
    return cast("list[object]", node) if isinstance(node, list) else []


def _has_dubious_character(text: str) -> bool:
    """As the pattern says, in a hundredth of its time."""
    try:
        return b"\0" in text.encode()
    except UnicodeEncodeError:
        return True


def _refuse_flaws(value: object, field: str) -> None:
    for path, node in _walk(value, field):
        if isinstance(node, _Flaw):
            raise errors.InvalidEvent(field=path, problem=node.problem, remedy=node.remedy)
        if isinstance(node, str) and (found := _DUBIOUS_CHARACTER.search(node)):
            what = "U+0000" if found.group() == "\0" else "half of a surrogate pair"
            raise errors.InvalidEvent(
                field=path, problem=f"contains {what} at character {found.start()}", remedy="leave it out"
            )


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every value and every key, with its path, in no particular order; no recursion."""
    waiting = [(path, value)]
    while waiting:
        where, node = waiting.pop()
        yield where, node
        if isinstance(node, dict):
            for key, child in cast("dict[str, object]", node).items():
                yield f"{where}, in a key", key
                waiting.append((member(where, key), child))
        elif isinstance(node, list):
            waiting.extend((f"{where}[{at}]", child) for at, child in enumerate(cast("list[object]", node)))
