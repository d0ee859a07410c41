"""Calls and data of streams, taken and sent by hand, beside what h2 makes of the same bytes by itself."""

from __future__ import annotations

from dataclasses import dataclass

import h2.exceptions
import pytest
from h2 import connection
from h2.config import H2Configuration
from h2.settings import SettingCodes, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from jobledger.rpc import frames
from tests.support import transport

ENCODED = H2Configuration(client_side=False, header_encoding="latin-1", validate_inbound_headers=False)

Headers = list[tuple[str, str]]

WINDOW = 1 << 20
"""Of all streams together; one alone has 65,535 bytes."""

LONG = "long"
"""Stands for 3,000 characters: a hypothesis example is written out."""


class Pair:
    """A server and its client, in memory."""

    def __init__(self, kind: type[connection.H2Connection]) -> None:
        self.server = kind(ENCODED)
        self.client = connection.H2Connection(H2Configuration(client_side=True))
        self.server.initiate_connection()
        self.client.initiate_connection()
        for each in (self.server, self.client):
            each.increment_flow_control_window(WINDOW)
        self.came: list[object] = []
        self.answers: list[str] = []
        self.answer()

    def send(self, *, cut: int = 0) -> None:
        """Let the server read what the client has to say, cut in two reads if told so."""
        data = self.client.data_to_send()
        for part in (data[:cut], data[cut:]):
            if part:
                self.came += transport.flattened(self.server.receive_data(part))

    def answer(self) -> None:
        """Let the client read what the server has to say."""
        self.answers += map(repr, self.client.receive_data(self.server.data_to_send()))

    def settle(self, stream_id: int, message: bytes) -> None:
        """Answer a call, at once if that can be done."""
        by_hand = isinstance(self.server, frames.H2Connection) and self.server.answer(stream_id, message)
        if not by_hand:
            self.server.send_headers(
                stream_id, [(":status", "200"), ("content-type", "application/grpc+proto")]
            )
            self.server.send_data(stream_id, message)
            self.server.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
        self.answer()

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Let the client send so much more."""
        if isinstance(self.server, frames.H2Connection):
            told = self.server.give_back(stream_id, size)
            said = self.server.data_to_send()
            assert told is bool(said)
            self.answers += map(repr, self.client.receive_data(said))
        else:
            self.server.acknowledge_received_data(size, stream_id)
            self.answer()

    def follow(self, stream_id: int, data: bytes) -> None:
        """Send data on a call's stream, if its window has room for it."""
        if self.server.local_flow_control_window(stream_id) < len(data):
            if isinstance(self.server, frames.H2Connection):
                assert not self.server.send(stream_id, data)
            return
        if isinstance(self.server, frames.H2Connection):
            assert self.server.send(stream_id, data)
        else:
            most = self.server.max_outbound_frame_size
            for at in range(0, len(data), most):
                self.server.send_data(stream_id, data[at : at + most])
        self.answer()

    def state(self) -> tuple[object, ...]:
        """All that both know at the end."""
        return (
            self.came,
            self.answers,
            self.server.outbound_flow_control_window,
            self.server.inbound_flow_control_window,
            self.server.highest_inbound_stream_id,
            self.server.open_inbound_streams,
            self.client.open_outbound_streams,
            {
                stream_id: (
                    each.state_machine.state,
                    self.server.local_flow_control_window(stream_id),
                    transport.inbound_window(self.server, stream_id),
                )
                for stream_id, each in self.server.streams.items()
                if each.open
            },
            list(self.server.decoder.header_table.dynamic_entries),
        )


@dataclass(frozen=True)
class Act:
    """What a client does next."""

    kind: str
    more: Headers
    size: int
    cut: int
    table: int


ACTS = st.builds(
    Act,
    kind=st.sampled_from(
        ["call"] * 6 + ["open", "empty", "reset", "window", "table", "ping", "data"] + ["follow"] * 6
    ),
    more=st.lists(
        st.sampled_from([("a", "1"), ("a", "2"), ("grpc-timeout", "5S"), ("long", LONG)]), max_size=2
    ),
    size=st.sampled_from([0, 8, 9000, 16_384]),
    cut=st.sampled_from([0, 0, 0, 1, 9, 60]),
    table=st.sampled_from([0, 100, 4096]),
)


@settings(deadline=None)
@given(st.lists(ACTS, max_size=12))
def test_calls_of_any_client_are_to_all_as_h2_has_them(acts: list[Act]) -> None:
    pairs = [Pair(connection.H2Connection), Pair(frames.H2Connection)]
    for pair in pairs:
        for act in acts:
            perform(pair, act)
    by_h2, by_hand = (pair.state() for pair in pairs)
    assert by_hand == by_h2


def perform(pair: Pair, act: Act) -> None:
    client = pair.client
    stream_id = client.get_next_available_stream_id()
    more = ((name, value if value != LONG else "x" * 3000) for name, value in act.more)
    headers = transport.request_headers("/test.Test/Call", *more)
    body = bytes(act.size)
    if act.kind == "table" and client.local_settings.header_table_size != act.table:
        client.update_settings({SettingCodes.HEADER_TABLE_SIZE: act.table})
    is_whole = act.kind in {"call", "table"}
    match act.kind:
        case "window":
            client.increment_flow_control_window(1000)
        case "ping":
            client.ping(bytes(8))
        case "follow":
            follow(pair, act, headers)
            return
        case kind:
            client.send_headers(stream_id, headers, end_stream=kind == "empty")
            if is_whole or kind == "data":
                client.send_data(stream_id, body, end_stream=is_whole)
            if kind == "reset":
                client.reset_stream(stream_id)
    pair.send(cut=act.cut)
    if is_whole:
        pair.settle(stream_id, body)
        if body:
            pair.server.acknowledge_received_data(len(body), stream_id)
    pair.answer()
    pair.send()


def follow(pair: Pair, act: Act, headers: Headers) -> None:
    """Requests to and fro on one stream, the first that is still open or another."""
    client, server = pair.client, pair.server
    stream_id = next((each for each, kept in client.streams.items() if kept.open), 0)
    if not stream_id or not client.streams[stream_id].state_machine.headers_received:
        stream_id = client.get_next_available_stream_id()
        client.send_headers(stream_id, headers)
        pair.send()
        server.send_headers(stream_id, [(":status", "200"), ("content-type", "application/grpc+proto")])
        pair.answer()
    if client.local_flow_control_window(stream_id) >= 2 * act.size:
        client.send_data(stream_id, bytes(act.size))
        client.send_data(stream_id, bytes(act.size))
        pair.send(cut=act.cut)
        pair.acknowledge(stream_id, 2 * act.size)
    pair.follow(stream_id, bytes(2 * act.size + 1))
    if act.more:
        client.acknowledge_received_data(2 * act.size + 1, stream_id)
    pair.send()


@pytest.mark.parametrize(
    "broken",
    [
        b"\0\0\1\1\4\0\0\0\3\xff" + b"\0\0\5\0\1\0\0\0\3\0\0\0\0\0",
        b"\0\0\1\1\4\0\0\0\1\x88" + b"\0\0\5\0\1\0\0\0\1\0\0\0\0\0",
        b"\0\0\1\1\4\0\0\0\2\x88" + b"\0\0\5\0\1\0\0\0\2\0\0\0\0\0",
    ],
    ids=["header block", "old stream", "even stream"],
)
def test_broken_call_ends_the_connection_as_in_h2(broken: bytes) -> None:
    goodbyes: list[bytes] = []
    for kind in (connection.H2Connection, frames.H2Connection):
        pair = Pair(kind)
        perform(pair, Act(kind="call", more=[], size=5, cut=0, table=0))
        with pytest.raises(h2.exceptions.ProtocolError):
            pair.server.receive_data(broken)
        goodbyes.append(pair.server.data_to_send())
    assert goodbyes[0] == goodbyes[1]
    assert goodbyes[0]


def test_control_frame_that_is_cut_by_the_end_of_a_read_leaves_what_follows_to_be_set_by_hand() -> None:
    pair = Pair(frames.H2Connection)
    pair.client.send_headers(1, transport.request_headers("/test.Test/Call"))
    pair.send()
    pair.client.increment_flow_control_window(1000)
    pair.client.send_data(1, b"12345")
    data = pair.client.data_to_send()

    found = [*pair.server.receive_data(data[:11]), *pair.server.receive_data(data[11:])]

    assert [type(each).__name__ for each in found] == ["WindowUpdated", "Piece"]


def test_calls_with_the_same_headers_are_decoded_once_until_the_table_changes() -> None:
    pair = Pair(frames.H2Connection)
    call = Act(kind="call", more=[("b", "1")], size=5, cut=0, table=0)
    found: list[object] = []
    for act in (
        call,
        call,
        call,
        call,
        Act(kind="call", more=[("b", "2")], size=1, cut=0, table=0),
        call,
        call,
    ):
        perform(pair, act)
        decoder = pair.server.decoder
        assert isinstance(decoder, frames.Decoder)
        found.append(decoder.kept)
    assert [each is not None for each in found] == [False, False, True, True, False, False, True]
    assert found[2] is found[3]


def test_calls_that_are_over_are_forgotten_however_they_ended() -> None:
    pair = Pair(frames.H2Connection)
    pair.server.local_settings = Settings(
        client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: 20_000}
    )
    for _ in range(300):
        stream_id = pair.client.get_next_available_stream_id()
        pair.client.send_headers(stream_id, transport.request_headers("/test.Test/Call"))
        pair.client.send_data(stream_id, b"12345", end_stream=True)
        pair.send()
        pair.server.send_headers(stream_id, [(":status", "200"), ("grpc-status", "3")], end_stream=True)
        pair.answer()

    assert len(pair.server.streams) < 100
