"""What Prometheus is told."""

from __future__ import annotations

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.support import clusterd, events, ledgers, rest, services


async def numbers(api: rest.Rest) -> dict[str, float]:
    """Every sample without labels."""
    text = (await api.get("/metrics")).body.decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


async def test_appends_are_counted_and_repetitions_are_not(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    given = events.submission("a")
    await ledger.receipts(given, events.submission("b"))
    await ledger.receipts(given)

    told = await numbers(api)

    assert told["jobledger_appended_events_total"] == 2
    assert told["jobledger_append_batches_total"] == 2
    assert told["jobledger_append_queue_events"] == 0
    assert told["jobledger_data_loss"] == 0


async def test_requests_are_timed_by_route_and_no_label_names_a_job(api: rest.Rest) -> None:
    await api.post({"jobID": "canary-of-a-job"})
    await api.get("/v4/cwai/job/canary-of-a-job?regionID=region-1")
    await api.get("/v4/cwai/job/canary-of-a-job/events?regionID=region-1")
    await api.get("/v4/cwai/job?jobID=canary-of-a-job&regionID=region-1")
    await api.get("/canary-of-a-path")

    text = (await api.get("/metrics")).body.decode()

    for route in ("/v4/cwai/job", "/v4/cwai/job/{jobID}", "/v4/cwai/job/{jobID}/events", "none"):
        assert f'jobledger_http_request_seconds_count{{method="GET",route="{route}"}}' in text
    assert "canary" not in text


async def test_open_subscriptions_and_the_size_of_batches_are_told(database: str) -> None:
    async with (
        services.running(database) as service,
        clusterd.subscriber(services.grpc_address(service)) as client,
        aiohttp.ClientSession() as session,
    ):
        await services.publish(service, *(events.submission(f"job-{n}") for n in range(3)))
        await clusterd.initial(client.stream())
        async with session.get(f"http://127.0.0.1:{service.http_port}/metrics") as answer:
            text = await answer.text()

    assert "jobledger_grpc_streams 1.0\n" in text
    assert "jobledger_appended_events_total 3.0\n" in text
    assert "jobledger_append_batches_total 1.0\n" in text
