"""The service as ``docker-compose up`` runs it: containers to be killed, cut off and restarted."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]

PROXY_STANDIN = "jobledger-test-haproxy"
"""Image built from Debian's package, for where the official one cannot be had."""

READY = (
    "import sys, urllib.request, urllib.error\n"
    "try: urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)\n"
    "except OSError: sys.exit(1)"
)


def missing() -> str:
    """Why nothing can be composed here; "" if it can."""
    if os.geteuid() != 0:
        return "containers are killed by their host pid and cut off in their network namespace: only root can"
    for program in ("docker", "nsenter", "iptables"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    try:
        compose_command()
    except FileNotFoundError as error:
        return str(error)
    if _run("docker", "info", check=False).returncode:
        return "no Docker daemon answers"
    return ""


def compose_command() -> tuple[str, ...]:
    """Compose v2 if Docker has it, else docker-compose.

    Raises:
        FileNotFoundError: there is neither.
    """
    if not _run("docker", "compose", "version", check=False).returncode:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        raise FileNotFoundError("there is neither `docker compose` nor docker-compose here")
    return ("docker-compose",)


def compose_version() -> str:
    """The version that the tests run with."""
    return _run(*compose_command(), "version").stdout.splitlines()[0]


def build_images() -> dict[str, str]:
    """Build what the project needs; what to set so that compose takes it."""
    variables = {"JOBLEDGER_IMAGE": "jobledger-test"}
    python = os.environ.get("PYTHON_IMAGE", "python:3.13-slim")
    # The builder that every Docker has: nothing in the Dockerfile may need BuildKit.
    plain = {**os.environ, "DOCKER_BUILDKIT": "0"}
    build = ("docker", "build", "--quiet", "--build-arg", f"PYTHON_IMAGE={python}", "--tag")
    _run(*build, variables["JOBLEDGER_IMAGE"], str(ROOT), environment=plain)
    if not os.environ.get("PROXY_IMAGE"):
        here = ROOT / "tests" / "compose"
        dockerfile = str(here / "haproxy.Dockerfile")
        _run(*build, PROXY_STANDIN, "--file", dockerfile, str(here), environment=plain)
        variables["PROXY_IMAGE"] = PROXY_STANDIN
    return variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One set of containers, networks and volumes, with ports of its own."""

    name: str
    environment: dict[str, str]
    grpc_port: int
    http_port: int

    @property
    def grpc(self) -> str:
        """What a gRPC client dials."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def url(self) -> str:
        """Where REST is."""
        return f"http://127.0.0.1:{self.http_port}"

    def compose(self, *arguments: str, overrides: Sequence[Path] = (), check: bool = True) -> str:
        """Run a command of compose, with more files that change what docker-compose.yml says."""
        # Not a developer's own .env: it must not decide what is tested.
        settings = ("--env-file", str(ROOT / ".env.example"))
        files = [f"--file={file}" for file in (ROOT / "docker-compose.yml", *overrides)]
        command = (*compose_command(), *files, *settings, "--project-name", self.name, *arguments)
        return _run(*command, environment=self.environment, check=check).stdout

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers, running or not, in the order of their names."""
        of_project, of_service = "label=com.docker.compose.project", "label=com.docker.compose.service"
        lines = _run(
            *("docker", "ps", "--all", "--format", "{{.Names}} {{.ID}}"),
            *("--filter", f"{of_project}={self.name}", "--filter", f"{of_service}={service}"),
        ).stdout.splitlines()
        return [line.split()[1] for line in sorted(lines)]

    def query(self, sql: str) -> list[list[str]]:
        """Rows of a query, as psql in the Postgres container has them."""
        [postgres] = self.containers("postgres")
        command = ("psql", "-U", "jobledger", "-At", "-F", "|", "-c", sql)
        return [row.split("|") for row in _run("docker", "exec", postgres, *command).stdout.splitlines()]

    def dump(self, file: Path) -> None:
        """What docs/operations.md says to do for a backup."""
        with file.open("wb") as output:
            self._in_postgres(
                "pg_dump", "--username", "jobledger", "--format", "custom", "jobledger", output=output
            )

    def restore(self, file: Path) -> None:
        """What docs/operations.md says to do with it."""
        command = ("pg_restore", "--username", "jobledger", "--dbname", "jobledger", "--exit-on-error")
        with file.open("rb") as given:
            self._in_postgres(*command, given=given)

    def _in_postgres(
        self,
        *command: str,
        given: IO[bytes] | int = subprocess.DEVNULL,
        output: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        [postgres] = self.containers("postgres")
        subprocess.run(["docker", "exec", "-i", postgres, *command], stdin=given, stdout=output, check=True)

    def ready(self) -> int:
        """How many replicas are ready, by what each says itself."""
        command = ("python", "-S", "-c", READY)
        probes = [_start("docker", "exec", each, *command) for each in self.containers("ledger")]
        return sum(not probe.wait() for probe in probes)


def inspect(container: str, template: str) -> str:
    """What Docker says of a container."""
    return _run("docker", "inspect", "--format", template, container).stdout.strip()


def kill(container: str) -> None:
    """Kill its main process as the kernel would: Docker sees it die, and restarts it by its policy."""
    os.kill(int(inspect(container, "{{.State.Pid}}")), signal.SIGKILL)


def stop(container: str) -> None:
    """Stop it in order; its SIGTERM, and after its grace period Docker's kill."""
    _run("docker", "stop", container)


def start(container: str) -> None:
    """Start it again."""
    _run("docker", "start", container)


@contextlib.contextmanager
def cut(container: str, *, peer_port: int | None = None, own_ports: Sequence[int] = ()) -> Generator[None]:
    """Drop every packet to and from a peer's port, or to and from the container's own; nobody is told."""
    pid = inspect(container, "{{.State.Pid}}")
    rules = [
        *([("INPUT", "--sport", peer_port), ("OUTPUT", "--dport", peer_port)] if peer_port else []),
        *[rule for port in own_ports for rule in (("INPUT", "--dport", port), ("OUTPUT", "--sport", port))],
    ]

    def change(how: str) -> None:
        for chain, side, port in rules:
            inside = ("nsenter", "-t", pid, "-n")
            _run(*inside, "iptables", "-w", how, chain, "-p", "tcp", side, str(port), "-j", "DROP")

    change("-I")
    try:
        yield
    finally:
        change("-D")


@contextlib.contextmanager
def project(images: dict[str, str]) -> Generator[Project]:
    """A project on which nothing has been started yet; gone afterwards with its volumes."""
    grpc_port, http_port = _free_port(), _free_port()
    name = f"jobledger-test-{secrets.token_hex(3)}"
    made = Project(
        name=name,
        environment={
            **{key: value for key, value in os.environ.items() if not key.startswith("JOBLEDGER_")},
            **images,
            "JOBLEDGER_GRPC_PORT": str(grpc_port),
            "JOBLEDGER_HTTP_PORT": str(http_port),
        },
        grpc_port=grpc_port,
        http_port=http_port,
    )
    try:
        yield made
    finally:
        made.compose("down", "--volumes", "--timeout", "3", check=False)


def state(container: str) -> dict[str, object]:
    """Its state: Running, ExitCode, OOMKilled …"""
    return json.loads(inspect(container, "{{json .State}}"))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _start(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _run(
    *command: str, environment: dict[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done
