"""jobledger.v1.Ledger with its generated client: receipts, and a stream that is never silent for long."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, TypeAlias, cast

import asyncpg
import betterproto2
import grpc
import grpc.aio
import grpclib
import pytest
from grpclib.client import Channel
from grpclib.const import Status

from jobledger import app
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1
from tests.support import events, services

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@contextlib.asynccontextmanager
async def stub(service: app.Service) -> AsyncGenerator[v1.LedgerStub]:
    channel = Channel("127.0.0.1", service.grpc_port)
    try:
        yield v1.LedgerStub(channel)
    finally:
        channel.close()


@pytest.fixture
async def ledger(service: app.Service) -> AsyncIterator[v1.LedgerStub]:
    async with stub(service) as client:
        yield client


def event(job_id: str = "job-1", **fields: Any) -> v1.Event:
    given: dict[str, Any] = {"job_status": "pending", "operator": "add", "job_name": "train"} | fields
    return v1.Event(signal=pb_job.JobSummarySignal(job_id=job_id, **given))


@contextlib.asynccontextmanager
async def subscribed(
    client: v1.LedgerStub, **request: Any
) -> AsyncGenerator[AsyncGenerator[v1.SubscribeResponse]]:
    """A stream for as long as the block lasts."""
    # The generated signature says iterator; it is a generator, and must be closed.
    stream = cast("AsyncGenerator[v1.SubscribeResponse]", client.subscribe(v1.SubscribeRequest(**request)))
    async with contextlib.aclosing(stream):
        yield stream


async def read(stream: AsyncGenerator[v1.SubscribeResponse], count: int) -> list[tuple[str, Any]]:
    """The next messages of a stream, each with its kind."""
    return [betterproto2.which_one_of(await anext(stream), "message") for _ in range(count)]


async def test_append_gives_a_receipt_or_an_error_in_the_events_order(ledger: v1.LedgerStub) -> None:
    good = event("a", uuid="6BA7B810-9DAD-11D1-80B4-00C04FD430C8")

    answer = await ledger.append(v1.AppendRequest(events=[good, event(""), event("c"), good]))

    first, refused, third, again = answer.receipts
    assert (first.uuid, first.position, first.duplicate) == ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 1, False)
    assert refused.error is not None
    assert (refused.position, refused.error.code, refused.error.field) == (0, "invalid", "signal.jobId")
    assert third.position == 2
    assert (again.position, again.duplicate) == (1, True)


async def raw_append(service: app.Service, request: bytes) -> v1.AppendResponse:
    """An Append whose bytes no well-behaved client would send."""
    async with grpc.aio.insecure_channel(services.grpc_address(service)) as channel:
        call = cast("Any", channel.unary_unary)("/jobledger.v1.Ledger/Append")
        return v1.AppendResponse.parse(await call(request))


async def test_text_that_is_not_utf8_is_refused_alone(service: app.Service) -> None:
    request = bytes(v1.AppendRequest(events=[event("a"), event("b", namespace="xxxx"), event("c")]))

    answer = await raw_append(service, request.replace(b"xxxx", b"\xff\xfe\xff\xfe"))

    assert [receipt.position for receipt in answer.receipts] == [1, 0, 2]
    error = answer.receipts[1].error
    assert error is not None
    assert error.field == "signal.namespace"
    assert "UTF-8" in error.reason


SPOILED: tuple[tuple[str, str, str], ...] = (
    ('{"a\\u0000":1}', "", "signal.HcclJson, in a key"),
    ('{"a":{"\\ud800":1}}', "", "signal.HcclJson"),
    ("", '{"pods":[{"yaml":{"a\\u0000":1}}]}', "detail.pods[0].yaml, in a key"),
    ("", '{"comment":"\\ud800"}', "detail.comment"),
    ("", '{"nmae":"x"}', "detail.nmae"),
    ("", "{", "detail"),
)
"""HcclJson, detail, and the field at fault."""


async def test_bad_rank_table_or_detail_is_refused_alone(ledger: v1.LedgerStub) -> None:
    sent = [event("first")]
    for number, (hccl_json, detail, _) in enumerate(SPOILED):
        spoiled = event(f"spoiled-{number}", hccl_json=hccl_json)
        sent += [v1.Event(signal=spoiled.signal, detail=detail), event(f"next-{number}")]

    answer = await ledger.append(v1.AppendRequest(events=sent))

    refused = [each.error for each in answer.receipts if each.error is not None]
    assert [each.field for each in refused] == [field for _, _, field in SPOILED]
    assert [each.position for each in answer.receipts[::2]] == list(range(1, len(SPOILED) + 2))
    assert [each.position for each in answer.receipts[1::2]] == [0] * len(SPOILED)


async def test_request_that_is_none_is_invalid(service: app.Service) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await raw_append(service, b"\x0a\x7f")

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_append_stream_answers_each_request_in_order(ledger: v1.LedgerStub) -> None:
    async def requests() -> AsyncIterator[v1.AppendRequest]:
        for n in range(20):
            yield v1.AppendRequest(events=[event(f"a-{n}"), event(f"b-{n}")])

    positions = [
        receipt.position async for answer in ledger.append_stream(requests()) for receipt in answer.receipts
    ]

    assert positions == list(range(1, 41))


async def test_publisher_is_recorded_by_its_address(ledger: v1.LedgerStub, connection: Connection) -> None:
    await ledger.append(v1.AppendRequest(events=[event()]))

    assert await connection.fetchval("select publisher from job_events") == "anonymous@127.0.0.1"


async def test_detail_and_identity_come_with_the_event(ledger: v1.LedgerStub, connection: Connection) -> None:
    given = event()
    given.detail = '{"regionID":"east","comment":"c","output":{"accessKeySecret":"s3cr3t"}}'
    given.user_id = "u"

    await ledger.append(v1.AppendRequest(events=[given]))

    row = await connection.fetchrow("select region, user_id, detail from job_events")
    assert row is not None
    assert (row["region"], row["user_id"]) == ("east", "u")
    assert row["detail"] == '{"comment":"c","output":{"accessKeySecret":"******"}}'


async def test_subscribe_marks_where_it_caught_up(ledger: v1.LedgerStub, service: app.Service) -> None:
    await services.publish(service, events.submission("a"), events.submission("b"))

    async with subscribed(ledger, start_from=pb_job.StartFrom.EARLIEST) as stream:
        before = await read(stream, 3)
        await services.publish(service, events.submission("c"))
        after = await read(stream, 1)

    assert [kind for kind, _ in before] == ["event", "event", "caught_up"]
    assert before[2][1].position == 2
    assert [(kind, message.job_id, message.position) for kind, message in after] == [("event", "c", 3)]


async def test_quiet_stream_beats_with_a_cursor_even_when_its_filter_lets_nothing_through(
    database: str,
) -> None:
    async with services.running(database, heartbeat_seconds=0.3) as service, stub(service) as client:
        wanted = pb_job.SignalFilter(namespace=["none"])
        async with subscribed(client, filter=wanted) as stream:
            [(first, _)] = await read(stream, 1)
            [receipt] = await services.publish(service, events.submission("a"))
            while True:
                [(kind, beat)] = await read(stream, 1)
                assert kind == "heartbeat"
                if beat.position:
                    break

    assert first == "caught_up"
    assert (beat.position, beat.uuid, beat.head) == (1, str(receipt.uuid), 1)


async def test_event_that_cannot_be_read_is_named(database: str, connection: Connection) -> None:
    async with services.running(database) as service:
        receipts = await services.publish(service, *(events.submission(f"job-{n}") for n in range(3)))
    await connection.execute("alter table job_events disable trigger user")
    await connection.execute("update job_events set signal = '\\x12ff'::bytea where position = 2")

    async with (
        services.running(database) as service,
        stub(service) as client,
        subscribed(client, start_from=pb_job.StartFrom.EARLIEST) as stream,
    ):
        messages = await read(stream, 3)

    assert [kind for kind, _ in messages] == ["event", "skipped", "event"]
    assert (messages[1][1].position, messages[1][1].uuid) == (2, str(receipts[1].uuid))


@pytest.mark.parametrize(
    "spoilt",
    [
        "signal = '\\\\x12ff'",
        "recorded_at = '4713-01-01 BC'",
        "recorded_at = 'infinity'",
        "recorded_at = '-infinity'",
        "recorded_at = '294276-12-31'",
        "signal = '\\\\x12ff', recorded_at = 'infinity', size = 2147483647, hccl = '}'",
    ],
)
async def test_row_spoiled_before_the_tail_reads_it_is_named_to_who_follows_live(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture, spoilt: str
) -> None:
    async with (
        services.running(database) as service,
        services.running(database) as other,
        stub(service) as client,
        subscribed(client) as stream,
    ):
        [(first, _)] = await read(stream, 1)
        async with every_connection(service):
            receipts = await services.publish(other, *(events.submission(f"job-{n}") for n in range(3)))
            await connection.execute("alter table job_events disable trigger user")
            await connection.execute(f"update job_events set {spoilt} where position = 2")  # noqa: S608
            assert service.tail.head == 0
        live = await read(stream, 3)
        # What comes after it is appended and read as ever.
        await services.publish(service, events.submission("later"))
        live += await read(stream, 1)

    assert first == "caught_up"
    assert [kind for kind, _ in live] == ["event", "skipped", "event", "event"]
    assert (live[1][1].position, live[1][1].uuid) == (2, str(receipts[1].uuid))
    assert "position 2" in caplog.text


@contextlib.asynccontextmanager
async def every_connection(service: app.Service) -> AsyncGenerator[None]:
    """Keep the service from reading: hold all of its pool's connections."""
    async with contextlib.AsyncExitStack() as held:
        pool = service.tail._pool
        for _ in range(pool._size):
            await held.enter_async_context(pool.connection(patience_seconds=30))
        yield


async def test_unknown_cursor_is_refused(ledger: v1.LedgerStub) -> None:
    unknown = v1.SubscribeRequest(after="00000000-0000-0000-0000-00000000000a")

    with pytest.raises(grpclib.GRPCError) as refused:
        await anext(aiter(ledger.subscribe(unknown)))

    assert refused.value.status is Status.NOT_FOUND
