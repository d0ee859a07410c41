"""docker-compose.yml and .env.example against the settings: nothing forgotten, nothing that is no setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobledger import settings

ROOT = Path(__file__).parents[2]
SETTINGS = {f"JOBLEDGER_{name.upper()}" for name in settings.Settings.model_fields}

FIXED = {
    "JOBLEDGER_HOST",
    "JOBLEDGER_DATA_DIR",
    "JOBLEDGER_DATABASE_URL",
    "JOBLEDGER_DATABASE_PASSWORD_FILE",
    "JOBLEDGER_DATABASE_WAIT_SECONDS",
    "JOBLEDGER_MIGRATION_DATABASE_URL",
    "JOBLEDGER_POSTGRES_BINARIES",
    "JOBLEDGER_LOG_FORMAT",
}
"""Settings that the image or docker-compose.yml decides: there is nothing to choose."""

COMPOSE_ONLY = {
    "JOBLEDGER_IMAGE",
    "JOBLEDGER_MEMORY",
    "JOBLEDGER_PUBLISH_ADDRESS",
    "JOBLEDGER_REPLICAS",
    "JOBLEDGER_STOP_GRACE_PERIOD",
}
"""What only docker-compose.yml knows."""

EXAMPLES = {"JOBLEDGER_ROLES", "JOBLEDGER_CORS_ORIGINS"}
"""Off by default, so that .env.example shows a value that is not the default."""


def example() -> dict[str, str]:
    return dict(re.findall(r"^#?(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_every_setting_can_be_set_through_compose_and_is_in_the_example() -> None:
    compose = (ROOT / "docker-compose.yml").read_text()
    taken = set(re.findall(r"^      (JOBLEDGER_\w+):", compose, re.MULTILINE))
    taken |= set(re.findall(r"\$\{(\w+)", compose))
    told = set(example())

    assert SETTINGS - FIXED - taken == set(), "not handed on by docker-compose.yml"
    assert SETTINGS - FIXED - told == set(), "not in .env.example"
    assert told - taken == set(), "in .env.example, and nobody takes it"


def test_example_holds_nothing_but_settings_and_what_compose_knows() -> None:
    ours = {name for name in example() if name.startswith("JOBLEDGER_")}

    assert ours - SETTINGS - COMPOSE_ONLY == set()


def test_example_shows_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    default = settings.load()
    shown = {name: value for name, value in example().items() if name in SETTINGS - EXAMPLES}
    for name, value in shown.items():
        monkeypatch.setenv(name, value)

    assert settings.load() == default


def test_example_changes_nothing_as_it_is() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()

    assert [line for line in lines if line and not line.startswith("#")] == []
