"""The REST edge on a test's ledger, a client that takes every answer apart, and one that sends raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import yarl
from aiohttp import web

from jobledger.ledger import appender, subscription
from jobledger.model.principal import Principal, Scope
from jobledger.store import engine
from jobledger.web import server
from tests.support import ledgers

REGION = "region-1"
EXAMPLE = Path(__file__).parent.parent / "data" / "cwai-job-running.json"
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
"""A DSN at which no server is."""


def example() -> dict[str, Any]:
    """The CWAI document's own example of a job, fresh."""
    return json.loads(EXAMPLE.read_text())["returnObj"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def object(self) -> dict[str, Any]:
        """The returnObj of a success."""
        envelope = self.envelope
        assert self.status == 200, self
        assert set(envelope) == {"statusCode", "returnObj"}, envelope
        assert envelope["statusCode"] == 800
        return envelope["returnObj"]

    @property
    def failure(self) -> tuple[str, str]:
        """The errorCode, without its prefix, and message of a failure."""
        envelope = self.envelope
        assert self.status == 200, self
        assert self.headers["Content-Type"] == "application/json; charset=utf-8"
        assert set(envelope) == {"statusCode", "errorCode", "message"}, envelope
        assert envelope["statusCode"] == 900
        prefix, _, word = envelope["errorCode"].rpartition(".")
        assert prefix == "Cwai.Api"
        return word, envelope["message"]

    @property
    def code(self) -> str:
        """The errorCode of a failure, without its prefix."""
        return self.failure[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A running REST server and a client of it."""

    server: server.WebServer
    port: int
    session: aiohttp.ClientSession

    async def call(self, method: str, target: str, **options: Any) -> Answer:
        """Send the target as it is, without any re-encoding."""
        url = yarl.URL(f"http://127.0.0.1:{self.port}{target}", encoded=True)
        async with self.session.request(method, url, **options) as response:
            return Answer(status=response.status, headers=response.headers, body=await response.read())

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.call("GET", target, headers=headers)

    async def job(self, job_id: str = "job-1", region: str = REGION, **headers: str) -> Answer:
        """The job, asked for by query, where any id can be said."""
        query = yarl.URL.build(query={"jobID": job_id, "regionID": region}).raw_query_string
        return await self.get(f"/v4/cwai/job?{query}", **headers)

    async def post(self, body: Mapping[str, Any], query: str = "", **headers: str) -> Answer:
        """Post a job; jobID and regionID have defaults."""
        whole = {"jobID": "job-1", "regionID": REGION, **body}
        data = io.BytesIO(json.dumps(whole).encode())
        labelled = {"Content-Type": "application/json", **headers}
        return await self.call("POST", f"/v4/cwai/job{query}", data=data, headers=labelled)

    async def delete(
        self, job_id: str = "job-1", region: str = REGION, query: str = "", **headers: str
    ) -> Answer:
        return await self.call("DELETE", f"/v4/cwai/job/{job_id}?regionID={region}{query}", headers=headers)

    async def raw(self, data: bytes, *, end: bool = False) -> bytes:
        """Everything that comes back for these bytes until the server ends the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()

    async def raw_get(self, target: bytes, *headers: bytes) -> Answer:
        """A GET of bytes that no client library would send."""
        lines = [b"GET " + target + b" HTTP/1.1", b"Host: test", b"Connection: close", *headers]
        return parsed(await self.raw(b"\r\n".join([*lines, b"", b""])))


def parsed(response: bytes) -> Answer:
    """The one answer that these bytes hold."""
    head, _, body = response.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(body) == int(headers["Content-Length"]), response
    return Answer(status=int(status_line.split()[1]), headers=headers, body=body)


@dataclass(slots=True)
class Callers:
    """Who may do what, as tests wish it."""

    scopes: frozenset[Scope] = field(default_factory=lambda: frozenset(Scope))

    def identify(self, request: web.BaseRequest) -> Principal:
        return Principal(publisher=f"anonymous@{request.remote}", scopes=self.scopes)


@contextlib.asynccontextmanager
async def serving(
    ledger: ledgers.Ledger,
    *,
    appending: appender.Appender | None = None,
    pool: engine.ReadPool | None = None,
    scopes: frozenset[Scope] = frozenset(Scope),
    zone: str = "Asia/Shanghai",
    request_limit_bytes: int = 16 << 20,
    cors_origins: tuple[str, ...] = (),
) -> AsyncGenerator[Rest]:
    """A REST server for as long as the block lasts."""
    running = server.WebServer(
        appender=appending or ledger.appender,
        pool=pool or ledger.pool,
        tail=ledger.tail,
        identify=Callers(scopes).identify,
        zone=ZoneInfo(zone),
        request_limit_bytes=request_limit_bytes,
        reader=subscription.Reader(tail=ledger.tail, window=ledger.window, pages=ledger.pages),
        starts=ledger.starts,
        cors_origins=cors_origins,
        grpc_streams=lambda: 0,
        hears=lambda: True,
    )
    port = await running.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Rest(server=running, port=port, session=session)
    finally:
        await running.stop(grace_seconds=2)
