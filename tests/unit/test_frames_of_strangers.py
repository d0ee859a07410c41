"""Frames that no client of ours sends, to h2's connection and to the one that sets them by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import h2.exceptions
from h2 import connection
from h2.config import H2Configuration
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from jobledger.rpc import frames
from tests.support import transport

CONFIG: Final = H2Configuration(
    client_side=False,
    header_encoding="latin-1",
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)
WINDOW: Final = 9_000
STREAMS: Final = 9

DATA, HEADERS, PRIORITY, RESET, SETTINGS = 0, 1, 2, 3, 4
GOAWAY, WINDOW_UPDATE, CONTINUATION = 7, 8, 9
END_STREAM, END_HEADERS, PADDED, PRIORITISED = 1, 4, 8, 32


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">BHBBI", 0, len(payload), kind, flags, stream_id) + payload


BLOCKS: Final = [
    b"\x83\x40\x01a\x01b",  # :method: POST, and a name and its value, which go into the table
    b"\x83\xbe",  # what went there last
    b"\x83\xbf",
    b"\x83\x00\x01A\x01b",  # nothing for the table
    b"\x20\x83\x00\x01a\x01b",  # the table is emptied first
    b"\x3f\xe1\x1f\x83\x40\x01c\x01d",
    b"\x83\x0f\x0d\x015",  # content-length: 5
    b"\x83\x0f\x0d\x01x",
    b"\x83\xff",  # cut off
    b"\x88",  # an answer
    b"",
]
BODIES: Final = [b"\0\0\0\0\0", b"\0\0\0\0\3abc", b"", bytes(WINDOW), bytes(WINDOW + 1), bytes(16_385)]


def headers(stream_id: int, block: bytes, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream_id, block)


def ended(stream_id: int, body: bytes, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, stream_id, body)


def whole(stream_id: int, block: bytes, body: bytes) -> bytes:
    return headers(stream_id, block) + ended(stream_id, body)


# Only after the first call may others be taken whole; with two entries of the table, most blocks can be read.
OPENING: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + whole(1, BLOCKS[0] + BLOCKS[0], BODIES[0])
)

Shape = Callable[[int, bytes, bytes], bytes]

SHAPES: Final[Mapping[str, Shape]] = {
    "whole": whole,
    "padded": lambda i, block, body: (
        headers(i, block) + ended(i, b"\2" + body + b"\0\0", END_STREAM | PADDED)
    ),
    "padded headers": lambda i, block, body: (
        headers(i, b"\1" + block + b"\0", END_HEADERS | PADDED) + ended(i, body)
    ),
    "prioritised": lambda i, block, body: (
        headers(i, b"\0\0\0\0\7" + block, END_HEADERS | PRIORITISED) + ended(i, body)
    ),
    "continued": lambda i, block, body: (
        headers(i, block, 0) + frame(CONTINUATION, END_HEADERS, i) + ended(i, body)
    ),
    "interrupted": lambda i, block, body: headers(i, block, 0) + whole(i + 2, block, body),
    "no body": lambda i, block, _: headers(i, block, END_HEADERS | END_STREAM),
    "in two": lambda i, block, body: headers(i, block) + ended(i, body, 0) + ended(i, b""),
    "trailers": lambda i, block, body: (
        headers(i, block) + ended(i, body, 0) + headers(i, block, END_HEADERS | END_STREAM)
    ),
    "in many": lambda i, block, body: headers(i, block) + 4 * ended(i, body, 0) + ended(i, body),
    "never ended": lambda i, block, body: headers(i, block) + 2 * ended(i, body, 0),
    "after its end": lambda i, block, body: whole(i, block, body) + ended(i, body, 0),
    "before its start": lambda i, block, body: ended(i, body, 0) + whole(i, block, body),
    "after its reset": lambda i, block, body: (
        headers(i, block) + frame(RESET, 0, i, bytes(4)) + ended(i, body, 0)
    ),
    "of no stream": lambda i, block, body: headers(i, block) + ended(0, body, 0),
    "cut short": lambda i, block, body: headers(i, block) + ended(i, body, 0)[:-1],
    "crossed": lambda i, block, body: headers(i, block) + ended(i + 2, body),
    "unknown flag": lambda i, block, body: headers(i, block) + ended(i, body, END_STREAM | 64),
    "reset": lambda i, block, body: whole(i, block, body) + frame(RESET, 0, i, bytes(4)),
    "ended again": lambda i, block, body: whole(i, block, body) + ended(i, body),
    "even": lambda i, block, body: whole(i + 1, block, body),
    "backwards": lambda i, block, body: whole(i + 2, block, body) + whole(i, block, body),
    "reserved bit": lambda i, block, body: whole(i | 1 << 31, block, body),
    "window": lambda i, block, body: frame(WINDOW_UPDATE, 0, 0, b"\0\0\1\0") + whole(i, block, body),
    "settings": lambda i, block, body: (
        frame(SETTINGS, 0, 0, struct.pack(">HI", SettingCodes.HEADER_TABLE_SIZE, 0)) + whole(i, block, body)
    ),
    "goaway": lambda i, block, body: frame(GOAWAY, 0, 0, bytes(8)) + whole(i, block, body),
    "unknown": lambda i, block, body: frame(99, 1, i, block) + whole(i, block, body),
    "priority": lambda i, block, body: frame(PRIORITY, 0, i, bytes(5)) + whole(i, block, body),
}
"""What a client sends of a stream, or beside it."""

PARTS: Final = st.tuples(
    st.sampled_from(["whole"] * 12 + list(SHAPES)),
    st.sampled_from(BLOCKS[:4] * 4 + BLOCKS),
    st.sampled_from(BODIES[:2] * 6 + BODIES),
    st.sampled_from([0] * 4 + [None, 1, 9, 20, 30]),
)
"""Shape, block and body, and how much of it is left for the next read; None if the read goes on."""


@settings(deadline=None)
@given(st.lists(PARTS, max_size=12))
def test_frames_of_any_client_are_to_all_as_h2_has_them(
    parts: list[tuple[str, bytes, bytes, int | None]],
) -> None:
    reads = [OPENING]
    coming = b""
    for nth, (shape, block, body, left) in enumerate(parts):
        coming += SHAPES[shape](4 * nth + 3, block, body)
        if left is not None:
            end = max(len(coming) - left, 0)
            reads.append(coming[:end])
            coming = coming[end:]
    reads.append(coming)

    by_h2, by_hand = (seen(kind, reads) for kind in (connection.H2Connection, frames.H2Connection))

    assert by_hand == by_h2


def seen(kind: type[connection.H2Connection], reads: Sequence[bytes]) -> tuple[object, ...]:
    """What a server makes of all that comes, or of what comes until it has had enough."""
    server = kind(CONFIG)
    server.local_settings = Settings(
        client=False,
        initial_values={
            SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
        },
    )
    server.initiate_connection()
    found: list[object] = []
    try:
        for read in reads:
            found += transport.flattened(server.receive_data(read))
    except h2.exceptions.ProtocolError as error:
        found += [type(error), error.error_code]
    table = server.decoder.header_table
    return (
        found,
        server.data_to_send(),
        server.state_machine.state,
        server.inbound_flow_control_window,
        server.highest_inbound_stream_id,
        {
            stream_id: (each.state_machine.state, transport.inbound_window(server, stream_id))
            for stream_id, each in server.streams.items()
            if each.open
        },
        (list(table.dynamic_entries), table.maxsize),
    )
