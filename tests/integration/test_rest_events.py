"""Server-sent events: from a snapshot or the last id on, live, and what is said when that leads nowhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from uuid import uuid4

import aiohttp
import asyncpg
import pytest

from jobledger.ledger import page
from jobledger.web import events as web_events
from tests.support import events, ledgers, rest
from tests.support.polling import eventually


@dataclass(slots=True)
class Said:
    """One event as a browser takes it apart."""

    kind: str = "message"
    id: str = ""
    data: str = ""
    comments: list[str] = field(default_factory=list[str])

    @property
    def position(self) -> int:
        return json.loads(self.data)["position"]


@dataclass(frozen=True, slots=True)
class Stream:
    """An open stream."""

    response: aiohttp.ClientResponse

    async def block(self) -> Said:
        """The next block, a comment too."""
        said = Said()
        async with asyncio.timeout(10):
            while (line := (await self.response.content.readline()).decode()) != "\n":
                assert line, "the stream ended"
                name, _, value = line.rstrip("\n").partition(": ")
                match name:
                    case "":
                        said.comments.append(value)
                    case "event":
                        said.kind = value
                    case "id":
                        said.id = value
                    case _:
                        said.data = value
        return said

    async def take(self, count: int) -> list[Said]:
        """The next events."""
        taken: list[Said] = []
        while len(taken) < count:
            if (said := await self.block()).data:
                taken.append(said)
        return taken


@contextlib.asynccontextmanager
async def streaming(api: rest.Rest, query: str = "", **headers: str) -> AsyncGenerator[Stream]:
    url = f"http://127.0.0.1:{api.port}/v4/cwai/events{query}"
    async with api.session.get(url, headers=headers) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        yield Stream(response)


async def test_stream_starts_with_a_snapshot_and_goes_on_live(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    receipts = await ledger.receipts(
        events.submission("a"), events.submission("b"), events.submission("a", job_status="running")
    )
    async with streaming(api) as stream:
        first = await stream.take(2)
        later = await ledger.receipts(events.submission("训练", job_name="名\n字"), events.deletion("b"))
        live = await stream.take(2)

    assert [each.position for each in first] == [2, 3]
    assert [each.id for each in first] == [str(receipts[1].uuid), str(receipts[2].uuid)]
    assert [each.id for each in live] == [str(each.uuid) for each in later]
    assert {each.kind for each in first + live} == {"signal"}
    shown = json.loads(live[0].data)
    assert (shown["jobId"], shown["jobName"], shown["operator"]) == ("训练", "名\n字", "add")
    assert shown["HcclJson"] == '{"status":"initializing"}'


async def test_last_event_id_resumes_without_gap_or_repetition(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    receipts = await ledger.receipts(*(events.submission(f"job-{number}") for number in range(200)))
    seen: list[int] = []
    last = ""
    while len(seen) < 200:
        query = "" if last else "?startFrom=earliest"
        async with streaming(api, query, **({"Last-Event-ID": last} if last else {})) as stream:
            for said in await stream.take(min(60, 200 - len(seen))):
                seen.append(said.position)
                last = said.id

    assert seen == list(range(1, 201))
    assert last == str(receipts[-1].uuid)


async def test_last_event_id_may_stand_in_the_query(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    receipts = await ledger.receipts(events.submission("a"), events.submission("b"))

    async with streaming(api, f"?lastEventID={receipts[0].uuid}") as stream:
        assert [each.position for each in await stream.take(1)] == [2]


async def test_unknown_id_is_told_and_a_snapshot_follows_on_the_same_connection(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    [first, second] = await ledger.receipts(events.submission("a"), events.submission("a"))
    for given, reason in ((str(uuid4()), "unknown-uuid"), ("nonsense", "malformed")):
        async with streaming(api, **{"Last-Event-ID": given}) as stream:
            reset, snapshot = await stream.take(2)

        assert (reset.kind, reset.id) == ("reset", "")
        assert json.loads(reset.data) == {"reason": reason, "firstUuid": str(first.uuid)}
        assert (snapshot.kind, snapshot.id) == ("signal", str(second.uuid))


async def test_pruned_id_is_told_with_the_first_one_that_is_kept(
    ledger: ledgers.Ledger, api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    receipts = await ledger.receipts(*(events.submission("a") for _ in range(4)))
    await connection.execute("update ledger_info set floor = 2")

    async with streaming(api, **{"Last-Event-ID": str(receipts[0].uuid)}) as stream:
        [reset] = await stream.take(1)

    assert json.loads(reset.data) == {"reason": "pruned", "firstUuid": str(receipts[2].uuid)}


async def test_silence_is_broken_by_comments_without_an_id(
    api: rest.Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_events, "HEARTBEAT_SECONDS", 0.05)
    async with streaming(api) as stream:
        blocks = [await stream.block() for _ in range(4)]

    assert [block.comments for block in blocks[1:]] == [
        ["caught up at position 0"],
        ["heartbeat at position 0"],
        ["heartbeat at position 0"],
    ]
    assert not [block for block in blocks if block.id or block.data]


async def test_stopping_server_tells_its_streams_at_once(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger) as api, streaming(api) as stream:
        await stream.block()
        stopping = asyncio.create_task(api.server.stop(grace_seconds=10))
        async with asyncio.timeout(8):
            [said] = await stream.take(1)
            await stopping

    assert (said.kind, json.loads(said.data)) == ("end", {"reason": "shutdown"})


async def test_reader_that_leaves_is_forgotten(api: rest.Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_events, "HEARTBEAT_SECONDS", 0.05)
    async with streaming(api) as stream:
        await stream.block()
        assert api.server._events.streams == 1

    async def forgotten() -> None:
        assert api.server._events.streams == 0

    await eventually(forgotten)


async def test_row_that_was_spoiled_is_told_and_can_be_resumed_from(
    ledger: ledgers.Ledger, api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    receipts = await ledger.receipts(events.submission("a"), events.submission("b"))
    await connection.execute("alter table job_events disable trigger all")
    await connection.execute("update job_events set signal = '\\xff' where position = 1")
    ledger.window.clear()
    async with streaming(api, "?startFrom=earliest") as stream:
        skipped, signal = await stream.take(2)
        metrics = (await api.get("/metrics")).body.decode()

    assert (skipped.kind, skipped.id, skipped.position) == ("skipped", str(receipts[0].uuid), 1)
    assert signal.position == 2
    assert f"jobledger_unreadable_rows_total {float(page.Unreadable.rows)}\n" in metrics
    assert page.Unreadable.rows > 0
    assert "jobledger_sse_streams 1.0\n" in metrics


async def test_what_cannot_be_streamed_is_refused_in_the_envelope(api: rest.Rest) -> None:
    assert (
        "allowed are snapshot, earliest, latest"
        in (await api.get("/v4/cwai/events?startFrom=now")).failure[1]
    )
    assert (await api.get("/v4/cwai/events", userID="a")).code == "StatusUnauthorized"
    head = await api.call("HEAD", "/v4/cwai/events")
    assert (head.status, head.body) == (200, b"")
