"""What others do on the same machine: JetStream's replay from its file, grpc.aio and grpclib one by one."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import multiprocessing
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import channels
import grpc.aio
import grpclib.server
import reader
from grpclib import const

from jobledger.rpc import internals

# The extra `bench` brings it; types are checked without.
nats: Any = importlib.import_module("nats")


@contextlib.asynccontextmanager
async def jetstream(events: Sequence[bytes]) -> AsyncGenerator[int]:
    """The port of a NATS server whose stream ``bench`` holds the events in a file."""
    program = shutil.which("nats-server", path="/usr/sbin:/usr/local/bin:/usr/bin")
    if program is None:
        raise SystemExit("nats-server is not installed; on Debian and Ubuntu: apt-get install nats-server")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="jobledger-bench-nats-", ignore_cleanup_errors=True) as place:
        server = await asyncio.create_subprocess_exec(
            *(program, "-js", "-sd", str(Path(place)), "-a", "127.0.0.1", "-p", str(port)),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await _listens(port)
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            stream = client.jetstream()
            await stream.add_stream(name="bench", subjects=["bench"], storage="file")
            for event in events:
                await client.publish("bench", event)
            await client.flush()
            while (await stream.stream_info("bench")).state.messages < len(events):  # noqa: ASYNC110 - its own
                await asyncio.sleep(0.1)
            await client.close()
            yield port
        finally:
            server.terminate()
            await server.wait()


async def _listens(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


@contextlib.asynccontextmanager
async def sending(library: str, events: Sequence[bytes]) -> AsyncGenerator[int]:
    """The port of a server that sends the events one by one to whoever calls, in a process of its own.

    Its library is grpc.aio or grpclib.
    """
    told: multiprocessing.Queue[int] = multiprocessing.get_context("spawn").Queue()
    serve = {"grpc.aio": _serve_grpc_aio, "grpclib": _serve_grpclib}[library]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(events, told), daemon=True)
    process.start()
    try:
        yield await asyncio.to_thread(told.get)
    finally:
        process.kill()
        process.join()


def _serve_grpc_aio(events: Sequence[bytes], told: multiprocessing.Queue[int]) -> None:
    async def replay(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for event in events:
            yield event

    async def run() -> None:
        server: Any = grpc.aio.server()
        handlers = {reader.METHOD.rpartition("/")[2]: channels.stream_of_bytes(replay)}
        server.add_generic_rpc_handlers((channels.service(reader.METHOD.split("/")[1], handlers),))
        told.put(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    asyncio.run(run())


def _serve_grpclib(events: Sequence[bytes], told: multiprocessing.Queue[int]) -> None:
    async def replay(stream: Any) -> None:
        await stream.recv_message()
        for event in events:
            await stream.send_message(event)

    class Replay:
        def __mapping__(self) -> dict[str, const.Handler]:
            return {reader.METHOD: const.Handler(replay, const.Cardinality.UNARY_STREAM, bytes, bytes)}

    # Readers leave when they have enough, which asyncio calls an exception.
    logging.disable()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            server = grpclib.server.Server([Replay()], codec=internals.BytesCodec())
            await server.start(sock=sock)
            told.put(sock.getsockname()[1])
            await server.wait_closed()

    asyncio.run(run())
