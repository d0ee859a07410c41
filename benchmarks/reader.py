"""Reads streams for less than any server spends on them: counts a mark in what arrives, decodes nothing.

    python benchmarks/reader.py grpc PORT READERS MESSAGES REQUEST [METHOD]     its message, in hexadecimal
    python benchmarks/reader.py nats PORT READERS MESSAGES INBOX

One process, plain sockets. Writes ``open`` once every reader's stream was answered, then, when all have their
messages, the seconds from the first request to the last message. gRPC readers grant all the window that
HTTP/2 has, so that they never make a server wait.
"""

from __future__ import annotations

import resource
import selectors
import socket
import struct
import sys
import time

MARK = b'"server_count"'
"""Once in each event of ``harness.encoded_signal``."""

METHOD = "/job.Job/SubscribeJobSummarySignal"
WINDOW = (1 << 31) - 1
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM = 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Frames:
    """What comes on a connection, cut into the frames of HTTP/2."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of each frame that is whole now."""
        data = self._rest + data
        place, whole = 0, list[tuple[int, int, int, bytes]]()
        while place + 9 <= len(data):
            ends = place + 9 + int.from_bytes(data[place : place + 3], "big")
            if ends > len(data):
                break
            stream = int.from_bytes(data[place + 5 : place + 9], "big")
            whole.append((data[place + 3], data[place + 4], stream, data[place + 9 : ends]))
            place = ends
        self._rest = data[place:]
        return whole


def acknowledgement(kind: int, flags: int, payload: bytes) -> bytes:
    """What a client owes for a frame: to settings and pings an answer, else nothing."""
    if kind not in {SETTINGS, PING} or flags & 1:
        return b""
    return frame(kind, 1, 0, b"" if kind == SETTINGS else payload)


def grpc_opening() -> bytes:
    """A client's first bytes: the preface, and all the window that there is."""
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(SETTINGS, 0, 0, struct.pack(">HIHI", 2, 0, 4, WINDOW))
        + frame(8, 0, 0, struct.pack(">I", WINDOW - 65_535))
    )


def grpc_headers(stream: int, method: str) -> bytes:
    """The start of a call, without compression."""
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    headers = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in named.items()
    )
    return frame(HEADERS, 4, stream, headers)


def grpc_request(message: bytes, method: str = METHOD) -> bytes:
    """A client's first bytes, with one call of one message."""
    data = b"\0" + struct.pack(">I", len(message)) + message
    return grpc_opening() + grpc_headers(1, method) + frame(DATA, 1, 1, data)


class Stream:
    """One connection with one stream, and how many messages came."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(request)
        self.messages = 0
        self.open = self.ended = False
        self.headers = b""
        """The last that came, as encoded."""

        self._tail = b""

    def take(self, data: bytes) -> None:
        """Count the marks in what came, also one that came in two pieces."""
        joined = self._tail + data
        self.messages += joined.count(MARK)
        self._tail = joined[-len(MARK) + 1 :]

    def receive(self) -> None:
        """Take what there is."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit(f"the server closed a stream after {self.messages} messages")
        self.open = True
        self.take(data)


class GrpcStream(Stream):
    """Looks into HTTP/2's frames only as far as it must: a mark may lie across two of them."""

    def __init__(self, port: int, request: bytes) -> None:
        super().__init__(port, request)
        self._frames = Frames()

    def receive(self) -> None:
        """Take the frames that are whole."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit(f"the server closed a stream after {self.messages} messages")
        payloads = list[bytes]()
        for kind, flags, _, payload in self._frames.of(data):
            if kind == DATA:
                payloads.append(payload)
            elif kind == HEADERS:
                self.open, self.ended = True, bool(flags & END_STREAM)
                self.headers = payload
            elif owed := acknowledgement(kind, flags, payload):
                self.socket.sendall(owed)
        self.take(b"".join(payloads))


def main(kind: str, *arguments: str) -> None:
    """Read, and tell."""
    port, readers, messages = map(int, arguments[:3])
    asked = arguments[3:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    began = time.perf_counter()
    if kind == "grpc":
        streams = [
            GrpcStream(port, grpc_request(bytes.fromhex(asked[0]), *asked[1:])) for _ in range(readers)
        ]
    else:
        streams = [Stream(port, nats_request(f"{asked[0]}.{nth}")) for nth in range(readers)]
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.socket, selectors.EVENT_READ, stream)
        waiting, closed = set(streams), set(streams)
        while waiting:
            for key, _ in selector.select():
                stream: Stream = key.data
                stream.receive()
                if stream.open and stream in closed:
                    closed.discard(stream)
                    if not closed:
                        print("open", flush=True)
                if stream.messages >= messages:
                    waiting.discard(stream)
                elif stream.ended:
                    raise SystemExit(f"a stream ended after {stream.messages} messages: {stream.headers!r}")
    print(time.perf_counter() - began, flush=True)


def nats_request(inbox: str) -> bytes:
    """A NATS client's first bytes: all of the stream ``bench``, pushed to an inbox of its own."""
    consumer = (
        '{"stream_name":"bench","config":{"deliver_policy":"all","ack_policy":"none","replay_policy":"instant",'
        f'"deliver_subject":"{inbox}"}}}}'
    ).encode()
    return (
        b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1","protocol":1}\r\n'
        + f"SUB {inbox} 1\r\n".encode()
        + f"PUB $JS.API.CONSUMER.CREATE.bench {inbox}.created {len(consumer)}\r\n".encode()
        + consumer
        + b"\r\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
