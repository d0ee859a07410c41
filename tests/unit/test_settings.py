from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobledger import errors, settings


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.Settings.model_fields:
        monkeypatch.delenv(f"JOBLEDGER_{name.upper()}", raising=False)


def test_a_variable_goes_before_the_default_and_an_option_before_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBLEDGER_GRPC_PORT", "1234")
    monkeypatch.setenv("JOBLEDGER_HTTP_PORT", "5678")

    loaded = settings.load(http_port=0)

    assert (loaded.grpc_port, loaded.http_port, loaded.host) == (1234, 0, "127.0.0.1")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_DATABASE_URL", "")

    assert settings.load().database_url is None


def test_roles_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_ROLES", "CCAgent, FdAgent,")

    assert settings.load().roles == ("CCAgent", "FdAgent")


def test_the_zone_is_a_zone_of_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_ZONE", "America/New_York")

    assert settings.load().zone == ZoneInfo("America/New_York")


def test_every_value_that_will_not_do_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_POLL_SECONDS", "0")
    monkeypatch.setenv("JOBLEDGER_ZONE", "Nowhere")

    with pytest.raises(errors.SetupError) as refused:
        settings.load(grpc_port=65_536)

    for name in ("JOBLEDGER_POLL_SECONDS", "JOBLEDGER_ZONE", "JOBLEDGER_GRPC_PORT"):
        assert name in str(refused.value)


def test_no_password_of_a_dsn_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_DATABASE_URL", "mysql://ledger:canary@host/db")
    with pytest.raises(errors.SetupError) as refused:
        settings.load()
    monkeypatch.setenv("JOBLEDGER_DATABASE_URL", "postgresql://ledger:canary@host/db")
    loaded = settings.load()

    assert "must start with postgresql://" in str(refused.value)
    assert "canary" not in f"{refused.value!r} {loaded!r} {loaded}"


def test_the_data_directory_does_not_depend_on_where_it_is_called_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")

    assert settings.load().data_dir == Path("/home/someone/.local/share/jobledger")


def test_every_setting_has_its_words() -> None:
    source = Path(settings.__file__).read_text()

    for name in settings.Settings.model_fields:
        after = source.split(f"\n    {name}: ", 1)[1].split("\n\n", 1)[0]
        assert '"""' in after, f"{name} has no line that says what it means"
