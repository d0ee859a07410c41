"""An existing subscriber: grpcio with stubs from ClusterD's unextended job.proto, resuming by metadata."""

from __future__ import annotations

import contextlib
import importlib
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_tools import protoc  # pyright: ignore[reportMissingTypeStubs]

EOF: Any = getattr(grpc.aio, "EOF")  # noqa: B009 - the stubs do not know it
"""What ``read`` gives at the end of a stream."""

PROTO = Path(__file__).parents[1] / "data" / "clusterd" / "job.proto"


def _generated() -> tuple[Any, Any]:
    """The stock modules, as a client's build makes them."""
    with tempfile.TemporaryDirectory(prefix="clusterd-stubs-") as directory:
        out = (f"--python_out={directory}", f"--grpc_python_out={directory}")
        arguments = ["protoc", f"-I{PROTO.parent}", *out, PROTO.name]
        assert protoc.main(arguments) == 0  # pyright: ignore[reportUnknownMemberType]
        sys.path.insert(0, directory)
        try:
            return importlib.import_module("job_pb2"), importlib.import_module("job_pb2_grpc")
        finally:
            sys.path.remove(directory)


messages, services = _generated()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a stream ended."""

    status: grpc.StatusCode
    message: str
    trailers: dict[str, str]


class Subscriber:
    """A stock client on one channel, default options.

    Clients of one process that dial one address share a connection, unless one wants its own.
    """

    def __init__(self, address: str, *, own_connection: bool = False) -> None:
        options = (("grpc.use_local_subchannel_pool", 1),) if own_connection else ()
        self.channel: Any = grpc.aio.insecure_channel(address, options=options)
        self.stub = services.JobStub(self.channel)

    async def close(self) -> None:
        await self.channel.close()

    async def register(self, role: str = "CCAgent") -> Any:
        return await self.stub.Register(messages.ClientInfo(role=role))

    def stream(
        self,
        *,
        client_id: str = "",
        role: str = "CCAgent",
        lists: bool = False,
        info: Any = None,
        **metadata: str,
    ) -> Any:
        """A call; metadata names have underscores for hyphens."""
        method = self.stub.SubscribeJobSummarySignalList if lists else self.stub.SubscribeJobSummarySignal
        sent = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
        return method(info or messages.ClientInfo(role=role, clientId=client_id), metadata=sent)


@contextlib.asynccontextmanager
async def subscriber(address: str, *, own_connection: bool = False) -> AsyncGenerator[Subscriber]:
    """A client for as long as the block lasts."""
    client = Subscriber(address, own_connection=own_connection)
    try:
        yield client
    finally:
        await client.close()


async def take(call: Any, count: int) -> list[Any]:
    """The next messages of a stream; fails if it ends before."""
    found: list[Any] = []
    while len(found) < count:
        message = await call.read()
        assert message is not EOF, await ended(call)
        found.append(message)
    return found


async def initial(call: Any) -> dict[str, str]:
    """The initial metadata of a stream."""
    return dict(await call.initial_metadata())


async def ended(call: Any) -> End:
    """Wait until a stream ends, and say how; what it still delivers is thrown away."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        async for _ in _messages(call):
            pass
    return End(
        status=await call.code(),
        message=await call.details(),
        trailers={key: str(value) for key, value in await call.trailing_metadata()},
    )


async def _messages(call: Any) -> AsyncIterator[Any]:
    while (message := await call.read()) is not EOF:
        yield message
