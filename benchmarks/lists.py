"""Pages of lists of many jobs, as they are and as they were; run by ``rest.py``."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from typing import Final

import harness

CONNECTIONS: Final = 2
ROUNDS: Final = 3
PAGE: Final = 100
REGION: Final = "r"
LARGEST_PAGE: Final = 500

LISTS: Final[tuple[Mapping[str, object], ...]] = (
    {"sort": "created"},
    {"sort": "finished"},
    {"sort": "changed"},
    {"sort": "name"},
    {"status": "Running"},
    {"namespace": "ns-7"},
    {"userID": "user-7"},
    {"accountID": "account-7"},
    {"queueID": "q-7"},
    {"includeDeleted": True},
    {"name": "train-77"},
    {"trainFrame": "none"},
)
"""The first nine are those that have an index; the others are shown beside them."""

WALKED: Final[tuple[Mapping[str, object], ...]] = ({"sort": "created"}, {"queueID": "q-7"})
"""Lists that are walked to their end."""


class Client:
    """Asks on one kept connection, and looks only for an answer's end: cheaper than any server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connected(cls, port: int | str) -> Client:
        """To a server on this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", int(port)))

    async def ask(self, request: bytes) -> bytes:
        """The body that a request is answered with."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        _, _, length = head.partition(b"Content-Length: ")
        return await self._reader.readexactly(int(length.partition(b"\r\n")[0]))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def latencies(port: int | str, request: bytes, seconds: float) -> list[float]:
    """Milliseconds of requests on a few connections."""
    taken: list[float] = []
    ends = time.perf_counter() + seconds

    async def run() -> None:
        client = await Client.connected(port)
        while (began := time.perf_counter()) < ends:
            await client.ask(request)
            taken.append((time.perf_counter() - began) * 1000)
        client.close()

    await asyncio.gather(*(run() for _ in range(CONNECTIONS)))
    return taken


def search(asked: Mapping[str, object], *, headers: str = "Accept-Encoding: gzip\r\n") -> bytes:
    """A request for a page of a list."""
    body = json.dumps({"regionID": REGION, "pageSize": PAGE, **asked}).encode()
    head = f"POST /v4/cwai/job/list HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


async def page(client: Client, asked: Mapping[str, object]) -> dict[str, object]:
    """A page of a list, read."""
    answer = json.loads(await client.ask(search(asked, headers="")))
    return answer.get("returnObj") or {"message": answer["message"]}


async def append(client: Client) -> None:
    """Record an event of another region, so that the next list is counted anew."""
    body = b'{"jobID":"other","regionID":"other"}'
    await client.ask(
        b"POST /v4/cwai/job HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )


async def first_pages(client: Client, asked: Mapping[str, object]) -> float:
    """Milliseconds of a walk's first page, totalCount and all."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        await append(client)
        began = time.perf_counter()
        await page(client, asked)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


async def last_cursor(client: Client, asked: Mapping[str, object]) -> str:
    """The cursor of a list's last page of the usual size, found by walking to it with the largest ones."""
    found = await page(client, asked)
    total, cursor, passed = int(str(found["totalCount"])), str(found["cursor"]), PAGE
    while total - passed > PAGE:
        size = min(LARGEST_PAGE, total - passed - PAGE)
        found = await page(client, {**asked, "pageSize": size, "cursor": cursor})
        cursor, passed = str(found["cursor"]), passed + size
    return cursor


async def present(http: int | str, seconds: float) -> None:
    """Pages of a list, and its last one."""
    client = await Client.connected(http)
    for asked in LISTS:
        found = await page(client, asked)
        if "message" in found:
            print(f"| {asked} | {found['message']} | | |")
            continue
        counted = await first_pages(client, asked)
        taken = await latencies(http, search(asked), seconds)
        p50, p99 = harness.percentile(taken, 50), harness.percentile(taken, 99)
        print(f"| {asked} | {counted:.0f} ms | {p50:.1f} ms | {p99:.1f} ms |")
    print("\n| the last page by cursor | p50 | p99 | of the first |\n|---|---|---|---|")
    for asked in WALKED:
        cursor = await last_cursor(client, asked)
        first = await latencies(http, search(asked), seconds)
        last = await latencies(http, search({**asked, "cursor": cursor}), seconds)
        p50, p99 = harness.percentile(last, 50), harness.percentile(last, 99)
        print(f"| {asked} | {p50:.1f} ms | {p99:.1f} ms | {p50 / harness.percentile(first, 50):.2f} |")
    client.close()


async def past(http: int | str, jobs: int, seconds: float) -> None:
    """A list and a job as they were."""
    client = await Client.connected(http)
    print("\n| as of | first | p50 | p99 |\n|---|---|---|---|")
    for at in (jobs - 1000, jobs // 2):
        began = time.perf_counter()
        await page(client, {"asOf": str(at)})
        print(f"| list, {at} | {(time.perf_counter() - began) * 1000:.0f} ms | | |")
    target = f"/v4/cwai/job/job-00000007?regionID={REGION}&asOf={jobs // 2}"
    taken = await latencies(http, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), seconds)
    p50, p99 = harness.percentile(taken, 50), harness.percentile(taken, 99)
    print(f"| job, {jobs // 2} | | {p50:.1f} ms | {p99:.1f} ms |")
    client.close()
