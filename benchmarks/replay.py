"""Messages a second to subscribers that replay, read by a reader that costs less than the server.

READER names the program: it dials a port, sends a prepared request on each connection, counts messages and
decodes nothing (usage as in ``_read``). Without it a Python reader of raw bytes is used, which is slower
than the server and says so.
"""

from __future__ import annotations

import asyncio
import os
import re
import struct
import tempfile
import time

import append
import channels
import harness

from jobledger.wire import messages

EVENTS = 100_000
METHOD = "/job.Job/SubscribeJobSummarySignal"
WINDOW = 4 << 20
FRAME = 16_384
EARLIEST = messages.ClientInfo(role="Bench", startFrom=2).SerializeToString()


def http2_request(message: bytes) -> bytes:
    """A client's first bytes, with one call: preface, settings, headers without compression, data."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return (
            struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
        )

    def header(name: str, value: str) -> bytes:
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    settings = struct.pack(">HIHIHI", 4, WINDOW, 5, FRAME, 2, 0)
    headers = b"".join(
        header(*pair)
        for pair in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", METHOD),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
    )
    data = b"\0" + struct.pack(">I", len(message)) + message
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, settings)
        + frame(8, 0, 0, struct.pack(">I", WINDOW - 65_535))
        + frame(1, 4, 1, headers)
        + frame(0, 1, 1, data)
    )


async def _read(program: str, port: str, readers: int) -> float:
    """Messages a second of all readers together."""
    with tempfile.NamedTemporaryFile() as request:
        request.write(http2_request(EARLIEST))
        request.flush()
        process = await asyncio.create_subprocess_exec(
            *(program, port, str(readers), "1", str(EVENTS), str(WINDOW), request.name, "120"),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    counted = re.match(r"(\d+) msgs [\d.]+ s (\d+) msg/s", out.decode())
    if process.returncode or counted is None or int(counted[1]) < readers * EVENTS:
        message = f"the reader ended with {process.returncode}: {out.decode()}"
        raise SystemExit(message)
    return float(counted[2])


async def _read_in_python(address: str, readers: int) -> float:
    async def one() -> None:
        async with channels.dial(address) as channel:
            call = channel.unary_stream(METHOD)(EARLIEST)
            for _ in range(EVENTS):
                await call.read()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(readers)))
    return readers * EVENTS / (time.perf_counter() - began)


async def fill(address: str) -> None:
    """Append the events that are replayed."""
    async with channels.dial(address) as channel:
        call = channel.stream_stream("/jobledger.v1.Ledger/AppendStream")()
        for start in range(0, EVENTS, 500):
            await call.write(harness.encoded_request([f"job-{start + n}" for n in range(500)]))
            await call.read()
        await call.done_writing()


async def main() -> None:
    """Run and print."""
    print(harness.machine())
    program = os.environ.get("READER")
    async with harness.serving() as service:
        await fill(service.grpc)
        for readers in (1, 4):
            if program:
                rate = await _read(program, service.grpc_port, readers)
            else:
                rate = await _read_in_python(service.grpc, readers)
            how = "" if program else "   (bounded by the Python reader; set READER)"
            print(f"replay of {EVENTS:,} events, {readers} at once {rate:12,.0f} messages/s{how}")
        print(
            f"plain insert on the same server    {await append.plain_inserts(service.postgres):12,.0f} rows/s"
        )


if __name__ == "__main__":
    asyncio.run(main())
