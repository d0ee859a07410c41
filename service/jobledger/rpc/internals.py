"""What we use of grpclib that it does not promise to keep, in one place, with the check that it still holds.

grpclib is pinned exactly; this is for the day the pin moves. :func:`verify` runs at every start:

- ``grpclib.events._DispatchServerEvents``: an argument of ``server.Stream``, for health and reflection.
- ``grpclib.config.Configuration._keepalive_*``: the server's pings.
- the classes of ``grpclib.protocol``, which have no underscore and no documentation.
- what ``frames`` sets of h2, which is not pinned.

Without the first three the service does not start. The last is only an economy: without it each frame is
h2's affair, and a line in the log says so.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any, Final

import grpclib
from grpclib import config, const, events, protocol, server
from grpclib.encoding import base

from jobledger.rpc import comparison, http2

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


_CODEC: Final = BytesCodec()


def grpclib_stream(
    stream: http2.Stream, path: str, cardinality: const.Cardinality, request_type: type, reply_type: type
) -> server.Stream[Any, Any]:
    """A call as handlers that were written for grpclib want it."""
    return server.Stream(
        stream,
        path,
        cardinality,
        request_type,
        reply_type,
        codec=_CODEC,
        status_details_codec=None,
        dispatch=events._DispatchServerEvents(),  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    )


@functools.cache
def configuration(*, keepalive_seconds: float, keepalive_timeout_seconds: float) -> config.Configuration:
    """A configuration whose connections are pinged, idle or not, for as long as they are open.

    One for all of them: to make it takes 20 µs.
    """
    return config.Configuration(
        _keepalive_time=keepalive_seconds,
        _keepalive_timeout=keepalive_timeout_seconds,
        _keepalive_permit_without_calls=True,
        _http2_max_pings_without_data=0,  # grpclib's 2 would stop pinging the peers that matter: quiet ones
        _http2_min_sent_ping_interval_without_data=keepalive_seconds / 2,
    ).__for_server__()


def verify() -> bool:
    """Checks what the docstring of this module lists; the answer is whether frames may be set by hand.

    Raises:
        RuntimeError: grpclib lacks something without which calls cannot be served.
    """
    missing = [f"{owner.__name__}.{name}" for owner, name in EXPECTED if not hasattr(owner, name)]
    fields = inspect.signature(config.Configuration).parameters
    missing += [name for name in KEEPALIVE_FIELDS if name not in fields]
    if missing:
        raise RuntimeError(
            f"grpclib {grpclib.__version__} is not what this service was written against; missing: "
            f"{', '.join(missing)}. Install the version pinned in pyproject.toml"
        )
    difference = comparison.difference()
    if difference is not None:
        logger.warning("h2 is not as expected: %s; calls work, but slower", difference)
    return difference is None
