"""What comes back for bytes that no well-behaved client sends: always one envelope, never silence or 500."""

from __future__ import annotations

import asyncio
import logging
import random

import asyncpg
import pytest

from jobledger.web import body
from tests.support import events, ledgers, rest
from tests.support.polling import eventually

REGION = b"regionID=region-1"
POST = b"POST /v4/cwai/job?regionID=region-1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


async def somebody_waits(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """A lock that this connection holds is being waited for."""
    assert await connection.fetchval("select count(*) from pg_locks where not granted") > 0


def error_lines(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR]


SEGMENTS = [
    (b"%00", "BadRequest"),
    (b"a%00b", "BadRequest"),
    (b"a%0D%0Ab", "BadRequest"),
    (b"%7F", "BadRequest"),
    (b"%C2%80", "BadRequest"),
    (b"%FF", "BadRequest"),
    (b"%ED%A0%80", "BadRequest"),
    (b"%C0%AF", "BadRequest"),
    (b"%e8%ae", "BadRequest"),
    (b"%", "NotFound"),
    (b"%zz", "NotFound"),
    (b"%25FF", "NotFound"),
    (b"%2F", "NotFound"),
    (b"%2e%2e", "NotFound"),
    (b"..", "NotFound"),
    (b".", "NotFound"),
    (b"../job", "NotFound"),
    (b"a/b", "NotFound"),
    (b"a/", "NotFound"),
    (b"a//", "NotFound"),
    (b"%E8%AE%AD%E7%BB%83", "NotFound"),
    (b"\xe8\xae\xad", "BadRequest"),
    (b"\xff", "BadRequest"),
    (b"a\x00b", "BadRequest"),
    (b"a b", "BadRequest"),
    (b'{a}|^`"<>\\', "NotFound"),
    (b"jobID=", "BadRequest"),
    (b"jobID=jobID=", "NotFound"),
    (b"", "BadRequest"),
    (b"x" * 257, "BadRequest"),
    (b"x" * 8000, "BadRequest"),
    (b"x" * 8192, "BadRequest"),
    (b"%F0%A0%AE%B7" * 256, "NotFound"),
    (b"x" * 200_000, "BadRequest"),
]


async def test_any_id_in_the_path_is_answered_in_the_envelope(
    api: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    answered = [
        (segment, (await api.raw_get(b"/v4/cwai/job/" + segment + b"?" + REGION)).code)
        for segment, _ in SEGMENTS
    ]

    assert answered == SEGMENTS
    assert not error_lines(caplog.records)


@pytest.mark.parametrize("query", [b"asOf=1&", b"includeDeleted=true&"])
async def test_any_id_in_the_path_of_a_history_or_of_the_past_is_answered_in_the_envelope(
    api: rest.Rest, ledger: ledgers.Ledger, caplog: pytest.LogCaptureFixture, query: bytes
) -> None:
    await ledger.receipts(events.submission("another"))
    for segment, code in SEGMENTS:
        past = await api.raw_get(b"/v4/cwai/job/" + segment + b"?" + query + REGION)
        assert past.code == code, segment
        history = await api.raw_get(b"/v4/cwai/job/" + segment + b"/events?" + REGION)
        assert history.code in {"BadRequest", "NotFound"}, segment
    assert not error_lines(caplog.records)


QUERIES = [
    (b"jobID=%00", "BadRequest"),
    (b"jobID=%FF", "BadRequest"),
    (b"other=%FF", "BadRequest"),
    (b"%FF=other", "BadRequest"),
    (b"jobID=\xe8\xae\xad", "BadRequest"),
    (b"jobID=%E8%AE%AD", "NotFound"),
    (b"jobID=a+b&&&=", "NotFound"),
    (b"jobID=%zz", "NotFound"),
    (b"jobID=a;regionID=b", "NotFound"),
    (b"jobID=" + b"x" * 8000, "BadRequest"),
    (b"jobID=" + b"x" * 9000, "BadRequest"),
]


async def test_any_query_is_answered_in_the_envelope(
    api: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    asked = b"/v4/cwai/job?" + REGION + b"&"
    answered = [(query, (await api.raw_get(asked + query)).code) for query, _ in QUERIES]

    assert answered == QUERIES
    assert (await api.raw_get(b"/v4/cwai/job/a?regionID=%00")).code == "BadRequest"
    assert not error_lines(caplog.records)


HEADERS = [
    ("regionID: 训练".encode(), "NotFound"),
    (b"regionID: \xff", "BadRequest"),
    (b"regionID: a\x00b", "BadRequest"),
    (b"regionID: region-1\r\nuserID: \xff", "BadRequest"),
    (b"no colon", "BadRequest"),
    (b": no name", "BadRequest"),
    (b"X: " + b"x" * 9000, "BadRequest"),
    (b"\r\n".join(b"X-%d: x" % number for number in range(200)), "BadRequest"),
    (b"Host: another", "BadRequest"),
    (b"Content-Length: 5\r\nContent-Length: 6", "BadRequest"),
    (b"Content-Length: -1", "BadRequest"),
    (b"Transfer-Encoding: nonsense", "BadRequest"),
    (b"Expect: nonsense\r\nregionID: region-1", "NotFound"),
    (b"Upgrade: websocket\r\nregionID: region-1", "NotFound"),
]


async def test_any_header_is_answered_in_the_envelope(
    api: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    answered = [(header, (await api.raw_get(b"/v4/cwai/job/job-1", header)).code) for header, _ in HEADERS]

    assert answered == HEADERS
    assert not error_lines(caplog.records)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v4",
        "/v4/cwai/job/a/events/x",
        "/v4/cwai/job/a/",
        "//v4/cwai/job",
        "/favicon.ico",
        "/healthz/",
        "/%",
    ],
)
async def test_unknown_path_is_not_found(api: rest.Rest, path: str) -> None:
    code, message = (await api.raw_get(path.encode())).failure

    assert code == "NotFound"
    assert path in message


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v4/cwai/job"),
        ("PATCH", "/v4/cwai/job/job-1"),
        ("POST", "/v4/cwai/job/job-1"),
        ("TRACE", "/v4/cwai/job"),
        ("POST", "/healthz"),
        ("DELETE", "/readyz"),
    ],
)
async def test_wrong_method_is_a_bad_request_that_names_the_right_ones(
    api: rest.Rest, method: str, path: str
) -> None:
    code, message = (await api.call(method, path)).failure

    assert code == "BadRequest"
    assert "use GET" in message


@pytest.mark.parametrize(
    "data",
    [
        b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x00\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_a_bad_request_and_ends_the_connection(
    api: rest.Rest, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    assert rest.parsed(await api.raw(data)).code == "BadRequest"
    assert not error_lines(caplog.records)


async def test_no_tunnel_is_opened(api: rest.Rest) -> None:
    answer = rest.parsed(await api.raw(b"CONNECT elsewhere:1 HTTP/1.1\r\nHost: x\r\n\r\n"))

    assert answer.status == 404
    assert answer.envelope["errorCode"] == "Cwai.Api.NotFound"


async def test_request_for_a_whole_url_is_answered(api: rest.Rest) -> None:
    await api.post({})

    answer = await api.raw_get(b"http://elsewhere:1/v4/cwai/job/job-1?" + REGION)

    assert answer.object["jobID"] == "job-1"


async def test_refusal_by_the_parser_shows_nothing_of_the_request(
    api: rest.Rest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = f"canary{random.getrandbits(64):x}"

    answer = await api.raw_get(b"/", f"Authorization: {canary}\x01".encode())

    assert answer.code == "BadRequest"
    assert canary not in answer.failure[1] + caplog.text


# Bodies


@pytest.mark.parametrize("broken", [b"zz\r\n", b"2\r\n{}XX", b"0\r\nbad trailer\r\n\r\n", b"-1\r\n"])
async def test_broken_chunk_is_refused_at_once_whenever_it_comes(
    api: rest.Rest, caplog: pytest.LogCaptureFixture, broken: bytes
) -> None:
    at_once = await api.raw(CHUNKED + b"2\r\n{}\r\n" + broken)

    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(CHUNKED + b"2\r\n{}\r\n")
    await api.get("/healthz")  # by now the first bytes have been read
    writer.write(broken)
    async with asyncio.timeout(body.IDLE_SECONDS / 2):
        later = await reader.read()
    writer.close()

    assert [rest.parsed(each).code for each in (at_once, later)] == ["BadRequest", "BadRequest"]
    assert not error_lines(caplog.records)


async def test_broken_chunk_of_a_request_that_has_to_wait_is_refused_at_once(
    api: rest.Rest, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with connection.transaction():
        await connection.execute("lock table jobs in access exclusive mode")
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"GET /v4/cwai/job/a?regionID=a HTTP/1.1\r\nHost: x\r\n\r\n" + CHUNKED)
        await eventually(lambda: somebody_waits(connection))
        writer.write(b"zz\r\n")
        await api.get("/healthz")
    async with asyncio.timeout(body.IDLE_SECONDS / 2):
        answers = await reader.read()
    writer.close()

    assert answers.count(b"HTTP/1.") == 2
    assert answers.index(b"Cwai.Api.NotFound") < answers.index(b"Cwai.Api.BadRequest")


async def test_body_that_stops_coming_is_refused(api: rest.Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "IDLE_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(POST + b"Connection: close\r\nContent-Length: 10\r\n\r\n{")

    head = await reader.readuntil(b"\r\n\r\n")
    answer = await reader.read(1000)
    writer.close()

    assert head.startswith(b"HTTP/1.1 200")
    assert b"nothing more of the body came" in answer


async def test_body_without_a_length_is_refused_where_it_passes_the_limit(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, request_limit_bytes=1000) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(CHUNKED + b"3e9\r\n" + b" " * 1001 + b"\r\n")

        answer = await reader.readuntil(b"}")
        writer.close()

    assert b"the limit is 1000 bytes" in answer


async def test_client_that_asks_whether_to_send_its_body_is_told(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, request_limit_bytes=1000) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"jobID":"job"}')
        assert b'"position":1' in await reader.readuntil(b"}}")
        writer.close()

        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_client_that_goes_in_the_middle_of_its_body_is_no_error(
    api: rest.Rest, caplog: pytest.LogCaptureFixture, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    caplog.set_level(logging.DEBUG)
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(POST + b'Content-Length: 100\r\n\r\n{"jobID":')
        await writer.drain()
        writer.transport.abort()

    assert (await api.post({})).object["position"] == 1
    assert await connection.fetchval("select count(*) from job_events") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_client_that_goes_in_the_middle_of_an_append_leaves_a_whole_event_or_none(
    api: rest.Rest, caplog: pytest.LogCaptureFixture, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    caplog.set_level(logging.DEBUG)
    for number in range(60):
        _, writer = await asyncio.open_connection("127.0.0.1", api.port)
        data = f'{{"jobID":"job-{number}","comment":"said"}}'.encode()
        writer.write(POST + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        for _ in range(number):
            await asyncio.sleep(0)  # one step of the server, which runs in this loop
        writer.transport.abort()

    async def head_is_still() -> int:
        head = await connection.fetchval("select count(*) from job_events")
        await api.get("/healthz")
        assert await connection.fetchval("select count(*) from job_events") == head > 0
        return head

    last = (await api.post({"jobID": "last"})).object["position"]
    await eventually(head_is_still)
    rows = await connection.fetch(
        "select position, jobs.last_position from job_events left join jobs using (job_id) order by position"
    )
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["position"] == row["last_position"] for row in rows)
    assert last <= len(rows)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# Connections


async def test_connection_serves_request_after_request_also_after_failures(api: rest.Rest) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for target in (b"/nowhere", b"/v4/cwai/job", b"/v4/cwai/job/%FF", b"/healthz"):
        writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.readuntil(b"}")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"Connection: close" not in answer
    writer.close()


async def test_stopping_server_answers_what_it_has_read_and_ends_idle_connections(
    ledger: ledgers.Ledger, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with rest.serving(ledger) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", api.port)
        async with connection.transaction():
            await connection.execute("lock table job_events in access exclusive mode")
            writer.write(POST + b'Content-Length: 15\r\n\r\n{"jobID":"job"}')
            await eventually(lambda: somebody_waits(connection))
            stopping = asyncio.create_task(api.server.stop(grace_seconds=10))
            assert await idle_reader.read() == b""
        answer = await reader.read()
        await stopping
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", api.port)
        writer.close()
        idle_writer.close()

    assert b'"position":1' in answer
    assert b"Connection: close" in answer


async def test_stopping_server_does_not_wait_beyond_its_grace(
    ledger: ledgers.Ledger, connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    async with rest.serving(ledger) as api:
        async with connection.transaction():
            await connection.execute("lock table jobs in access exclusive mode")
            asked = asyncio.create_task(api.raw(b"GET /v4/cwai/job/a?regionID=a HTTP/1.1\r\nHost: x\r\n\r\n"))
            await eventually(lambda: somebody_waits(connection))
            async with asyncio.timeout(20):
                await api.server.stop(grace_seconds=0.5)
        assert await asked == b""
