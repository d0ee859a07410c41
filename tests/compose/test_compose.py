"""Two replicas that may die: the faults, one after another, under load, on real containers.

Each test's load goes on over its fault and is then held against the log; see ``tests.support.load``.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from tests.support import composed, load, polling

MIGRATING = composed.ROOT / "tests" / "compose" / "migrating.yml"
"""Makes replicas the database's owners, which migrate it themselves."""

BACK_SECONDS = 10.0
"""Within this time of a fault's end everything works again, by itself."""

MEANWHILE_SECONDS = 20.0
"""Within this time of a cut that nobody is told of, the rest does the work. Streams of a replica that is cut
off from Postgres stay open and wait, though: that is what streams do while Postgres is away."""


async def test_killed_replica_is_replaced(running: composed.Project, measured: dict[str, object]) -> None:
    async with loaded(running, measured) as traffic:
        # One after the other: the subscribers of at least one of them have to go elsewhere.
        for replica in running.containers("ledger"):
            composed.kill(replica)
            await back(running, traffic, measured)

    assert any(follower.ends for follower in traffic.followers)


async def test_killed_postgres_comes_back_and_streams_go_on(
    running: composed.Project, measured: dict[str, object]
) -> None:
    async with loaded(running, measured) as traffic:
        composed.kill(running.containers("postgres")[0])

        await back(running, traffic, measured)


async def test_replica_cut_off_from_postgres_leaves_the_work_to_the_other(
    running: composed.Project, measured: dict[str, object]
) -> None:
    async with loaded(running, measured) as traffic:
        with composed.cut(running.containers("ledger")[0], peer_port=5432):
            measured["recorded meanwhile after"] = await recorded(traffic)
            await polling.eventually(lambda: replicas_ready(running, 1), 20)

        await back(running, traffic, measured)


async def test_clients_cut_off_from_a_replica_reach_the_other(
    running: composed.Project, measured: dict[str, object]
) -> None:
    async with loaded(running, measured) as traffic:
        with composed.cut(running.containers("ledger")[1], own_ports=(8899, 8080)):
            measured["served meanwhile after"] = await served(traffic)

        await back(running, traffic, measured)


async def test_rolling_restart_loses_and_repeats_nothing(
    running: composed.Project, measured: dict[str, object]
) -> None:
    async with loaded(running, measured) as traffic:
        for replica in running.containers("ledger"):
            started = time.monotonic()
            await asyncio.to_thread(composed.stop, replica)
            measured[f"stop {replica[:4]}"] = f"{time.monotonic() - started:.1f} s"
            assert composed.state(replica)["ExitCode"] == 0
            await traffic.steady(20)
            await asyncio.to_thread(composed.start, replica)
            await polling.eventually(lambda: replicas_ready(running, 2), BACK_SECONDS)

        await back(running, traffic, measured)


async def test_service_comes_back_when_both_replicas_are_down(
    running: composed.Project, measured: dict[str, object]
) -> None:
    async with loaded(running, measured) as traffic:
        for replica in running.containers("ledger"):
            composed.kill(replica)

        await back(running, traffic, measured)


async def test_replica_that_dies_while_postgres_is_away_comes_back_with_it(
    running: composed.Project, measured: dict[str, object]
) -> None:
    [postgres] = running.containers("postgres")
    async with loaded(running, measured) as traffic:
        await asyncio.to_thread(composed.stop, postgres)
        composed.kill(running.containers("ledger")[0])
        await polling.eventually(lambda: replicas_ready(running, 0), BACK_SECONDS)
        await asyncio.to_thread(composed.start, postgres)

        await back(running, traffic, measured)


async def test_five_replicas_start_at_once_on_an_empty_database(
    images: dict[str, str], measured: dict[str, object]
) -> None:
    with composed.project(images) as project:
        await asyncio.to_thread(project.compose, "up", "--detach", "postgres")
        started = time.monotonic()
        # Without `migrate`, as owners: each of the five finds the database empty and brings the schema up.
        await asyncio.to_thread(
            project.compose,
            *("up", "--detach", "--no-deps", "--scale", "ledger=5", "ledger", "proxy"),
            overrides=[MIGRATING],
        )
        await polling.eventually(lambda: replicas_ready(project, 5), 30)
        measured["five ready after"] = f"{time.monotonic() - started:.1f} s"

        async with loaded(project, measured) as traffic:
            await back(project, traffic, measured, replicas=5)

        assert project.query("select count(*) from ledger_epochs") == [["1"]]
        restarts = [composed.inspect(each, "{{.RestartCount}}") for each in project.containers("ledger")]
        assert restarts == ["0"] * 5


async def test_dump_taken_under_load_is_restored_into_an_empty_project(
    running: composed.Project, images: dict[str, str], tmp_path: Path
) -> None:
    dump = tmp_path / "jobledger.dump"
    async with loaded(running, {}) as traffic:
        await asyncio.to_thread(running.dump, dump)
        await traffic.steady()
    with composed.project(images) as project:
        await asyncio.to_thread(project.compose, "up", "--detach", "postgres")
        await polling.eventually(lambda: answers(project), 60)
        await asyncio.to_thread(project.restore, dump)
        await asyncio.to_thread(project.compose, "up", "--detach")
        restored = project.query("select uuid from job_events order by position")

        async with loaded(project, {}) as traffic:
            await traffic.steady()

    assert restored
    original = await asyncio.to_thread(running.query, "select uuid from job_events order by position")
    assert restored == original[: len(restored)]


@contextlib.asynccontextmanager
async def loaded(project: composed.Project, measured: dict[str, object]) -> AsyncGenerator[load.Load]:
    """Load on the project, which is ready before."""

    async def log() -> Sequence[str]:
        rows = await asyncio.to_thread(project.query, "select uuid from job_events order by position")
        return [uuid for [uuid] in rows]

    expected = len(project.containers("ledger"))
    await polling.eventually(lambda: replicas_ready(project, expected), 30)
    async with load.running(project.grpc, project.url, log) as traffic:
        yield traffic
    measured["acknowledged"] = len(traffic.acknowledged)
    measured["answers"] = dict(traffic.answers)
    measured["retries"] = dict(traffic.refusals)
    ends = Counter[str]()
    for follower in traffic.followers:
        ends.update(follower.ends)
    measured["stream ends"] = dict(ends)


async def back(
    project: composed.Project, traffic: load.Load, measured: dict[str, object], *, replicas: int = 2
) -> None:
    """Everything works again within the time, every replica is ready, and the load goes on."""
    started = time.monotonic()
    served_after = await traffic.wait_until_back(within_seconds=BACK_SECONDS)
    left = BACK_SECONDS - (time.monotonic() - started)
    await polling.eventually(lambda: replicas_ready(project, replicas), left)
    measured["served after"] = f"{served_after:.1f} s"
    measured["all ready after"] = f"{time.monotonic() - started:.1f} s"
    await traffic.steady()


async def recorded(traffic: load.Load) -> str:
    """How long until more events are recorded, while the fault lasts."""
    started = time.monotonic()
    async with asyncio.timeout(MEANWHILE_SECONDS):
        await traffic.steady(10)
    return f"{time.monotonic() - started:.1f} s"


async def served(traffic: load.Load) -> str:
    """How long until an event is recorded, read and received by all, while the fault lasts."""
    return f"{await traffic.wait_until_back(within_seconds=MEANWHILE_SECONDS):.1f} s"


def answers(project: composed.Project) -> None:
    """Postgres is there to stay: while its image sets itself up, one answers too, but on the socket alone."""
    [postgres] = project.containers("postgres")
    command = (
        "docker",
        "exec",
        postgres,
        "pg_isready",
        "--quiet",
        "--host=127.0.0.1",
        "--username=jobledger",
    )
    assert subprocess.run(command, check=False).returncode == 0


async def replicas_ready(project: composed.Project, count: int) -> None:
    ready = await asyncio.to_thread(project.ready)
    assert ready == count, f"{ready} replicas are ready, not {count}"
