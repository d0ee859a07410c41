"""What HcclJson says of a job's servers; only the few keys that a view needs, of megabytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

import msgspec

LARGEST_COUNT = 2**31 - 1
"""The view's replicas are int32."""

NAME_CHARACTERS = 256
"""The longest name of a server by which its events are found: an index entry takes no more."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the job, which is one pod."""

    server_id: str = ""
    host_ip: str = ""
    pod_name: str = ""
    container_ids: Mapping[str, msgspec.Raw] | None = None
    """By container name."""


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a job, and how many there are to be."""

    server_list: tuple[Server, ...] | None = None
    server_count: str | int | None = None

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that have their devices, in the publisher's order."""
        return self.server_list or ()

    @property
    def count(self) -> int:
        """How many servers the job has; those listed if the table does not say."""
        text = str(self.server_count)
        given = (
            int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_COUNT)) else None
        )
        return given if given is not None and given <= LARGEST_COUNT else len(self.servers)


class _Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What tells a part from a whole table, of whatever type it is."""

    server_list: msgspec.Raw = msgspec.Raw(b"")
    server_count: msgspec.Raw = msgspec.Raw(b"")


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is called."""

    server_id: str | None = None
    server_name: str | None = None


class _Naming(msgspec.Struct, frozen=True, kw_only=True):
    """A table of which only the servers' names matter."""

    server_list: list[_Named] | None = None


_DECODER: Final = msgspec.json.Decoder(RankTable)
_NAMING: Final = msgspec.json.Decoder(_Naming)
_COUNTED: Final = msgspec.json.Decoder(_Counted)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_COUNT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)


def read(hccl_json: str) -> RankTable:
    """The table that the text holds; an empty one if it holds none.

    The log keeps HcclJson as given, so what does not look like a rank table is no error of the view.
    """
    try:
        return _DECODER.decode(hccl_json)
    except _UNREADABLE:
        return RankTable()


def servers(hccl_json: str) -> str | None:
    """The names by which an event is found, a line each: every server's id and name, but for overlong ones.

    None if the text is not what it should be, be it a number for a name or no JSON at all: what it names is
    then for job_events_servers to say, in SQL. Otherwise the text is a JSON object.
    """
    try:
        naming = _NAMING.decode(hccl_json)
    except _UNREADABLE:
        return None
    names = [
        name
        for server in naming.server_list or ()
        for name in (server.server_id, server.server_name)
        if name and len(name) <= NAME_CHARACTERS
    ]
    lines = "\n".join(names)
    return lines if lines.count("\n") == max(0, len(names) - 1) else None


def missing_servers_of(hccl_json: str) -> int | None:
    """The server_count of a table that lists fewer servers than that; None for a whole one.

    Counts without looking into the servers, as audit.part_count does in SQL.
    """
    try:
        counted = _COUNTED.decode(hccl_json)
        count = _number(bytes(counted.server_count))
        return count if count is not None and count > len(_servers(counted.server_list)) else None
    except _UNREADABLE:
        return None


def join(texts: Sequence[str]) -> str:
    """One whole table of the parts of one, in their order; a single text as it is, "" of none.

    What stands beside the servers is the first part's; ``total``, the number of parts, is 1 then.
    """
    if not texts:
        return ""
    if len(texts) == 1:
        return texts[0]
    parts = [_members(text) for text in texts]
    servers = [server for part in parts for server in _servers(part.get("server_list", msgspec.Raw(b"")))]
    joined: dict[str, object] = {**parts[0], "server_list": servers}
    if "total" in joined:
        joined["total"] = 1
    return msgspec.json.encode(joined).decode()


def _members(hccl_json: str) -> Mapping[str, msgspec.Raw]:
    try:
        return _MEMBERS.decode(hccl_json)
    except _UNREADABLE:
        return {}


def _servers(server_list: msgspec.Raw) -> Sequence[msgspec.Raw]:
    text = bytes(server_list)
    return _LIST.decode(text) if text.startswith(b"[") else ()


def _number(server_count: bytes) -> int | None:
    """The count that a text or a number says; a number is spelled as Postgres spells it."""
    if server_count[:1].isdigit():
        said = format(Decimal(server_count.decode()), "f")
    elif server_count.startswith(b'"'):
        said = msgspec.json.decode(server_count, type=str)
    else:
        return None
    return int(said) if _COUNT.fullmatch(said) and int(said) <= LARGEST_COUNT else None
