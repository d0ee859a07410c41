"""JSON values without their secrets: a pod's yaml, a command's arguments, text with JSON in it.

A member with a secret name is hidden leaf by leaf, and so is the value of a ``{name, value}`` pair with one;
in a list, ``--x-token`` hides the next item; every text is treated as ``secrecy`` treats it.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import cast

from jobledger import errors
from jobledger.model import jsontext, secrecy

_LIKE_JSON = re.compile(r"\s*(?:\{.*\}|\[.*\])\s*", re.DOTALL)


def masked(value: jsontext.Tree) -> jsontext.Tree:
    """The value without its secrets; the same keys, lists as long as before."""
    return _tree(value, 0)


def masked_arguments(arguments: list[str]) -> list[str]:
    """A command, argument by argument, without its secrets."""
    return cast("list[str]", _items(cast("list[jsontext.Tree]", arguments), 0))


def masked_text(text: str) -> str:
    """A text without its secrets; if it is JSON, by the names in it."""
    return _text(text, 0)


def _tree(value: jsontext.Tree, depth: int) -> jsontext.Tree:
    match value:
        case str():
            return _text(value, depth)
        case list():
            return _items(value, depth + 1)
        case dict():
            return _members(value, depth + 1)
        case _:
            return value


def _members(members: dict[str, jsontext.Tree], depth: int) -> dict[str, jsontext.Tree]:
    name = members.get("name")
    is_secret_pair = isinstance(name, str) and secrecy.names_secret(name)
    return {
        key: _hidden(member)
        if secrecy.names_secret(key) or (is_secret_pair and key == "value")
        else _tree(member, depth)
        for key, member in members.items()
    }


def _items(items: list[jsontext.Tree], depth: int) -> list[jsontext.Tree]:
    """A list's items, texts among them as arguments of a command."""
    result: list[jsontext.Tree] = []
    after_flag = False
    for item in items:
        is_text = isinstance(item, str)
        is_flag = is_text and secrecy.is_secret_flag(item)
        # Two long options in a row: the first had no value, the second's is still to come. One dash is no
        # proof of a flag: a secret may begin with one.
        if after_flag and not (is_text and secrecy.is_long_option(item)):
            result.append(_hidden(item))
        else:
            result.append(_text(item, depth, argument=True) if is_text else _tree(item, depth))
        after_flag = is_flag
    return result


def _text(text: str, depth: int, *, argument: bool = False) -> str:
    if not secrecy.may_hold_secret(text):
        return text
    inner = _inner_json(text, depth)
    if inner is not None:
        hidden = _tree(inner, depth)
        return text if hidden == inner else jsontext.write(hidden)
    if _LIKE_JSON.fullmatch(text):
        # Almost JSON, or too deep to look into: which value belongs to which name cannot be told.
        return secrecy.MASK
    return secrecy.in_argument(text) if argument else secrecy.in_text(text)


def _inner_json(text: str, depth: int) -> jsontext.Tree:
    """What a text that is a JSON object or list says, such as kubectl's last-applied annotation."""
    if depth > jsontext.MAX_DEPTH or not _LIKE_JSON.fullmatch(text):
        return None
    try:
        return jsontext.read(text, "text")
    except errors.InvalidEvent:
        return None


def _hidden(value: jsontext.Tree) -> jsontext.Tree:
    """Every leaf hidden but those that cannot be a secret: null, true, false and nothing at all."""
    match value:
        case str():
            return secrecy.MASK if value else value
        case dict():
            return {key: _hidden(member) for key, member in value.items()}
        case list():
            return [_hidden(item) for item in value]
        case bool() | None:
            return value
        case int() | Decimal():
            return secrecy.MASK
