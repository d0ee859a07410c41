"""The command line as users call it, against the whole service."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import jobledger
from jobledger import app
from jobledger.cli import follower
from jobledger.client import batches, connection, publishing
from jobledger.model import event, selection
from jobledger.trace import events, generated
from tests.support import events as made
from tests.support import polling, services

LAST = "7d9f7a3e-56d0-4f8c-8a39-4d3f5b1c0001"
LINES = (
    '{"signal":{"jobId":"job-1","jobName":"训练","jobStatus":"pending","operator":"add","time":1700000000}}',
    "{",
    '{"signal":{"jobId":"","jobStatus":"pending","operator":"add"}}',
    f'{{"signal":{{"jobId":"job-2","jobStatus":"pending","operator":"add","uuid":"{LAST}"}}}}',
)


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


async def start(
    service: app.Service, *arguments: str, prefix: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    environment = os.environ | {
        "PYTHONPATH": str(Path(jobledger.__file__).parents[1]),
        "JOBLEDGER_SERVER": services.grpc_address(service),
        "JOBLEDGER_URL": f"http://127.0.0.1:{service.http_port}",
    }
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(*prefix, sys.executable, "-m", "jobledger", *arguments),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
    )


async def call(service: app.Service, *arguments: str, given: str = "", prefix: Sequence[str] = ()) -> Result:
    process = await start(service, *arguments, prefix=prefix)
    async with asyncio.timeout(60):
        out, err = await process.communicate(given.encode())
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), err.decode())


def lines(*chosen: str) -> str:
    return "".join(f"{line}\n" for line in chosen)


async def test_what_is_refused_is_reported_by_line_and_the_rest_is_recorded(service: app.Service) -> None:
    result = await call(service, "publish", "-", given=lines(*LINES))

    assert result.code == 1
    assert result.out.startswith("2 accepted, 0 duplicates, 2 refused")
    assert "line 2: JSON: " in result.err
    assert "line 3: signal.jobId: " in result.err
    assert "Traceback" not in result.err


async def test_what_is_published_again_is_a_duplicate(service: app.Service, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(LINES[3])
    await call(service, "publish", str(path))

    result = await call(service, "publish", str(path))

    assert (result.code, result.out.split(" (")[0]) == (0, "0 accepted, 1 duplicates, 0 refused")


# What a script starts in the background has SIGINT ignored.
BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("number", "prefix"), [(signal.SIGINT, ()), (signal.SIGTERM, ()), (signal.SIGINT, BACKGROUND)]
)
async def test_a_subscriber_prints_events_and_says_how_to_resume(
    service: app.Service, number: signal.Signals, prefix: Sequence[str]
) -> None:
    await call(service, "publish", "-", given=lines(LINES[0], LINES[3]))
    process = await start(service, "subscribe", "--from", "earliest", "--json", prefix=prefix)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        read = [json.loads(await process.stdout.readline()) for _ in range(3)]

    process.send_signal(number)
    async with asyncio.timeout(30):
        _, err = await process.communicate()

    assert [each["type"] for each in read] == ["event", "event", "caughtUp"]
    assert [each["position"] for each in read] == [1, 2, 2]
    assert read[0]["signal"]["jobName"] == "训练"
    assert read[1]["uuid"] == LAST
    assert process.returncode == 128 + number
    resume = f"subscribe --after {LAST} --server {services.grpc_address(service)} --json"
    assert f"{resume}\n" in err.decode().partition("resume with: ")[2]


async def test_a_publisher_that_waits_for_more_ends_when_told_to(service: app.Service) -> None:
    process = await start(service, "publish", "-")
    assert process.stdin is not None
    process.stdin.write(lines(LINES[0]).encode())

    def recorded() -> None:
        assert service.tail.head == 1

    await polling.eventually(recorded)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        _, err = await process.communicate()

    assert process.returncode == 143
    assert "Traceback" not in err.decode()


async def test_a_subscriber_resumes_after_a_uuid(service: app.Service) -> None:
    await call(service, "publish", "-", given=lines(LINES[3], LINES[0]))
    process = await start(service, "subscribe", "--after", LAST)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        line = (await process.stdout.readline()).decode()

    process.kill()
    await process.wait()

    assert line.split()[0] == "2"
    assert "训练" in line


async def test_a_name_that_the_terminal_cannot_show_ends_nothing(service: app.Service) -> None:
    await call(service, "publish", "-", given=lines(LINES[0]))

    shown = await call(service, "job", "job-1", prefix=("env", "PYTHONIOENCODING=ascii"))

    assert "\\u8bad\\u7ec3" in shown.out, shown.err


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
async def test_a_subscriber_whose_output_is_closed_follows_until_it_is_told_to_end(
    service: app.Service, closed: str
) -> None:
    await services.publish(service, made.submission())
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh")
    process = await start(service, "subscribe", prefix=shell)

    async def follows() -> None:
        assert service.rpc.open_calls == 1

    await polling.eventually(follows, 60)
    process.send_signal(signal.SIGTERM)
    _, err = await process.communicate()

    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err.decode()


async def test_a_uuid_that_the_log_does_not_hold_ends_with_what_to_do(service: app.Service) -> None:
    result = await call(service, "subscribe", "--after", LAST)

    assert result.code == 1
    assert f"lastSeenUuid {LAST} is not in this log" in result.err
    assert "Traceback" not in result.err


async def test_the_rest_port_is_told_from_the_grpc_port(service: app.Service) -> None:
    address = f"127.0.0.1:{service.http_port}"

    results = [
        await call(service, "subscribe", "--server", address),
        await call(service, "publish", "-", "--server", address, given=LINES[0]),
    ]

    assert [result.code for result in results] == [1, 1]
    assert all("is this the gRPC port" in result.err for result in results)


async def test_a_job_is_shown(service: app.Service) -> None:
    await call(service, "publish", "-", given=LINES[0])

    shown = await call(service, "job", "job-1")
    described = json.loads((await call(service, "job", "job-1", "--json")).out)
    unknown = await call(service, "job", "nope")

    assert "训练" in shown.out
    assert "Pending" in shown.out
    assert "logOutput" not in shown.out
    assert (described["jobID"], described["regionID"]) == ("job-1", "default")
    assert (unknown.code, "nope" in unknown.err) == (1, True)


async def test_the_demonstration_finds_every_event_once_also_when_played_again(service: app.Service) -> None:
    options = ("demo", "--pods", "60", "--seed", "1", "--rate", "1000", "--cuts", "5")

    first = await call(service, *options)
    second = await call(service, *options)

    for result in (first, second):
        assert result.code == 0, result.err
        assert result.out.count("got every event once, in order") == 3
        assert "killed and resumed 5 times" in result.out
    assert " 0 of them duplicates" in first.out
    assert "It was played before" in second.out


async def test_a_subscriber_of_the_demonstration_comes_back_to_a_service_that_was_away(database: str) -> None:
    async with services.running(database) as service:
        first, _ = await services.publish(service, made.submission("a"), made.submission("b"))
        address = connection.Address.parse(services.grpc_address(service))
    follows = follower.Follower("it")
    follows.seen.append((first.position, str(first.uuid)))

    def at_the_end() -> None:
        assert follows.position == 2

    following = asyncio.create_task(follows.run(address, selection.StartFrom.EARLIEST))
    async with services.running(database, grpc_port=address.port):
        await polling.eventually(at_the_end, 60)
        following.cancel()
        await asyncio.wait({following})


@pytest.mark.parametrize("before", [0, 100])
async def test_a_publisher_outlives_a_restart_of_the_service(database: str, before: int) -> None:
    submissions = events.of(generated.generate(60, seed=1))
    positions: list[int] = []
    restarted = asyncio.Event()

    async def source() -> AsyncGenerator[batches.Batch]:
        yield submissions[:before]
        await restarted.wait()
        yield submissions[before:]

    def answered(_: batches.Batch, outcomes: Sequence[batches.Outcome]) -> None:
        positions.extend(each.position for each in outcomes if isinstance(each, event.Receipt))

    async with services.running(database) as service:
        address = connection.Address.parse(services.grpc_address(service))
        publication = asyncio.create_task(publishing.publish(address, source(), answered))

        def waiting() -> None:
            assert service.rpc.open_calls, "it is connected"
            assert len(positions) == before

        await polling.eventually(waiting)
    async with services.running(database, grpc_port=address.port):
        restarted.set()
        async with asyncio.timeout(30):
            await publication

    assert positions == list(range(1, len(submissions) + 1))
