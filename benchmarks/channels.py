"""gRPC channels that send and receive bytes: the client's encoding is not what is measured."""

from __future__ import annotations

from typing import Any

import grpc.aio


def dial(address: str) -> Any:
    """A channel; without types, since its stubs know no calls of bytes."""
    return grpc.aio.insecure_channel(address)
