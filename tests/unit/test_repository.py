"""What holds for the repository as a whole, beside what ruff, pyright and import-linter see."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jobledger

TOP = Path(__file__).parents[2]
ROOTS = ("service", "migrations", "proto", "tests", "docs", "benchmarks", ".ci")
MOST_LINES = 400

FORBIDDEN = ("pypi.org", "pythonhosted.org", "npmjs.org", "debian.org", "proxy.golang.org", "/work/")


def test_a_start_loads_no_sqlalchemy_unless_it_migrates() -> None:
    program = "import sys, jobledger.app, jobledger.workers; print('sqlalchemy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert told.stdout == "False\n"


def texts() -> Iterator[tuple[str, str]]:
    beside = (path for path in TOP.iterdir() if path.is_file() and path.name != ".coverage")
    for path in [*beside, *(path for root in ROOTS for path in (TOP / root).rglob("*"))]:
        if path.is_file() and "__pycache__" not in path.parts and path != Path(__file__):
            yield str(path.relative_to(TOP)), path.read_text(errors="replace")


def project() -> dict[str, Any]:
    return tomllib.loads((TOP / "pyproject.toml").read_text())["project"]


def pinned() -> dict[str, str]:
    lines = (TOP / "constraints.txt").read_text().splitlines()
    pins = [line.partition(";")[0].strip() for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (pin.partition("==") for pin in pins)}


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_text_names_a_registry_or_somebodys_machine(word: str) -> None:
    assert [name for name, text in texts() if word in text] == []


def test_no_file_of_the_program_is_longer_than_a_reader_can_hold() -> None:
    sizes = {
        name: len(text.splitlines())
        for name, text in texts()
        if re.fullmatch(r"(service|migrations)/.*\.py", name) and "_proto" not in name
    }

    assert len(sizes) > len(ROOTS)
    assert {name: lines for name, lines in sizes.items() if lines > MOST_LINES} == {}


def test_the_version_is_written_once_and_has_its_changes() -> None:
    assert "version" in project()["dynamic"]
    assert f"\n## {jobledger.__version__}" in (TOP / "CHANGELOG.md").read_text()


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    declared = project()
    required = [*declared["dependencies"], *itertools.chain(*declared["optional-dependencies"].values())]
    pins = pinned()

    for requirement in map(Requirement, required):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not allow {version}"


def test_constraints_name_versions_and_nothing_else() -> None:
    for name, version in pinned().items():
        assert re.fullmatch(r"[a-z0-9-]+", name), name
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"{name}: {version}"
