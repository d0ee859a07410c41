"""A restored database behind the service, as its subscribers meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest

from jobledger._proto import job as pb_job
from jobledger.ledger import epochs
from jobledger.store import engine
from tests.acceptance import test_job_stream
from tests.integration import test_verify
from tests.support import clusterd, dumps, events, services
from tests.support import postgres as support


async def epoch_of(call: Any) -> str:
    return (await clusterd.initial(call))["ledger-epoch"]


async def begin_epoch(database: str) -> None:
    connection = await engine.connect(database)
    try:
        await epochs.begin(connection)
    finally:
        await connection.close()


async def test_dump_restored_into_a_fresh_cluster_replays_everything_and_goes_on(
    database: str, postgres: support.Postgres, tmp_path: Path
) -> None:
    said = [
        events.submission("训练-𠮷", detail={"comment": "🚀"}),
        events.part(0, "10.0.0.1", job_id="parted"),
        events.submission("gone"),
        events.deletion("gone"),
        events.part(1, "10.0.0.2", job_id="parted"),
    ]
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        receipts = await services.publish(service, *said)
        before = await clusterd.take(client.stream(start_from="earliest"), 5)
        snapshot = await clusterd.take(client.stream(), 3)
        epoch = await epoch_of(client.stream())
        await dumps.dump(postgres, database, tmp_path / "dump")

    async with (
        dumps.restored(postgres, tmp_path / "dump") as restored,
        services.running(restored) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        whole = await clusterd.take(client.stream(start_from="earliest"), 5)
        again = await clusterd.take(client.stream(), 3)
        call = client.stream(last_seen_uuid=str(receipts[1].uuid), ledger_epoch=epoch)
        rest = await clusterd.take(call, 3)
        await services.publish(service, *said[2:3], events.submission("new"))
        [live] = await clusterd.take(call, 1)
        report = await test_verify.verified(restored)

    assert whole == before
    assert again == snapshot
    assert rest == before[2:]
    assert (live.jobId, test_job_stream.position(live)) == ("new", 6)
    assert report.finding is None


@pytest.mark.parametrize("by", ["metadata", "field"])
async def test_restored_older_backup_answers_each_old_cursor_by_what_it_shares(
    database: str, postgres: support.Postgres, by: str
) -> None:
    """The copy is the backup; what is recorded in the original after it is lost."""
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        kept = await services.publish(service, *(events.submission(f"job-{n}") for n in range(3)))
        first = await epoch_of(client.stream())
    name = database.partition("@/")[2].partition("?")[0]

    async with postgres.database(template=name) as restored:
        async with services.running(database) as service:
            [lost] = await services.publish(service, events.submission("lost"))
        await begin_epoch(restored)
        async with (
            services.running(restored) as service,
            clusterd.subscriber(services.grpc_address(service)) as client,
        ):
            [new] = await services.publish(service, events.submission("new"))

            def resumed(uuid: object, epoch: str) -> Any:
                if by == "metadata":
                    return client.stream(last_seen_uuid=str(uuid), ledger_epoch=epoch)
                info = pb_job.ClientInfo(role="CCAgent", last_seen_uuid=str(uuid), ledger_epoch=epoch)
                return client.stream(info=clusterd.messages.ClientInfo.FromString(bytes(info)))

            call = resumed(kept[-1].uuid, first)
            [shared] = await clusterd.take(call, 1)
            second = await epoch_of(call)
            of_the_lost = await clusterd.ended(resumed(lost.uuid, first))
            of_the_new = await clusterd.ended(resumed(new.uuid, first))
            of_another_ledger = await clusterd.ended(resumed(kept[0].uuid, str(uuid4())))
            without_epoch = await clusterd.ended(resumed(lost.uuid, ""))
            in_the_present = await clusterd.ended(resumed(lost.uuid, second))
            present = await clusterd.take(resumed(kept[-1].uuid, second), 1)

    assert shared.uuid == str(new.uuid)
    assert [each.uuid for each in present] == [str(new.uuid)]
    assert first != second
    for end in (of_the_lost, of_the_new, of_another_ledger):
        assert (end.status, end.trailers["ledger-reason"]) == (grpc.StatusCode.ABORTED, "other-epoch")
        assert "START_FROM_SNAPSHOT" in end.message
    assert "agree up to 3" in of_the_lost.message
    for end in (without_epoch, in_the_present):
        assert (end.status, end.trailers["ledger-reason"]) == (grpc.StatusCode.NOT_FOUND, "unknown-uuid")
