"""job.Job's streams as a stock client meets them: start, resume, seam, filters, sizes and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, TypeAlias, cast
from uuid import uuid4

import aiohttp
import asyncpg
import grpc
import grpc.aio
import pytest

from jobledger import app, errors
from jobledger._proto import job as pb_job
from jobledger._proto.jobledger import v1
from jobledger.model import event
from jobledger.store import listener
from tests.support import clusterd, events, polling, services

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def extended(**fields: Any) -> Any:
    """A ClientInfo with our extension fields, which a stock client carries as unknown ones."""
    return clusterd.messages.ClientInfo.FromString(bytes(pb_job.ClientInfo(role="CCAgent", **fields)))


def position(message: Any) -> int:
    """Our position field, read as a regenerated client would."""
    return pb_job.JobSummarySignal.parse(message.SerializeToString()).position


async def test_subscriber_of_an_empty_log_waits_for_the_first_event(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    call = client.stream()
    initial = await clusterd.initial(call)

    await services.publish(service, events.submission())

    assert len(await clusterd.take(call, 1)) == 1
    assert (initial["ledger-head"], initial["start-position"], initial["stream-contiguous"]) == (
        "0",
        "0",
        "true",
    )
    assert len(initial["ledger-epoch"]) == 36


async def test_message_is_what_was_published_with_its_place(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    given = events.submission(
        "训练-𠮷-é-\u202e-🚀", job_status="running", hccl_json=events.rank_table("10.0.0.1")
    )
    [receipt] = await services.publish(service, given)

    [message] = await clusterd.take(client.stream(), 1)

    assert message.uuid == str(receipt.uuid)
    assert (message.jobId, message.jobStatus, message.operator) == (given.signal.job_id, "running", "add")
    assert message.HcclJson == given.signal.hccl_json
    assert position(message) == 1


async def test_snapshot_then_live_without_a_seam(client: clusterd.Subscriber, service: app.Service) -> None:
    receipts = await services.publish(
        service,
        events.submission("job-1"),
        events.submission("job-2"),
        events.submission("job-1", job_status="running"),
        events.submission("gone"),
        events.deletion("gone"),
    )
    call = client.stream()
    initial = await clusterd.initial(call)
    snapshot = await clusterd.take(call, 2)

    await services.publish(service, events.deletion("job-2"))
    [live] = await clusterd.take(call, 1)

    assert [message.uuid for message in snapshot] == [str(receipts[n].uuid) for n in (1, 2)]
    assert [message.operator for message in snapshot] == ["add", "add"]
    assert (live.jobId, live.operator) == ("job-2", "delete")
    assert initial["start-position"] == initial["ledger-head"] == "5"


async def test_snapshot_of_a_job_in_parts_is_each_part_as_it_was_recorded(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    given = [events.part(1, "10.0.0.1"), events.part(0, "10.0.0.2"), events.part(1, "10.0.0.3")]
    receipts = await services.publish(service, *given)

    [batch] = await clusterd.take(client.stream(lists=True), 1)

    parts = batch.jobSummarySignals
    assert [part.uuid for part in parts] == [str(receipt.uuid) for receipt in receipts]
    assert [(part.cmIndex, part.HcclJson) for part in parts] == [
        (each.signal.cm_index, each.signal.hccl_json) for each in given
    ]
    assert batch.JobTotalNum == 1


async def test_live_delivery_and_replay_carry_the_same_bytes(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    live_call = client.stream()
    await clusterd.initial(live_call)
    await services.publish(service, events.submission("a"), events.submission("b"), events.deletion("a"))
    live = await clusterd.take(live_call, 3)

    replay = await clusterd.take(client.stream(start_from="earliest"), 3)

    assert [each.SerializeToString() for each in live] == [each.SerializeToString() for each in replay]


@pytest.mark.parametrize("by", ["metadata", "field"])
async def test_resume_delivers_everything_after_the_last_seen_uuid_deletes_too(
    client: clusterd.Subscriber, service: app.Service, by: str
) -> None:
    receipts = await services.publish(
        service, events.submission("a"), events.submission("b"), events.deletion("a"), events.submission("c")
    )
    seen = str(receipts[0].uuid).upper()

    call = (
        client.stream(last_seen_uuid=seen)
        if by == "metadata"
        else client.stream(info=extended(last_seen_uuid=seen, start_from=pb_job.StartFrom.LATEST))
    )
    messages = await clusterd.take(call, 3)

    assert [position(message) for message in messages] == [2, 3, 4]
    assert (await clusterd.initial(call))["start-position"] == "1"


async def test_resume_from_the_very_last_event_repeats_nothing_over_a_restart(database: str) -> None:
    async with services.running(database) as service:
        [receipt] = await services.publish(service, events.submission("a"))

    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        call = client.stream(last_seen_uuid=str(receipt.uuid))
        await clusterd.initial(call)
        await services.publish(service, events.submission("b"))
        assert [message.jobId for message in await clusterd.take(call, 1)] == ["b"]


@pytest.mark.parametrize(
    ("word", "expected"), [("snapshot", ["b", "c"]), ("earliest", ["a", "a", "b", "c"]), ("latest", ["c"])]
)
async def test_start_from(
    client: clusterd.Subscriber, service: app.Service, word: str, expected: list[str]
) -> None:
    await services.publish(service, events.submission("a"), events.deletion("a"), events.submission("b"))
    by_field = pb_job.StartFrom[word.upper()]

    calls = [client.stream(start_from=word), client.stream(info=extended(start_from=by_field))]
    for call in calls:
        await clusterd.initial(call)
    await services.publish(service, events.submission("c"))

    for call in calls:
        assert [message.jobId for message in await clusterd.take(call, len(expected))] == expected


async def test_wrong_cursors_have_different_documented_answers(
    client: clusterd.Subscriber, service: app.Service, connection: Connection
) -> None:
    receipts = await services.publish(service, *(events.submission(f"job-{n}") for n in range(5)))
    await connection.execute("update ledger_info set floor = 3")
    unknown = str(uuid4())

    malformed = await clusterd.ended(client.stream(last_seen_uuid="12345"))
    missing = await clusterd.ended(client.stream(last_seen_uuid=unknown))
    pruned = await clusterd.ended(client.stream(last_seen_uuid=str(receipts[1].uuid)))
    last_pruned = await clusterd.take(client.stream(last_seen_uuid=str(receipts[2].uuid)), 2)
    empty = await clusterd.take(client.stream(last_seen_uuid=""), 5)
    earliest = await clusterd.take(client.stream(start_from="earliest"), 2)

    assert (malformed.status, malformed.trailers["ledger-reason"]) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "refused",
    )
    assert "'12345' is not a uuid" in malformed.message
    assert (missing.status, missing.trailers["ledger-reason"]) == (grpc.StatusCode.NOT_FOUND, "unknown-uuid")
    assert unknown in missing.message
    assert "backup" in missing.message
    assert (pruned.status, pruned.trailers["ledger-reason"]) == (grpc.StatusCode.OUT_OF_RANGE, "pruned")
    assert str(receipts[3].uuid) in pruned.message
    assert [position(message) for message in last_pruned] == [4, 5]
    assert len(empty) == 5
    assert [position(message) for message in earliest] == [4, 5]


@pytest.mark.parametrize(
    ("metadata", "fields"),
    [
        ({"last_seen_uuid": str(uuid4())}, {"last_seen_uuid": str(uuid4())}),
        ({"start_from": "latest"}, {"start_from": pb_job.StartFrom.EARLIEST}),
        ({"start_from": "yesterday"}, {}),
        ({"ledger_epoch": "a"}, {"ledger_epoch": "b"}),
        ({}, {"start_from": pb_job.StartFrom(9)}),
    ],
)
async def test_contradictions_and_unknown_words_are_invalid(
    client: clusterd.Subscriber, metadata: dict[str, str], fields: dict[str, Any]
) -> None:
    end = await clusterd.ended(client.stream(info=extended(**fields), lists=False, **metadata))

    assert end.status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"namespace": ["a"]}, [1, 3, 4]),
        ({"namespace": ["a", "b"]}, [1, 2, 3, 4, 5]),
        ({"job_id": ["job-2"]}, [2, 5]),
        ({"frame_work": ["mindspore"]}, [2, 5]),
        ({"operator": ["delete"]}, [4, 5]),
        ({"namespace": ["a"], "operator": ["delete"]}, [4]),
        ({"namespace": ["c"]}, [3, 4]),
    ],
)
async def test_filter(
    client: clusterd.Subscriber, service: app.Service, wanted: dict[str, list[str]], expected: list[int]
) -> None:
    await services.publish(
        service,
        events.submission("job-1", namespace="a"),
        events.submission("job-2", namespace="b", framework="mindspore"),
        events.submission("job-1", namespace="c"),  # leaves a
        events.deletion("job-1", namespace="a"),  # leaves c
        events.deletion("job-2"),
    )
    info = extended(start_from=pb_job.StartFrom.EARLIEST, filter=pb_job.SignalFilter(**wanted))

    call = client.stream(info=info)
    initial = await clusterd.initial(call)
    messages = await clusterd.take(call, len(expected))

    assert [position(message) for message in messages] == expected
    assert initial["stream-contiguous"] == "false"


async def test_filtered_snapshot_has_the_jobs_that_pass_and_counts_them(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    await services.publish(
        service,
        events.submission("job-1", namespace="训练-\u00e9"),
        events.submission("job-2", namespace="训练-e\u0301"),  # looks the same
        events.submission("job-3", namespace="训练-\u00e9"),
    )
    info = extended(filter=pb_job.SignalFilter(namespace=["训练-\u00e9"]))

    [batch] = await clusterd.take(client.stream(info=info, lists=True), 1)

    assert [each.jobId for each in batch.jobSummarySignals] == ["job-1", "job-3"]
    assert batch.JobTotalNum == 2


async def test_snapshot_comes_in_batches_under_four_mebibytes(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    table = json.dumps({"status": "complete", "padding": "x" * 300_000})
    await services.publish(service, *(events.submission(f"job-{n}", hccl_json=table) for n in range(30)))

    call = client.stream(lists=True)
    batches: list[Any] = []
    while sum(len(batch.jobSummarySignals) for batch in batches) < 30:
        batches += await clusterd.take(call, 1)
    await services.publish(service, events.submission("live"))
    [live] = await clusterd.take(call, 1)

    assert len(batches) > 1
    assert max(batch.ByteSize() for batch in batches) <= 4_194_304
    assert len({batch.ReportTime for batch in batches}) == 1
    assert len(batches[0].ReportTime) == 13
    assert {batch.JobTotalNum for batch in batches} == {30}
    assert (len(live.jobSummarySignals), live.JobTotalNum) == (1, 1)


async def test_replay_comes_in_lists_of_one_with_the_time_of_recording(
    client: clusterd.Subscriber, service: app.Service, connection: Connection
) -> None:
    await services.publish(service, events.submission("a"), events.submission("b"))

    lists = await clusterd.take(client.stream(lists=True, start_from="earliest"), 2)

    recorded = await connection.fetchval("select min(recorded_at) from job_events")
    assert [(len(each.jobSummarySignals), each.JobTotalNum) for each in lists] == [(1, 1), (1, 1)]
    assert int(lists[0].ReportTime) == int(recorded.timestamp() * 1000)


async def test_batches_hold_no_more_than_forty_thousand_npus(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    devices = [{"device_id": "0"}] * 15_000
    table = json.dumps({"status": "complete", "server_list": [{"device": devices}]})
    await services.publish(service, *(events.submission(f"job-{n}", hccl_json=table) for n in range(3)))

    batches = await clusterd.take(client.stream(lists=True), 2)

    assert [len(batch.jobSummarySignals) for batch in batches] == [2, 1]


@pytest.mark.parametrize("lists", [False, True])
async def test_largest_event_reaches_a_default_client_live_in_replay_and_in_a_snapshot(
    database: str, *, lists: bool
) -> None:
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        live = client.stream(lists=lists)
        await clusterd.initial(live)
        text = '{"x":"%s"}'
        # What the service says of one that is too large tells how large it may be.
        [refused] = await service.appender.append(
            [events.submission("big", hccl_json=text % ("x" * 4_194_304))], events.PUBLISHER
        )
        assert isinstance(refused, errors.EventTooLarge)
        fits = 4_194_304 - (refused.size_bytes - refused.limit_bytes)
        await services.publish(
            service,
            events.submission("small"),
            events.submission("big", hccl_json=text % ("x" * fits)),
            events.submission("other"),
        )
        for call in (live, client.stream(lists=lists), client.stream(lists=lists, start_from="earliest")):
            ids: list[str] = []
            while len(ids) < 3:
                [message] = await clusterd.take(call, 1)
                ids += [each.jobId for each in (message.jobSummarySignals if lists else [message])]
            assert ids == ["small", "big", "other"]


@pytest.mark.parametrize("size", [20_000, 1_000_000, 3_900_000])
async def test_rank_table_of_any_size_arrives_as_it_was_appended(
    client: clusterd.Subscriber, service: app.Service, size: int
) -> None:
    table = events.rank_table("10.0.0.1", devices=8).removesuffix("}") + ',"pad":"%s"}' % ("训" * (size // 3))
    live = [client.stream(lists=lists) for lists in (False, True)]
    for call in live:
        await clusterd.initial(call)

    receipts = await append_by_grpc(
        service,
        pb_job.JobSummarySignal(job_id="large", job_status="running", hccl_json=table, operator="add"),
        pb_job.JobSummarySignal(
            job_id="too-large", job_status="running", hccl_json=table + " " * 4_194_304, operator="add"
        ),
        pb_job.JobSummarySignal(job_id="other", job_status="pending", operator="add"),
    )

    assert [receipt.position for receipt in receipts] == [1, 0, 2]
    refused = receipts[1].error
    assert refused is not None
    assert "4194304" in refused.reason
    later = [
        client.stream(lists=lists, start_from=start)
        for lists in (False, True)
        for start in ("earliest", "snapshot")
    ]
    for call in (*live, *later):
        [message] = await clusterd.take(call, 1)
        [signal, *_] = message.jobSummarySignals if hasattr(message, "jobSummarySignals") else [message]
        assert (signal.jobId, signal.HcclJson == table) == ("large", True)


async def append_by_grpc(service: app.Service, *signals: pb_job.JobSummarySignal) -> Sequence[v1.Receipt]:
    """Append signals as one request, over the wire."""
    async with grpc.aio.insecure_channel(services.grpc_address(service)) as channel:
        request = v1.AppendRequest(events=[v1.Event(signal=signal) for signal in signals])
        call = cast("Any", channel.unary_unary)("/jobledger.v1.Ledger/Append")
        return v1.AppendResponse.parse(await call(bytes(request))).receipts


async def test_disconnect_in_a_snapshot_resumes_from_its_last_uuid_to_the_same_state(
    client: clusterd.Subscriber, service: app.Service, connection: Connection
) -> None:
    await services.publish(service, *(events.submission(f"job-{n}") for n in range(50)))
    state: dict[str, str] = {}
    cut = client.stream()
    for message in await clusterd.take(cut, 20):
        state[message.jobId] = message.jobStatus
        last = message.uuid
    cut.cancel()
    await services.publish(
        service,
        *(events.submission(f"job-{n}", job_status="running") for n in range(0, 50, 3)),
        *(events.deletion(f"job-{n}") for n in range(0, 50, 5)),
    )

    resumed = client.stream(last_seen_uuid=last)  # pyright: ignore[reportPossiblyUnboundVariable]
    for message in await clusterd.take(resumed, 30 + 17 + 10):
        if message.operator == "delete":
            state.pop(message.jobId, None)
        else:
            state[message.jobId] = message.jobStatus

    live = await connection.fetch("select job_id, job_status from jobs where deleted_at is null")
    assert state == {row["job_id"]: row["job_status"] for row in live}


async def test_connection_that_dies_with_undelivered_events_resumes_without_gap_or_repetition(
    service: app.Service,
) -> None:
    positions: list[int] = []
    last = ""
    await services.publish(service, *(events.submission(f"job-{n}") for n in range(200)))
    while len(positions) < 200:
        async with clusterd.subscriber(services.grpc_address(service)) as client:
            call = client.stream(start_from="earliest", last_seen_uuid=last)
            for message in await clusterd.take(call, min(50, 200 - len(positions))):
                positions.append(position(message))
                last = message.uuid

    assert positions == list(range(1, 201))


async def test_unknown_fields_of_a_newer_publisher_survive(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    newer = b"\x82\x01\x05hello"  # field 16
    given = event.Submission(signal=events.signal(unknown=newer))
    await services.publish(service, given)

    [message] = await clusterd.take(client.stream(), 1)

    assert newer in message.SerializeToString()


async def test_spoiled_row_is_left_out_loudly_and_is_still_a_cursor(
    database: str, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with services.running(database) as service:
        receipts = await services.publish(service, *(events.submission(f"job-{n}") for n in range(4)))
    await connection.execute("alter table job_events disable trigger user")
    await connection.execute("update job_events set signal = '\\x12ff'::bytea where position = 2")
    await connection.execute("alter table job_events enable trigger user")

    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        messages = await clusterd.take(client.stream(start_from="earliest"), 3)
        after = await clusterd.take(client.stream(last_seen_uuid=str(receipts[1].uuid)), 2)
        snapshot = await clusterd.take(client.stream(), 3)

    assert [position(message) for message in messages] == [1, 3, 4]
    assert [position(message) for message in after] == [3, 4]
    assert [position(message) for message in snapshot] == [1, 3, 4]
    assert "position 2" in caplog.text


async def test_missing_row_ends_the_stream_with_data_loss_and_turns_readiness_red(
    database: str, connection: Connection
) -> None:
    async with services.running(database) as service:
        await services.publish(service, *(events.submission(f"job-{n}") for n in range(4)))
    await connection.execute("alter table job_events disable trigger user")
    await connection.execute("create temporary table removed as select * from job_events where position = 3")
    await connection.execute("delete from job_events where position = 3")

    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        end = await clusterd.ended(client.stream(start_from="earliest"))
        assert (end.status, end.trailers["ledger-reason"]) == (grpc.StatusCode.DATA_LOSS, "data-loss")
        assert "position 3" in end.message
        assert (await _readiness(service)) == 503

        await connection.execute("insert into job_events select * from removed")

        async def healed() -> None:
            assert await _readiness(service) == 200

        await polling.eventually(healed)
        assert len(await clusterd.take(client.stream(start_from="earliest"), 4)) == 4


async def _readiness(service: app.Service) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{service.http_port}/readyz") as answer,
    ):
        return answer.status


async def test_listen_backend_alone_is_terminated_and_events_still_come(
    database: str, connection: Connection
) -> None:
    async with (
        services.running(database) as writer,
        services.running(database) as reader,
        clusterd.subscriber(services.grpc_address(reader)) as client,
    ):
        call = client.stream()
        await clusterd.initial(call)
        await polling.eventually(lambda: _terminate_listeners(connection))
        await services.publish(writer, events.submission("a"))
        async with asyncio.timeout(20):
            assert [message.jobId for message in await clusterd.take(call, 1)] == ["a"]
        await polling.eventually(lambda: _terminate_listeners(connection))
        await services.publish(writer, events.submission("b"))
        async with asyncio.timeout(20):
            assert [message.jobId for message in await clusterd.take(call, 1)] == ["b"]


MIXED = (
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "00000000-0000-0000-0000-000000000000",
    "01890a5d-0000-774b-bcce-b302099a8057",
    "5b9a1c1e-11d1-11ee-be56-0242ac120002",
    "7d9f7a3e-56d0-4f8c-8a39-4d3f5b1c0001",
)
"""Of versions 7, 1 and 4, the nil and the largest one, neither ascending nor descending in any reading."""


async def test_uuids_of_all_versions_are_streamed_and_resumed_by_position_alone(
    service: app.Service, client: clusterd.Subscriber
) -> None:
    for nth, uuid in enumerate(MIXED):
        await services.publish(service, events.submission(f"job-{nth}", uuid=uuid))

    for nth, after in enumerate(("", *MIXED[:-1])):
        where: dict[str, Any] = {"last_seen_uuid": after} if after else {"start_from": "earliest"}
        call = client.stream(**where)
        received = await clusterd.take(call, len(MIXED) - nth)
        call.cancel()

        assert [message.uuid for message in received] == list(MIXED[nth:])


async def test_events_come_within_the_poll_while_the_listener_cannot_connect_again(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = listener.Listener._listen
    may_connect = asyncio.Event()
    may_connect.set()
    held: set[listener.Listener] = set()

    async def listens(self: listener.Listener) -> None:
        held.add(self)
        await may_connect.wait()
        held.discard(self)
        await listen(self)

    async def both_are_held() -> None:
        assert len(held) == 2

    monkeypatch.setattr(listener.Listener, "_listen", listens)
    async with (
        services.running(database) as writer,
        services.running(database) as reader,
        clusterd.subscriber(services.grpc_address(reader)) as client,
        asyncio.timeout(60),
    ):
        call = client.stream()
        await clusterd.initial(call)
        may_connect.clear()
        await polling.eventually(lambda: _terminate_listeners(connection))
        await polling.eventually(both_are_held)
        await services.publish(writer, events.submission("a"))
        assert [message.jobId for message in await clusterd.take(call, 1)] == ["a"]
        assert len(held) == 2
        may_connect.set()
        await polling.eventually(lambda: _listens(connection, 2))
        await services.publish(writer, events.submission("b"))
        assert [message.jobId for message in await clusterd.take(call, 1)] == ["b"]


async def _listens(connection: Connection, count: int) -> None:
    listening = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'"
    )
    assert listening == count


async def _terminate_listeners(connection: Connection) -> None:
    ended = await connection.fetchval(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and query ilike 'listen %'"
    )
    assert ended == 2


async def test_shutdown_gives_every_open_stream_its_status_within_the_grace_time(database: str) -> None:
    async with services.running(database) as service:
        [receipt] = await services.publish(service, events.submission())
        async with clusterd.subscriber(services.grpc_address(service)) as client:
            calls = [client.stream() for _ in range(50)]
            for call in calls:
                await clusterd.take(call, 1)
            started = asyncio.get_running_loop().time()
            stopping = asyncio.create_task(service.rpc.shutdown(grace_seconds=5))
            ends = [await clusterd.ended(call) for call in calls]
            took = asyncio.get_running_loop().time() - started
            await stopping

    assert {end.status for end in ends} == {grpc.StatusCode.UNAVAILABLE}
    assert {end.message for end in ends} == {f"shutting down, resume from {receipt.uuid}"}
    assert {end.trailers["ledger-reason"] for end in ends} == {"shutdown"}
    assert {end.trailers["resume-uuid"] for end in ends} == {str(receipt.uuid)}
    assert took < 4
