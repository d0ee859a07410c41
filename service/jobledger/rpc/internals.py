"""What we use of grpclib that it does not promise to keep, in one place, with the check that it still holds.

grpclib is pinned exactly; this is for the day the pin moves. :func:`verify` runs at every start:

- ``grpclib.server.Stream._stream``: the HTTP/2 stream below a call. Serves to read a request's length
  before its body is buffered, and to write many framed messages in one go.
- ``grpclib.events._DispatchServerEvents``: the argument of ``request_handler`` without which it does not run.
- ``grpclib.config.Configuration._keepalive_*``: the server's pings.
- the classes of ``grpclib.protocol``, which have no underscore and no documentation.

Without the last three the service does not start. ``_stream``, and that ``send_message`` is nothing but one
``send_data`` of the prefix and the message, are only economies: without them calls go through grpclib's
public methods, each message by itself, and a line in the log says so.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any, Protocol

import grpclib
from grpclib import config, const, events, protocol, server
from grpclib.encoding import base

from jobledger.rpc import http2

logger = logging.getLogger(__name__)

EXPECTED: tuple[tuple[type, str], ...] = (
    (protocol.AbstractHandler, "accept"),
    (protocol.AbstractHandler, "cancel"),
    (protocol.AbstractHandler, "close"),
    (protocol.Connection, "ack"),
    (protocol.Connection, "create_stream"),
    (protocol.Connection, "data_send_process"),
    (protocol.Connection, "flush"),
    (protocol.Connection, "initialize"),
    (protocol.Connection, "is_closing"),
    (protocol.EventsProcessor, "process"),
    (protocol.EventsProcessor, "process_data_received"),
    (protocol.H2Protocol, "connection_made"),
    (protocol.H2Protocol, "connection_lost"),
    (protocol.Buffer, "unacked_size"),
    (protocol.Stream, "__ended__"),
    (protocol.Stream, "closable"),
    (protocol.Stream, "recv_data"),
    (protocol.Stream, "reset_nowait"),
    (protocol.Stream, "send_data"),
    (protocol.Stream, "send_headers"),
)
"""Attributes of grpclib's undocumented classes that we call or override."""

KEEPALIVE_FIELDS = (
    "_keepalive_time",
    "_keepalive_timeout",
    "_keepalive_permit_without_calls",
    "_http2_max_pings_without_data",
    "_http2_min_sent_ping_interval_without_data",
)
"""Fields of grpclib's configuration that make the server ping."""


HTTP2_STREAM = "_stream"
"""Where grpclib's call keeps its HTTP/2 stream."""


class BytesCodec(base.CodecBase):
    """Hands ``bytes`` through untouched and (de)serialises everything else as protobuf.

    Our own methods declare ``bytes`` as their request and reply type; health and reflection declare
    google's message classes. One codec serves both on one port.
    """

    @property
    def __content_subtype__(self) -> str:
        return "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """The message's bytes."""
        return message if message_type is bytes else message.SerializeToString()

    def decode(self, data: bytes, message_type: Any) -> Any:
        """The message that the bytes are."""
        return data if message_type is bytes else message_type.FromString(data)


class Events(Protocol):
    """The hooks that ``request_handler`` wants; none is used here."""


def no_events() -> Any:
    """A set of grpclib event listeners that is empty."""
    return events._DispatchServerEvents()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def http2_stream(stream: server.Stream[Any, Any]) -> http2.Stream | None:
    """The HTTP/2 stream that carries a call; None if this grpclib keeps it elsewhere."""
    return getattr(stream, HTTP2_STREAM, None)


def configuration(*, keepalive_seconds: float, keepalive_timeout_seconds: float) -> config.Configuration:
    """A configuration whose connections are pinged, idle or not, for as long as they are open."""
    return config.Configuration(
        _keepalive_time=keepalive_seconds,
        _keepalive_timeout=keepalive_timeout_seconds,
        _keepalive_permit_without_calls=True,
        _http2_max_pings_without_data=0,  # grpclib's 2 would stop pinging the peers that matter: quiet ones
        _http2_min_sent_ping_interval_without_data=keepalive_seconds / 2,
    ).__for_server__()


class _Recorder:
    """Stands for an HTTP/2 stream and keeps what is sent."""

    def __init__(self) -> None:
        self.connection = self
        self.messages_sent = 0
        self.last_message_sent = 0.0
        self.sent: list[bytes] = []

    def get_peer(self) -> None: ...

    async def send_headers(self, headers: object, *, end_stream: bool = False) -> None: ...

    async def send_data(self, data: bytes, *, end_stream: bool = False) -> None:
        assert not end_stream  # noqa: S101 - a failed assertion is the answer
        self.sent.append(data)


async def verify() -> bool:
    """Checks what the docstring of this module lists; the answer is whether chunks may be written in one go.

    Raises:
        RuntimeError: grpclib lacks something without which calls cannot be served.
    """
    missing = [f"{owner.__name__}.{name}" for owner, name in EXPECTED if not hasattr(owner, name)]
    fields = inspect.signature(config.Configuration).parameters
    missing += [name for name in KEEPALIVE_FIELDS if name not in fields]
    recorder = _Recorder()
    probe: server.Stream[bytes, bytes] | None = None
    try:
        probe = server.Stream(
            recorder,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            "/probe",
            const.Cardinality.UNARY_STREAM,
            bytes,
            bytes,
            codec=BytesCodec(),
            status_details_codec=None,
            dispatch=no_events(),
        )
    except (AttributeError, TypeError) as error:
        missing.append(str(error))
    if missing or probe is None:
        raise RuntimeError(
            f"grpclib {grpclib.__version__} is not what this service was written against; missing: "
            f"{', '.join(missing)}. Install the version pinned in pyproject.toml"
        )
    if http2_stream(probe) is not recorder:  # pyright: ignore[reportUnnecessaryComparison]
        logger.warning(
            "grpclib %s has no Stream.%s; calls work, but slower, and a request that is too large is refused "
            "only when it was read",
            grpclib.__version__,
            HTTP2_STREAM,
        )
        return False
    return await _sends_as_we_do(probe, recorder)


async def _sends_as_we_do(probe: server.Stream[bytes, bytes], recorder: _Recorder) -> bool:
    try:
        await probe.send_message(b"\x01\x02\x03")
    except Exception:  # whatever it is, the slower way is the answer
        logger.warning("grpclib's send_message could not be checked", exc_info=True)
        return False
    if recorder.sent == [b"\0\0\0\0\3\1\2\3"]:
        return True
    logger.warning(
        "grpclib %s sends messages in another way than expected; streams work, but slower",
        grpclib.__version__,
    )
    return False
