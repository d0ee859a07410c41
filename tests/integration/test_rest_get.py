"""What ``GET /v4/cwai/job`` shows, in which forms it is asked, and to whom."""

from __future__ import annotations

import json
from urllib.parse import quote
from uuid import uuid4

import pytest

from jobledger.model.principal import Scope
from tests.support import cwai, events, ledgers, rest


async def test_every_key_has_its_type_when_nothing_was_described(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    await ledger.receipts(events.submission("job-1", region=rest.REGION))

    shown = (await api.job()).object

    cwai.assert_shape(shown)
    assert (shown["name"], shown["trainFrame"], shown["status"]) == ("train", "pytorch", "Pending")


async def test_every_key_has_its_type_when_all_is_described(api: rest.Rest) -> None:
    await api.post(rest.example())

    shown = (await api.job(rest.example()["jobID"], rest.example()["regionID"])).object

    cwai.assert_shape(shown)
    assert all(shown[key] for key in ("datasets", "command", "envs", "pods"))


async def test_partly_described_objects_are_filled_up(api: rest.Rest) -> None:
    pod = {"name": "a"}
    await api.post({"output": {}, "pods": [pod], "envs": [{"name": "A"}], "datasets": [{}], "resources": {}})

    shown = (await api.job()).object

    cwai.assert_shape(shown)
    assert shown["pods"][0]["yaml"] == cwai.YAML


async def test_pods_and_replicas_come_from_the_rank_table(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    table = events.rank_table("10.0.0.1", "10.0.0.2")
    await ledger.receipts(
        events.submission("job-1", region=rest.REGION, job_status="running", hccl_json=table)
    )

    shown = (await api.job()).object

    cwai.assert_shape(shown)
    assert shown["replicas"] == 2
    assert [(pod["name"], pod["hostIP"]) for pod in shown["pods"]] == [
        ("job-worker-0", "10.0.0.1"),
        ("job-worker-1", "10.0.0.2"),
    ]


@pytest.mark.parametrize(
    ("job_status", "word"),
    [("pending", "Pending"), ("running", "Running"), ("complete", "Succeeded"), ("failed", "Failed")],
)
async def test_status_is_the_words_of_the_document(
    ledger: ledgers.Ledger, api: rest.Rest, job_status: str, word: str
) -> None:
    await ledger.receipts(events.submission("job-1", region=rest.REGION, job_status=job_status))

    assert (await api.job()).object["status"] == word


async def test_later_of_two_adds_with_one_time_is_shown(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    first = events.submission("job-1", region=rest.REGION, time="1700000000", job_name="first")
    second = events.submission("job-1", region=rest.REGION, time="1700000000", job_name="second")
    await ledger.receipts(first, second)

    assert (await api.job()).object["name"] == "second"


async def test_failed_job_that_runs_again_is_running_and_not_finished(
    ledger: ledgers.Ledger, api: rest.Rest
) -> None:
    shown: list[tuple[str, bool]] = []
    for status in ("running", "failed", "running"):
        await ledger.receipts(events.submission("job-1", region=rest.REGION, job_status=status))
        job = (await api.job()).object
        shown.append((job["status"], bool(job["finishTime"])))

    assert shown == [("Running", False), ("Failed", True), ("Running", False)]


async def test_times_are_shown_in_the_configured_zone(ledger: ledgers.Ledger) -> None:
    await ledger.receipts(
        events.submission(
            "job-1",
            region=rest.REGION,
            time="1700000000",
            delete_time="1700003600",
            job_status="complete",
        )
    )
    times: list[tuple[str, str]] = []
    for zone in ("Asia/Shanghai", "America/New_York"):
        async with rest.serving(ledger, zone=zone) as api:
            shown = (await api.job()).object
            times.append((shown["createTime"], shown["finishTime"]))

    assert times == [
        ("2023-11-15 06:13:20", "2023-11-15 07:13:20"),
        ("2023-11-14 17:13:20", "2023-11-14 18:13:20"),
    ]


NAME = "训练-𠮷-e\u0301-\u202e-🚀"


async def test_names_of_every_script_are_shown_as_themselves(api: rest.Rest) -> None:
    await api.post({"jobID": NAME, "regionID": NAME, "name": NAME, "comment": NAME})

    answer = await api.job(NAME, NAME)

    assert (answer.object["jobID"], answer.object["name"], answer.object["comment"]) == (NAME, NAME, NAME)
    assert NAME.encode() in answer.body


async def test_ids_are_told_apart_exactly(api: rest.Rest) -> None:
    composed, decomposed = "é", "e\u0301"
    await api.post({"jobID": composed, "name": "composed"})
    await api.post({"jobID": decomposed, "name": "decomposed"})

    assert (await api.job(composed)).object["name"] == "composed"
    assert (await api.job(decomposed)).object["name"] == "decomposed"
    assert (await api.job("É")).code == "NotFound"


@pytest.mark.parametrize(
    "target",
    [
        "/v4/cwai/job/job-1?regionID=region-1",
        "/v4/cwai/job/jobID=job-1?regionID=region-1",
        "/v4/cwai/job?jobID=job-1&regionID=region-1",
        "/v4/cwai/job/?jobID=job-1&regionID=region-1",
        "/v4/cwai/job/jobID=?jobID=job-1&regionID=region-1",
        "/v4/cwai/job/job-1?jobID=job-1&regionID=region-1",
        "/v4/cwai/job/jobID=job-1?jobID=job-1&regionID=region-1",
        "/v4/cwai/job/job-1?regionID=region-1&unknown=1&jobID=",
        "/v4/cwai/job/%6Aob%2D1?regionID=region%2D1",
    ],
)
async def test_job_is_found_in_every_form_of_asking(api: rest.Rest, target: str) -> None:
    await api.post({})

    assert (await api.get(target)).object["jobID"] == "job-1"


@pytest.mark.parametrize(
    ("target", "headers", "words"),
    [
        ("/v4/cwai/job?regionID=region-1", {}, "jobID is missing"),
        ("/v4/cwai/job/?regionID=region-1", {}, "jobID is missing"),
        ("/v4/cwai/job/jobID=?regionID=region-1", {}, "jobID is missing"),
        ("/v4/cwai/job/job-1?jobID=job-2&regionID=region-1", {}, "'job-2' in the query"),
        (
            "/v4/cwai/job?jobID=job-1&jobID=job-1&regionID=region-1",
            {},
            "query parameter jobID is given 2 times",
        ),
        ("/v4/cwai/job/job-1", {}, "regionID is missing"),
        ("/v4/cwai/job/job-1?regionID=", {}, "regionID is missing"),
        ("/v4/cwai/job/job-1?regionID=region-1&regionID=region-1", {}, "regionID is given 2 times"),
        ("/v4/cwai/job/job-1?regionID=region-1", {"regionID": "region-2"}, "'region-2' in the header"),
    ],
)
async def test_missing_repeated_or_contradictory_parameter_is_refused(
    api: rest.Rest, target: str, headers: dict[str, str], words: str
) -> None:
    await api.post({})

    code, message = (await api.get(target, **headers)).failure

    assert code == "BadRequest"
    assert words in message


@pytest.mark.parametrize("name", ["regionID", "userID", "accountID"])
async def test_repeated_header_is_refused(api: rest.Rest, name: str) -> None:
    await api.post({})
    header = f"{name}: region-1".encode()

    answer = await api.raw_get(b"/v4/cwai/job/job-1?regionID=region-1", header, header)

    assert answer.code == "BadRequest"


async def test_region_may_stand_in_the_header_alone_or_beside_the_query(api: rest.Rest) -> None:
    await api.post({})

    assert (await api.get("/v4/cwai/job/job-1", regionID="region-1")).object["jobID"] == "job-1"
    assert (await api.get("/v4/cwai/job/job-1", REGIONID="region-1")).object["jobID"] == "job-1"
    assert (await api.get("/v4/cwai/job/job-1?regionID=region-1", regionID="region-1")).object


async def test_job_of_another_region_is_not_found(api: rest.Rest) -> None:
    await api.post({})

    code, message = (await api.job("job-1", "region-2")).failure

    assert code == "NotFound"
    assert "region-1" not in message


async def test_unknown_and_deleted_jobs_are_not_found(api: rest.Rest) -> None:
    await api.post({})
    await api.delete()

    assert (await api.job("job-1")).code == "NotFound"
    assert (await api.job("job-2")).code == "NotFound"


@pytest.mark.parametrize("name", ["userID", "accountID"])
async def test_header_narrows_to_the_owner(api: rest.Rest, name: str) -> None:
    await api.post({name: "训练"})

    code, message = (await api.job(**{name: "someone"})).failure

    assert code == "StatusUnauthorized"
    assert "训练" not in message
    assert (await api.job(**{name: "训练"})).object[name] == "训练"
    assert (await api.job(**{name: ""})).object[name] == "训练"


@pytest.mark.parametrize("name", ["userID", "accountID"])
async def test_header_does_not_narrow_a_job_without_owner(api: rest.Rest, name: str) -> None:
    await api.post({})

    assert (await api.job(**{name: "someone"})).object["jobID"] == "job-1"


async def test_caller_without_scope_is_refused(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, scopes=frozenset({Scope.SUBSCRIBE})) as api:
        assert (await api.job()).code == "StatusUnauthorized"
        assert (await api.post({})).code == "StatusUnauthorized"
        assert (await api.delete()).code == "StatusUnauthorized"


async def test_reader_may_not_write_and_publisher_may_not_read(ledger: ledgers.Ledger) -> None:
    async with rest.serving(ledger, scopes=frozenset({Scope.PUBLISH})) as publisher:
        assert (await publisher.post({})).object["position"] == 1
        assert (await publisher.job()).code == "StatusUnauthorized"
    async with rest.serving(ledger, scopes=frozenset({Scope.READ})) as reader:
        assert (await reader.job()).object["jobID"] == "job-1"
        assert (await reader.post({})).code == "StatusUnauthorized"


async def test_head_answers_like_get_without_a_body(api: rest.Rest) -> None:
    await api.post({})
    target = "/v4/cwai/job/job-1?regionID=region-1"

    head, get = await api.call("HEAD", target), await api.get(target)

    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.body))


@pytest.mark.parametrize(
    "job_id",
    [
        "a/b",
        "a%2Fb",
        "a%b",
        "%FF",
        "..",
        ".",
        "jobID=",
        "jobID=x",
        "a b",
        "a+b",
        "a?b#c",
        "{x}",
        "list",
        "a&b=c",
    ],
)
async def test_any_printable_id_can_be_asked_for_in_the_path(api: rest.Rest, job_id: str) -> None:
    await api.post({"jobID": job_id})

    answer = await api.raw_get(f"/v4/cwai/job/{quote(job_id, safe='')}?regionID=region-1".encode())

    assert answer.object["jobID"] == job_id


async def test_id_of_256_wide_characters_can_be_asked_for(api: rest.Rest) -> None:
    job_id = "𠮷" * 256
    await api.post({"jobID": job_id})

    assert (await api.get(f"/v4/cwai/job/{quote(job_id)}?regionID=region-1")).object["jobID"] == job_id
    assert (await api.job("𠮷" * 257)).code == "BadRequest"


async def test_document_example_comes_out_as_it_went_in_but_for_its_secrets(api: rest.Rest) -> None:
    given = rest.example()
    await api.post(given)

    shown = (await api.job(given["jobID"], given["regionID"])).object

    for output in ("output", "logOutput"):
        given[output] |= {"accessKeyID": "01UP****Z72", "accessKeySecret": "******"}
    assert shown == given
    assert list(shown) == list(given)


async def test_answer_that_is_posted_again_changes_nothing(api: rest.Rest) -> None:
    given = rest.example()
    await api.post(given)
    shown = (await api.job(given["jobID"], given["regionID"])).object

    await api.post(shown)

    assert (await api.job(given["jobID"], given["regionID"])).object == shown


async def test_rank_table_of_megabytes_is_no_hindrance(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    table = json.dumps({"status": "complete", "server_list": [], "pad": "x" * 3_900_000})
    submission = events.submission("job-1", region=rest.REGION, uuid=str(uuid4()), hccl_json=table)
    await ledger.receipts(submission)

    assert (await api.job()).object["jobID"] == "job-1"


async def test_flag_that_is_neither_is_refused_with_what_is_allowed(api: rest.Rest) -> None:
    await api.post({})

    for given in ("perhaps", "1", "True"):
        answer = await api.get(f"/v4/cwai/job/job-1?regionID={rest.REGION}&includeDeleted={given}")
        assert answer.failure == (
            "BadRequest",
            f"includeDeleted '{given}' is unknown; allowed are true, false",
        )
