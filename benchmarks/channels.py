"""gRPC channels and services of bytes: encoding is not what is measured. Untyped, as grpcio's stubs are."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

_grpc: Any = grpc


def dial(address: str) -> Any:
    """A channel."""
    return grpc.aio.insecure_channel(address)


def stream_of_bytes(behaviour: Any) -> Any:
    """A method that answers one request with many messages."""
    return _grpc.unary_stream_rpc_method_handler(behaviour)


def service(name: str, handlers: dict[str, Any]) -> Any:
    """A service by its methods."""
    return _grpc.method_handlers_generic_handler(name, handlers)
