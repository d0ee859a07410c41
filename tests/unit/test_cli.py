from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.testing

import jobledger
from jobledger import errors
from jobledger.cli import program, sources, terminal
from jobledger.client import connection

runner = typer.testing.CliRunner()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody answers, and nobody else will start to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(jobledger.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )


def test_the_version_is_printed() -> None:
    result = runner.invoke(program.app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"jobledger {jobledger.__version__}\n")


def test_publish_help_shows_the_line_that_it_reads() -> None:
    shown = runner.invoke(program.app, ["publish", "--help"]).stdout

    for key in ("jobId", "frameWork", "HcclJson", "deleteTime", "detail", "accountId"):
        assert f'"{key}"' in shown


@pytest.mark.parametrize("command", ["publish", "subscribe", "demo"])
def test_where_the_service_is_can_be_a_variable(command: str) -> None:
    assert "JOBLEDGER_SERVER" in runner.invoke(program.app, [command, "--help"]).stdout


@pytest.mark.parametrize("option", ["HOST", "GRPC_PORT", "HTTP_PORT", "WORKERS", "DATA_DIR"])
def test_every_option_of_serve_can_be_a_variable(option: str) -> None:
    assert f"JOBLEDGER_{option}" in runner.invoke(program.app, ["serve", "--help"]).stdout


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_a_number_of_workers_that_will_not_do_is_named(count: str) -> None:
    result = runner.invoke(program.app, ["serve", "--workers", count])

    assert result.exit_code == 2
    assert "'--workers'" in result.output


@pytest.mark.parametrize("command", [["publish", "/dev/null"], ["subscribe"], ["demo", "--pods", "1"]])
def test_a_service_that_is_not_there_is_said_in_a_line(command: list[str], nobody: str) -> None:
    result = runner.invoke(program.app, [*command, "--server", nobody])

    assert result.exit_code == terminal.FAILED
    assert f"no JobLedger answers at {nobody}: connection refused" in result.stderr
    assert "jobledger serve" in result.stderr
    assert "Traceback" not in result.output


def test_asking_for_a_job_where_nobody_answers_is_said_in_a_line(nobody: str) -> None:
    result = runner.invoke(program.app, ["job", "job-1", "--url", f"http://{nobody}"])

    assert result.exit_code == terminal.FAILED
    assert f"no JobLedger answers at http://{nobody}" in result.stderr


def test_a_file_that_is_not_there_is_named(nobody: str) -> None:
    result = runner.invoke(program.app, ["publish", "/not/there", "--server", nobody])

    assert result.exit_code == terminal.FAILED
    assert "/not/there: No such file or directory" in result.stderr


@pytest.mark.parametrize("server", ["localhost", "localhost:", ":8899", "localhost:http", "h:65536"])
def test_a_server_that_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="HOST:PORT"):
        connection.Address.parse(server)


def test_a_server_may_be_an_ipv6_address() -> None:
    parsed = connection.Address.parse("[::1]:8899")

    assert (parsed.host, parsed.port, str(parsed)) == ("::1", 8899, "[::1]:8899")


def test_the_client_and_the_command_line_need_nothing_of_the_server() -> None:
    code = """if True:
        import sys
        from jobledger.cli import program
        from jobledger.client import publishing, rest, subscription
        of_server = {"pydantic_settings", "sqlalchemy", "asyncpg", "alembic", "jobledger.settings"}
        sys.exit(" ".join(sorted(of_server & set(sys.modules))))
    """

    assert python("-c", code).stderr.strip() == ""


def test_serve_without_the_server_extra_says_what_to_install() -> None:
    code = """if True:
        import sys
        sys.modules.update(dict.fromkeys(("pydantic_settings", "sqlalchemy", "asyncpg")))
        from jobledger import __main__
        __main__.main()
    """

    result = python("-c", code, "serve")

    assert result.returncode == terminal.SETUP
    assert "needs the server extra: pip install 'jobledger[server]'" in result.stderr


def refused(label: str, why: str) -> None:
    pytest.fail(f"{label}: {why}")


async def read(content: bytes, directory: Path) -> tuple[list[list[str]], list[str]]:
    path = directory / "events.jsonl"
    path.write_bytes(content)
    labels: list[str] = []
    with path.open("rb", buffering=0) as file:
        source = sources.from_lines(file.fileno(), lambda label, _: labels.append(label))
        return [[item.label for item in batch] async for batch in source], labels


async def test_a_bad_line_is_refused_by_number_and_its_neighbours_go_through(tmp_path: Path) -> None:
    labels, left_out = await read(b'{"signal":{}}\n{\n\n{"signal":{}}\r\n{"signal":{}}', tmp_path)

    assert [label for batch in labels for label in batch] == ["line 1", "line 4", "line 5"]
    assert left_out == ["line 2"]


async def test_a_line_longer_than_any_event_is_refused_alone(tmp_path: Path) -> None:
    long = b'{"signal":{"jobName":"' + b"x" * (sources.LINE_BYTES * 2) + b'"}}'

    labels, left_out = await read(b'{"signal":{}}\n' + long + b'\n{"signal":{}}\n', tmp_path)

    assert [label for batch in labels for label in batch] == ["line 1", "line 3"]
    assert left_out == ["line 2"]


async def test_many_lines_are_sent_in_bounded_batches(tmp_path: Path) -> None:
    labels, _ = await read(b'{"signal":{}}\n' * 1_201, tmp_path)

    assert sum(map(len, labels)) == 1_201
    assert max(map(len, labels)) <= sources.BATCH_EVENTS


async def test_a_line_of_a_pipe_is_there_before_the_next_one_comes() -> None:
    reading, writing = os.pipe()
    source = sources.from_lines(reading, refused)
    try:
        os.write(writing, b'{"signal":{}}\n{"sig')
        first = await anext(source)
        os.write(writing, b'nal":{}}\n')
        os.close(writing)
        second = await asyncio.wait_for(anext(source), 10)
    finally:
        os.close(reading)

    assert [[item.label for item in batch] for batch in (first, second)] == [["line 1"], ["line 2"]]
