"""What HcclJson says of a job's servers; only the few keys that a view needs, of megabytes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LARGEST_COUNT = 2**31 - 1
"""The view's replicas are int32."""


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


_DECODER = msgspec.json.Decoder(RankTable)


def count_alone(hccl_json: str) -> str:
    """A table that says how many servers there are, as this one does, and no more."""
    return f'{{"server_count":{read(hccl_json).count}}}'


def read(hccl_json: str) -> RankTable:
    """The table that the text holds; an empty one if it holds none.

    The log keeps HcclJson as given, so what does not look like a rank table is no error of the view.
    """
    try:
        return _DECODER.decode(hccl_json)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return RankTable()
