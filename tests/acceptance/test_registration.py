"""job.Job/Register, and who may subscribe: the exact words that existing clients look for."""

from __future__ import annotations

import asyncio

import asyncpg
import grpc
import grpc.aio
import pytest

from jobledger import app
from jobledger.store import listener
from tests.support import clusterd, events, polling, services


async def test_registration_gives_a_fresh_id(client: clusterd.Subscriber) -> None:
    first, second = await client.register(), await client.register()

    assert (first.code, first.info) == (200, "registration successful")
    assert first.clientId != second.clientId


@pytest.mark.parametrize("role", ["", "x" * 65, "bell\a"])
async def test_unusable_role_is_not_in_the_whitelist(client: clusterd.Subscriber, role: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.register(role)

    assert refused.value.code() is grpc.StatusCode.UNKNOWN
    assert refused.value.details() == f"role:{role} is not in whitelist"


async def test_only_listed_roles_may_register(database: str) -> None:
    async with (
        services.running(database, roles="CCAgent,FdAgent") as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        assert (await client.register("FdAgent")).code == 200
        with pytest.raises(grpc.aio.AioRpcError, match="role:Other is not in whitelist"):
            await client.register("Other")


async def test_full_house_is_ok_with_code_429(database: str) -> None:
    async with (
        services.running(database, registered_ids_limit=2) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        codes = [
            (status.code, bool(status.clientId)) for status in [await client.register() for _ in range(3)]
        ]

    assert codes == [(200, True), (200, True), (429, False)]


async def test_id_outlives_a_restart(database: str) -> None:
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        client_id = (await client.register()).clientId

    async with (
        services.running(database, require_registration=True) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        call = client.stream(client_id=client_id)
        assert "ledger-head" in await clusterd.initial(call)


async def test_unknown_id_is_registered_on_the_fly(client: clusterd.Subscriber, service: app.Service) -> None:
    await services.publish(service, events.submission())

    [message] = await clusterd.take(client.stream(client_id="made-up"), 1)
    wrong_role = await clusterd.ended(client.stream(client_id="made-up", role="Other"))

    assert message.jobId == "job-1"
    assert wrong_role.message == "invalid role: Other, please check role first"


@pytest.mark.parametrize("client_id", ["", "made-up"])
async def test_unregistered_id_is_refused_where_registration_is_required(
    database: str, client_id: str
) -> None:
    async with (
        services.running(database, require_registration=True) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        end = await clusterd.ended(client.stream(client_id=client_id))

    assert end.status is grpc.StatusCode.UNKNOWN
    assert end.message == f"invalid clientId: {client_id}, please register first"
    assert end.trailers["ledger-reason"] == "refused"


async def test_another_role_than_the_registered_one_is_refused(client: clusterd.Subscriber) -> None:
    client_id = (await client.register("CCAgent")).clientId

    end = await clusterd.ended(client.stream(client_id=client_id, role="FdAgent"))

    assert (end.status, end.message) == (
        grpc.StatusCode.UNKNOWN,
        "invalid role: FdAgent, please check role first",
    )


async def test_streams_of_a_role_are_limited_and_a_takeover_is_no_more(database: str) -> None:
    async with (
        services.running(database, streams_per_role=1) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        running = client.stream(client_id="one")
        await clusterd.initial(running)
        refused = await clusterd.ended(client.stream(client_id="two"))
        other_role = client.stream(client_id="three", role="FdAgent")
        await clusterd.initial(other_role)
        again = client.stream(client_id="one")
        await clusterd.initial(again)

        assert refused.message == "role CCAgent exceeded max subscription limit: current 1, max 1"
        assert (await clusterd.ended(running)).status is grpc.StatusCode.CANCELLED


async def test_subscribes_a_second_are_limited(database: str) -> None:
    async with (
        services.running(database, subscribes_per_second=3) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        calls = [client.stream() for _ in range(12)]
        done = await asyncio.gather(*(asyncio.wait_for(clusterd.initial(call), 20) for call in calls))
        refused = [call for call, initial in zip(calls, done, strict=True) if "ledger-head" not in initial]

        assert len(refused) >= 6
        for call in refused:
            end = await clusterd.ended(call)
            assert end.message == "rate limited, there is too many requests, please retry later"


async def test_refused_subscribe_leaves_the_running_stream_alone(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    running = client.stream(client_id="one")
    await clusterd.initial(running)

    refused = await clusterd.ended(client.stream(client_id="one", last_seen_uuid="nonsense"))
    await services.publish(service, events.submission())

    assert refused.status is grpc.StatusCode.INVALID_ARGUMENT
    assert [message.jobId for message in await clusterd.take(running, 1)] == ["job-1"]


async def test_refusal_is_delayed(database: str) -> None:
    async with (
        services.running(database, refusal_delay_seconds=0.3, roles="Only") as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
    ):
        started = asyncio.get_running_loop().time()
        await clusterd.ended(client.stream(client_id="x"))

        assert asyncio.get_running_loop().time() - started >= 0.3


async def test_same_client_again_takes_over_with_nothing_lost(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    client_id = (await client.register()).clientId
    old = client.stream(client_id=client_id)
    await services.publish(service, events.submission("job-1"))
    [seen] = await clusterd.take(old, 1)

    new = client.stream(client_id=client_id, last_seen_uuid=seen.uuid)
    end = await clusterd.ended(old)
    await services.publish(service, events.submission("job-2"))

    assert (end.status, end.trailers["ledger-reason"]) == (grpc.StatusCode.CANCELLED, "takeover")
    assert end.trailers["resume-uuid"] == seen.uuid
    assert [message.jobId for message in await clusterd.take(new, 1)] == ["job-2"]


@pytest.mark.parametrize("told", [True, False], ids=["by notification", "by the poll alone"])
async def test_takeover_reaches_another_replica(
    database: str, monkeypatch: pytest.MonkeyPatch, *, told: bool
) -> None:
    async def untold(*_: object) -> None:
        """A notification that never arrives."""

    if not told:
        monkeypatch.setattr(listener, "notify", untold)
    async with (
        services.running(database, poll_seconds=0.2 if not told else 30.0) as here,
        services.running(database) as there,
        clusterd.subscriber(services.grpc_address(here)) as client,
        clusterd.subscriber(services.grpc_address(there)) as other,
    ):
        if told:
            await polling.eventually(lambda: services.hears(here))
        old = client.stream(client_id="one")
        await clusterd.initial(old)
        new = other.stream(client_id="one")
        await clusterd.initial(new)

        end = await asyncio.wait_for(clusterd.ended(old), 20)
        await services.publish(there, events.submission())

        assert end.trailers["ledger-reason"] == "takeover"
        assert len(await clusterd.take(new, 1)) == 1


async def test_anonymous_streams_do_not_take_each_other_over(
    client: clusterd.Subscriber, service: app.Service
) -> None:
    streams = [client.stream() for _ in range(3)]
    for stream in streams:
        await clusterd.initial(stream)

    await services.publish(service, events.submission())

    for stream in streams:
        assert len(await clusterd.take(stream, 1)) == 1


async def test_unused_ids_expire_and_an_active_stream_is_use(
    database: str, client: clusterd.Subscriber, service: app.Service
) -> None:
    unused, used = (await client.register()).clientId, (await client.register()).clientId
    stream = client.stream(client_id=used)
    await clusterd.initial(stream)
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("update subscribers set last_used_at = now() - interval '31 days'")
        await service.clients._keep_house()
        left = [row["client_id"] for row in await connection.fetch("select client_id from subscribers")]
    finally:
        await connection.close()

    assert left == [used]
    assert unused not in left
