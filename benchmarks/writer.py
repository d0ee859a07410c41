"""Publishes for less than any server spends on it: messages made before, plain sockets, nothing decoded.

    python benchmarks/writer.py PORT CONNECTIONS PUBLISHERS FIRST SECONDS [RATE] < request.bin

Each publisher is a stream of ``AppendStream``; a closed loop sends its next message when the last
one is answered, an open loop sends RATE messages a second in all, whether answered or not. The request holds
digits where :data:`MARK` stands: each message gets its own, from FIRST on, so that no two have the same uuids
and jobs. The clock starts when each publisher has had an answer to a first message, which opens its stream.
Writes all the messages, those since then, the seconds and the milliseconds that each of these took, as JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator

import reader

MARK = b"11111111"
"""Stands once or more in each event of the request, as digits of a uuid and in the job's id."""

METHOD = "/jobledger.v1.Ledger/AppendStream"
FRAME_BYTES = 16_384
"""The largest frame that every server takes."""

START_WINDOW = 65_535
RST_STREAM, GOAWAY, WINDOW_UPDATE = 3, 7, 8
INITIAL_WINDOW_SIZE = 4


class Publisher:
    """One stream: what it may still send, and since when it waits."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.window = START_WINDOW
        self.began = deque[float]()


class Connection:
    """One socket with its streams."""

    def __init__(self, port: int, publishers: int, load: Load) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.publishers = {2 * nth + 1: Publisher(2 * nth + 1) for nth in range(publishers)}
        self._load = load
        self._window = START_WINDOW
        self._waiting = deque[Publisher]()
        self._frames = reader.Frames()
        self.socket.sendall(
            reader.grpc_opening()
            + b"".join(reader.grpc_headers(stream, METHOD) for stream in self.publishers)
        )

    def send(self, publisher: Publisher, due: float) -> None:
        """The next message, now or when the windows allow it; its delay counts from when it was due."""
        publisher.began.append(due)
        self._waiting.append(publisher)
        self._flush()

    def _flush(self) -> None:
        need = self._load.message_bytes
        frames = list[bytes]()
        while self._waiting and self._window >= need and self._waiting[0].window >= need:
            publisher = self._waiting.popleft()
            self._window -= need
            publisher.window -= need
            message = self._load.next_message()
            frames += (
                reader.frame(reader.DATA, 0, publisher.stream, message[at : at + FRAME_BYTES])
                for at in range(0, need, FRAME_BYTES)
            )
        if frames:
            self.socket.sendall(b"".join(frames))

    def receive(self) -> list[Publisher]:
        """The publishers whose message was answered."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise SystemExit("the server closed a connection")
        answered = list[Publisher]()
        for kind, flags, stream, payload in self._frames.of(data):
            if kind == reader.DATA:
                if int.from_bytes(payload[1:5], "big") != len(payload) - 5:
                    raise SystemExit("an answer came in pieces: make the requests smaller")
                answered.append(self.publishers[stream])
            else:
                self._control(kind, flags, stream, payload)
        self._flush()
        return answered

    def _control(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            grown = int.from_bytes(payload, "big")
            if stream:
                self.publishers[stream].window += grown
            else:
                self._window += grown
        elif kind in {RST_STREAM, GOAWAY} or (kind == reader.HEADERS and flags & reader.END_STREAM):
            raise SystemExit(f"the server ended stream {stream}: frame {kind}, {payload!r}")
        elif owed := reader.acknowledgement(kind, flags, payload):
            self.socket.sendall(owed)
            for name, value in struct.iter_unpack(">HI", payload) if kind == reader.SETTINGS else ():
                if name == INITIAL_WINDOW_SIZE:
                    for publisher in self.publishers.values():
                        publisher.window += value - START_WINDOW


class Load:
    """The messages, and what became of them."""

    def __init__(self, request: bytes, first: int) -> None:
        self._first = first
        self._request = b"\0" + struct.pack(">I", len(request)) + request
        self.message_bytes = len(self._request)
        self.sent = 0
        self.delays = list[float]()

    def next_message(self) -> bytes:
        """The request with digits of its own."""
        number = self._first + self.sent
        self.sent += 1
        return self._request.replace(MARK, b"%08d" % number)


class Publishing:
    """All publishers at once."""

    def __init__(self, port: int, connections: int, publishers: int, load: Load) -> None:
        self._load = load
        self._selector = selectors.DefaultSelector()
        self._turns = deque[tuple[Connection, Publisher]]()
        for nth in range(connections):
            opened = Connection(port, publishers // connections + (nth < publishers % connections), load)
            self._selector.register(opened.socket, selectors.EVENT_READ, opened)
            self._turns += ((opened, each) for each in opened.publishers.values())
        self.answers = 0

    def open(self) -> None:
        """Have an answer to a first message of each."""
        for connection, publisher in self._turns:
            connection.send(publisher, time.perf_counter())
        while self.answers < len(self._turns):
            for _, publisher in self._answered(1):
                publisher.began.clear()

    def closed_loop(self, stop_at: float) -> None:
        """Each sends its next message upon an answer."""
        for connection, publisher in self._turns:
            connection.send(publisher, time.perf_counter())
        while self.answers < self._load.sent:
            for connection, publisher in self._told(1):
                if (now := time.perf_counter()) < stop_at:
                    connection.send(publisher, now)

    def open_loop(self, stop_at: float, rate: float) -> None:
        """One after the other sends, whether answered or not."""
        due = time.perf_counter()
        while due < stop_at or self.answers < self._load.sent:
            while due < min(time.perf_counter(), stop_at):
                self._turns[0][0].send(self._turns[0][1], due)
                self._turns.rotate(-1)
                due += 1 / rate
            for _ in self._told(max(due - time.perf_counter(), 0) if due < stop_at else 1):
                pass

    def _told(self, seconds: float) -> Iterator[tuple[Connection, Publisher]]:
        for connection, publisher in self._answered(seconds):
            self._load.delays.append((time.perf_counter() - publisher.began.popleft()) * 1000)
            yield connection, publisher

    def _answered(self, seconds: float) -> Iterator[tuple[Connection, Publisher]]:
        for key, _ in self._selector.select(seconds):
            connection: Connection = key.data
            for publisher in connection.receive():
                self.answers += 1
                yield connection, publisher


def main(
    port: int, connections: int, publishers: int, first: int, *, seconds: float, rate: float = 0
) -> None:
    """Publish, and tell."""
    load = Load(sys.stdin.buffer.read(), first)
    publishing = Publishing(port, min(connections, publishers), publishers, load)
    publishing.open()
    began = time.perf_counter()
    if rate:
        publishing.open_loop(began + seconds, rate)
    else:
        publishing.closed_loop(began + seconds)
    told = {"messages": publishing.answers, "measured": len(load.delays), "delays": load.delays}
    print(json.dumps({**told, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    _, port, connections, publishers, first, seconds, *rate = sys.argv
    main(
        int(port),
        int(connections),
        int(publishers),
        int(first),
        seconds=float(seconds),
        rate=float(rate[0]) if rate else 0,
    )
