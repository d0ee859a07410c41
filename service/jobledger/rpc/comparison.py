"""Whether the installed h2 is what :mod:`jobledger.rpc.frames` sets by hand: asked at every start."""

from __future__ import annotations

from typing import Final

from h2 import connection, events
from h2.config import H2Configuration

from jobledger.rpc import frames
from jobledger.rpc.opening import CONTENT_TYPE

_HEADERS: Final = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a/b"),
    (":authority", "c"),
    ("d", "e" * 99),
]
_MESSAGE: Final = b"\0\0\0\0\3abc"

_LEFT_OPEN: Final = 1
"""The first of the calls is never answered."""

_FOLLOWED: Final = 11
"""The last one has two messages to and fro."""


def difference() -> str | None:
    """In what this h2 is not as it is set by hand; None if in nothing."""
    try:
        by_h2, by_hand = (_seen_of(kind) for kind in (connection.H2Connection, frames.H2Connection))
    except Exception as error:  # noqa: BLE001 - whatever it is, h2 can do without us
        return f"{type(error).__name__}: {error}"
    unlike = [name for name, value in by_h2.items() if by_hand[name] != value]
    return f"not the same: {', '.join(unlike)}" if unlike else None


def _seen_of(kind: type[connection.H2Connection]) -> dict[str, object]:
    """What a connection and its client know of six calls, the first and last of which are still open."""
    served = kind(H2Configuration(client_side=False, header_encoding="latin-1"))
    client = connection.H2Connection(H2Configuration(client_side=True))
    served.initiate_connection()
    client.initiate_connection()
    client.receive_data(served.data_to_send())
    came: list[object] = []
    answers: list[object] = []
    for number in (1, 3, 5, 7, 9):
        client.send_headers(number, _HEADERS)
        client.send_data(number, _MESSAGE, end_stream=True)
        came += _flat(served.receive_data(client.data_to_send()))
        if number > _LEFT_OPEN:
            _answer(served, number)
            answers += map(repr, client.receive_data(served.data_to_send()))
    client.send_headers(_FOLLOWED, _HEADERS)
    served.receive_data(client.data_to_send())
    served.send_headers(_FOLLOWED, [(":status", "200"), CONTENT_TYPE])
    for size in (len(_MESSAGE), client.max_outbound_frame_size):
        client.send_data(_FOLLOWED, _MESSAGE.ljust(size))
        client.send_data(_FOLLOWED, _MESSAGE.rjust(size))
        came += _flat(served.receive_data(client.data_to_send()))
        _acknowledge(served, 2 * size)
        _send(served, _MESSAGE.ljust(size + 1))
        answers += map(repr, client.receive_data(served.data_to_send()))
    return {
        "what comes": came,
        "answers": answers,
        "streams": (served.open_inbound_streams, client.open_outbound_streams),
        "windows": (
            served.outbound_flow_control_window,
            served.inbound_flow_control_window,
            served.local_flow_control_window(_FOLLOWED),
            served.remote_flow_control_window(_FOLLOWED),
            client.outbound_flow_control_window,
            client.local_flow_control_window(_FOLLOWED),
            client.remote_flow_control_window(_FOLLOWED),
        ),
    }


def _flat(found: list[events.Event]) -> list[object]:
    flat: list[object] = []
    for each in found:
        match each:
            case frames.WholeCall():
                flat += (each.stream_id, [*each.headers], each.body)
            case events.RequestReceived():
                flat += (each.stream_id, each.headers)
            case frames.Piece() | events.DataReceived():
                flat.append(each.data)
            case _:
                pass
    return flat


def _answer(served: connection.H2Connection, number: int) -> None:
    if isinstance(served, frames.H2Connection):
        if not served.answer(number, _MESSAGE):
            raise RuntimeError
        return
    served.send_headers(number, [(":status", "200"), CONTENT_TYPE])
    served.send_data(number, _MESSAGE)
    served.send_headers(number, [("grpc-status", "0")], end_stream=True)


def _acknowledge(served: connection.H2Connection, size: int) -> None:
    if isinstance(served, frames.H2Connection):
        served.give_back(_FOLLOWED, size)
    else:
        served.acknowledge_received_data(size, _FOLLOWED)


def _send(served: connection.H2Connection, data: bytes) -> None:
    if isinstance(served, frames.H2Connection):
        if not served.send(_FOLLOWED, data):
            raise RuntimeError
        return
    most = served.max_outbound_frame_size
    for at in range(0, len(data), most):
        served.send_data(_FOLLOWED, data[at : at + most])
