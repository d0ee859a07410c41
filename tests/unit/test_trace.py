from __future__ import annotations

import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from jobledger import errors
from jobledger.model import event
from jobledger.trace import events, generated, pods

HEADER = "name,num_gpu,qos,pod_phase,creation_time,deletion_time,scheduled_time"
ORDER = {("add", "pending"): 0, ("add", "running"): 1, ("add", "complete"): 2, ("add", "failed"): 2}


def pod(
    *,
    name: str = "pod-1",
    gpus: int = 1,
    phase: pods.Phase = pods.Phase.RUNNING,
    created: int = 0,
    scheduled: int | None = 5,
    deleted: int = 9,
) -> pods.Pod:
    return pods.Pod(
        name=name, gpus=gpus, qos="LS", phase=phase, created=created, scheduled=scheduled, deleted=deleted
    )


def csv(directory: Path, *rows: str, header: str = HEADER) -> Path:
    path = directory / "pods.csv"
    path.write_text("\n".join((header, *rows)))  # no newline at the end, as in the real one
    return path


def steps(submissions: list[event.Submission]) -> list[tuple[str, str]]:
    return [(each.signal.operator, each.signal.job_status) for each in submissions]


def test_a_pod_that_succeeded_is_pending_running_complete_and_gone() -> None:
    assert steps(events.of([pod(phase=pods.Phase.SUCCEEDED)])) == [
        ("add", "pending"),
        ("add", "running"),
        ("add", "complete"),
        ("delete", "complete"),
    ]


def test_a_pod_that_still_ran_is_deleted_as_it_is() -> None:
    assert steps(events.of([pod()])) == [("add", "pending"), ("add", "running"), ("delete", "running")]


def test_a_pod_that_was_never_scheduled_never_runs() -> None:
    lives = events.of([pod(phase=pods.Phase.PENDING, scheduled=None)])

    assert steps(lives) == [("add", "pending"), ("delete", "pending")]


def test_a_pod_that_lives_no_time_keeps_the_order_of_its_events() -> None:
    lives = events.of([pod(phase=pods.Phase.FAILED, created=7, scheduled=7, deleted=7)])

    assert steps(lives) == [("add", "pending"), ("add", "running"), ("add", "failed"), ("delete", "failed")]


def test_events_of_several_pods_interleave_by_time() -> None:
    lives = events.of([pod(name="a", created=0, deleted=9), pod(name="b", created=3, scheduled=4, deleted=6)])

    assert [each.signal.job_id for each in lives] == ["a", "b", "b", "a", "b", "a"]


def test_times_are_epoch_seconds_and_only_an_end_has_a_delete_time() -> None:
    pending, running, deleted = (each.signal for each in events.of([pod(created=2, scheduled=5, deleted=9)]))

    assert pending.time == running.time == deleted.time == str(events.EPOCH + 2)
    assert (pending.delete_time, running.delete_time) == ("", "")
    assert deleted.delete_time == str(events.EPOCH + 9)


def test_a_running_pods_rank_table_has_a_device_for_each_gpu() -> None:
    table = json.loads(events.of([pod(gpus=8)])[1].signal.hccl_json)

    assert table["server_count"] == "1"
    assert [device["rank_id"] for device in table["server_list"][0]["device"]] == list("01234567")


def test_a_running_pod_without_gpus_has_an_empty_server_list() -> None:
    table = json.loads(events.of([pod(gpus=0)])[1].signal.hccl_json)

    assert (table["server_list"], table["server_count"]) == ([], "0")


def test_the_same_pod_makes_the_same_events_again() -> None:
    assert events.of([pod()]) == events.of([pod()])


def test_a_row_that_is_no_pod_is_named_by_its_line(tmp_path: Path) -> None:
    path = csv(tmp_path, "pod-1,1,LS,Running,0,9,5", "pod-2,one,LS,Running,0,9,5")

    with pytest.raises(errors.InvalidRequest, match=r"pods\.csv line 3: .*'one'"):
        pods.read(path)


def test_a_row_that_is_cut_short_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidRequest, match="line 2"):
        pods.read(csv(tmp_path, "pod-1,1,LS,Running"))


def test_a_pod_deleted_before_it_was_created_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidRequest, match="line 2: the times of pod-1 run backwards"):
        pods.read(csv(tmp_path, "pod-1,1,LS,Running,9,5,"))


def test_a_file_without_the_columns_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    path = csv(tmp_path, "a,b", header="name,value")

    with pytest.raises(errors.InvalidRequest, match=r"no column num_gpu, .* openb_pod_list_default\.csv"):
        pods.read(path)


def test_a_generated_trace_has_the_shape_of_the_real_one() -> None:
    trace = generated.generate(2_000, seed=1)
    counts = Counter(steps(events.of(trace)))
    phases = Counter(each.phase for each in trace)
    scheduled = sum(1 for each in trace if each.scheduled is not None)

    assert counts["add", "pending"] == len(trace)
    assert counts["add", "running"] == scheduled == len(trace) - phases[pods.Phase.PENDING]
    assert counts["add", "complete"] == phases[pods.Phase.SUCCEEDED] > 0
    assert counts["add", "failed"] == phases[pods.Phase.FAILED] > 0
    assert sum(count for (operator, _), count in counts.items() if operator == "delete") == len(trace)
    assert 0.08 < phases[pods.Phase.PENDING] / len(trace) < 0.14, "a ninth was never scheduled"
    assert any(each.created == each.deleted for each in trace), "some live no time at all"
    assert any(before.created == after.created for before, after in pairwise(trace)), "some come in bursts"
    assert {each.gpus for each in trace} == {0, 1, 2, 4, 8}


def test_a_generated_trace_keeps_each_jobs_events_in_order() -> None:
    seen: dict[str, int] = {}
    for each in events.of(generated.generate(500, seed=2)):
        step = ORDER.get((each.signal.operator, each.signal.job_status), 3)
        assert step > seen.get(each.signal.job_id, -1)
        seen[each.signal.job_id] = step


def test_every_event_of_a_trace_has_a_uuid_of_its_own() -> None:
    lives = events.of(generated.generate(500, seed=3))

    assert len({each.signal.uuid for each in lives}) == len(lives)


def test_a_seed_always_generates_the_same_and_a_shorter_trace_is_its_beginning() -> None:
    assert generated.generate(50, seed=4) == generated.generate(200, seed=4)[:50]


def test_traces_of_different_seeds_are_of_different_jobs() -> None:
    names = {each.name for each in generated.generate(50, seed=5)}

    assert names.isdisjoint(each.name for each in generated.generate(50, seed=6))


@pytest.mark.skipif(not os.environ.get("TRACE"), reason="TRACE names no pod list")
def test_the_real_trace_has_the_events_that_were_counted() -> None:
    lives = events.of(pods.read(Path(os.environ["TRACE"])))
    counts = Counter(steps(lives))

    assert len(lives) == 25_621
    assert counts["add", "pending"] == 8_152
    assert counts["add", "running"] == 7_255
    assert counts["add", "complete"] + counts["add", "failed"] == 2_062
    assert sum(count for (operator, _), count in counts.items() if operator == "delete") == 8_152
