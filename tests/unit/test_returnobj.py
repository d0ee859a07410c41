from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from jobledger.ledger import admission
from jobledger.model import cwai, detail, event, job, masking, returnobj
from jobledger.model.signal import Signal

SHANGHAI = ZoneInfo("Asia/Shanghai")
EXAMPLE = Path(__file__).parent.parent / "data" / "cwai-job-running.json"
RECORDED_AT = datetime(2023, 10, 13, 4, 0, 0, 999_999, tzinfo=UTC)
NO_YAML = {"metadata": {"creationTimestamp": None}, "spec": {"containers": None}, "status": {}}


def folded(
    described: str | None = None, *, job_id: str = "j", job_status: str = "running", delete_time: str = ""
) -> job.Job:
    """A job of one add; its description as given, in JSON."""
    signal = Signal(
        job_id=job_id,
        job_name="train",
        framework="pytorch",
        job_status=job_status,
        delete_time=delete_time,
        operator="add",
    )
    stored = None
    if described is not None:
        stored = detail.encode(masking.mask(detail.parse(described, SHANGHAI).detail).detail)
    evolved = job.evolve(
        None,
        event.RecordedEvent(
            position=event.Position(1),
            uuid=UUID(int=1),
            signal=signal,
            detail=stored,
            region="r",
            account_id="a",
            user_id="u",
            recorded_at=RECORDED_AT,
        ),
    )
    assert evolved is not None
    return evolved


def shown(folded_job: job.Job, rank_table: str = "", zone: str = "Asia/Shanghai") -> dict[str, object]:
    built = returnobj.build(folded_job, rank_table, ZoneInfo(zone))
    return json.loads(msgspec.json.encode(built))


def test_the_documents_example_comes_out_as_it_went_in_but_for_its_secrets() -> None:
    example = json.loads(EXAMPLE.read_text())["returnObj"]
    posted = folded(json.dumps(example), job_id=example["jobID"])
    posted = msgspec.structs.replace(
        posted, region=example["regionID"], user_id=example["userID"], account_id=example["accountID"]
    )

    answered = shown(posted)

    for output in (example["output"], example["logOutput"]):
        output |= {"accessKeyID": "01UP****Z72", "accessKeySecret": "******"}
    assert answered == example
    assert json.dumps(answered) == json.dumps(example), "the order of the keys differs"


def test_every_key_is_there_without_a_description() -> None:
    output = dict.fromkeys(
        ["storageType", "zosBucket", "zosEndpoint", "accessKeyID", "accessKeySecret", "mountDir", "sfsUUID",
         "hpfsID", "sfsSize", "hpfsSharePath", "pvcName"], ""
    )  # fmt: skip
    assert shown(folded()) == {
        "name": "train", "jobID": "j", "userID": "u", "accountID": "a", "regionID": "r", "azName": "",
        "resourceGroupID": "", "resourceGroupName": "", "queueID": "", "queueName": "", "trainType": "",
        "trainFrame": "pytorch", "jobOperator": "", "isDeepspeed": False, "datasets": [], "imageName": "",
        "imageVersion": "", "command": [], "envs": [], "replicas": 0,
        "resources": {"cpuLimit": 0, "gpuLimit": 0, "memLimit": 0, "hcaShared": 0},
        "output": output, "logOutput": output, "comment": "", "pods": [], "status": "Running",
        "createTime": "2023-10-13 12:00:00", "finishTime": "",
    }  # fmt: skip


def test_members_of_lists_have_every_key_too() -> None:
    answered = shown(folded('{"datasets":[{}],"envs":[{"name":"a"}],"pods":[{"name":"p"}],"resources":{}}'))

    assert answered["datasets"] == [{"name": "", "datasetID": "", "mountPath": ""}]
    assert answered["envs"] == [{"name": "a", "value": ""}]
    assert answered["pods"] == [
        {"role": "", "name": "p", "restartCount": 0, "podIP": "", "hostIP": "", "yaml": NO_YAML,
         "containerNames": [], "startTime": "", "finishTime": "", "status": ""}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("job_status", "word"),
    [("pending", "Pending"), ("running", "Running"), ("complete", "Succeeded"), ("failed", "Failed")],
)
def test_status_is_the_documents_word_for_the_job_status(job_status: str, word: str) -> None:
    assert shown(folded(job_status=job_status))["status"] == word


def test_the_publishers_own_status_is_shown() -> None:
    assert shown(folded('{"status":"Scheduling"}'))["status"] == "Scheduling"


RANK_TABLE = json.dumps(
    {
        "status": "complete",
        "server_list": [
            {"device": [{"device_id": "0"}], "server_id": "s0", "host_ip": "10.0.0.1", "pod_name": "w-0",
             "container_ids": {"ascend": "c1"}, "server_sn": None},
            {"device": [], "server_id": "10.0.0.2", "pod_name": "w-1"},
        ],
        "server_count": "3",
        "total": 1,
    }
)  # fmt: skip


def test_pods_and_replicas_come_from_the_rank_table() -> None:
    answered = shown(folded(), RANK_TABLE)

    blank = {
        "role": "worker",
        "restartCount": 0,
        "podIP": "",
        "yaml": NO_YAML,
        "startTime": "",
        "finishTime": "",
    }
    assert answered["replicas"] == 3
    assert answered["pods"] == [
        {**blank, "name": "w-0", "hostIP": "10.0.0.1", "containerNames": ["ascend"], "status": "Running"},
        {**blank, "name": "w-1", "hostIP": "10.0.0.2", "containerNames": [], "status": "Running"},
    ]


def test_given_pods_and_replicas_win_also_when_empty() -> None:
    answered = shown(folded('{"pods":[],"replicas":0}'), RANK_TABLE)

    assert (answered["pods"], answered["replicas"]) == ([], 0)


@pytest.mark.parametrize(
    "rank_table",
    ["", "x", "[]", "null", '{"status":"initializing"}', '{"server_list":5}', '{"server_list":[1]}',
     "[" * 100_000, '{"server_list":null,"server_count":null}', '{"server_count":"many"}',
     '{"server_count":-1}',
     '{"server_count":"99999999999"}', '{"server_count":4294967296}', '{"server_count":"\u0663"}'],
)  # fmt: skip
def test_what_is_no_rank_table_gives_no_pods(rank_table: str) -> None:
    answered = shown(folded(), rank_table)

    assert (answered["pods"], answered["replicas"]) == ([], 0)


def test_times_are_shown_in_the_configured_zone() -> None:
    described = folded(
        '{"createTime":"2023-10-13 11:22:01","finishTime":"2023-10-13T11:22:02.9+08:00",'
        '"pods":[{"startTime":"2023-10-13 11:22:03","finishTime":""}]}'
    )

    answered = shown(described, zone="America/New_York")

    assert answered["createTime"] == "2023-10-12 23:22:01"
    assert answered["finishTime"] == "2023-10-12 23:22:02"
    (pod,) = msgspec.convert(answered["pods"], list[dict[str, object]])
    assert (pod["startTime"], pod["finishTime"]) == ("2023-10-12 23:22:03", "")


def test_last_second_of_utc_is_shown_in_every_zone() -> None:
    last = folded(job_status="failed", delete_time=str(admission.LATEST_SECOND))

    assert shown(last, zone="Asia/Shanghai")["finishTime"] == "9999-12-31 23:59:59"
    assert shown(last, zone="America/New_York")["finishTime"] == "9999-12-31 18:59:59"


def test_finish_time_is_when_the_job_ended_if_nobody_says_otherwise() -> None:
    assert shown(folded(job_status="failed", delete_time="1697170000"))["finishTime"] == "2023-10-13 12:06:40"


def test_name_and_framework_of_the_description_win_if_not_empty() -> None:
    given, empty = (
        shown(folded('{"name":"n","trainFrame":"F"}')),
        shown(folded('{"name":"","trainFrame":""}')),
    )

    assert (given["name"], given["trainFrame"]) == ("n", "F")
    assert (empty["name"], empty["trainFrame"]) == ("train", "pytorch")


@pytest.mark.parametrize(
    ("answered", "given"),
    [
        (returnobj.Dataset, cwai.Dataset),
        (returnobj.Env, cwai.Env),
        (returnobj.Resources, cwai.Resources),
        (returnobj.Output, cwai.Output),
        (returnobj.Pod, cwai.Pod),
        (returnobj.JobObject, cwai.Detail),
    ],
)
def test_what_can_be_given_is_answered(answered: type[msgspec.Struct], given: type[msgspec.Struct]) -> None:
    identity = {"jobID", "regionID", "userID", "accountID"}

    assert set(answered.__struct_encode_fields__) - identity == set(given.__struct_encode_fields__)
