from __future__ import annotations

import asyncio
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobledger import database, errors, settings


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


def test_a_misspelt_variable_is_refused_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLEDGER_GPRC_PORT", "1234")
    monkeypatch.setenv("JOBLEDGER_SERVER", "127.0.0.1:8899")

    with pytest.raises(
        errors.SetupError, match=r"JOBLEDGER_GPRC_PORT .* JOBLEDGER_GRPC_PORT meant"
    ) as refused:
        settings.load()

    assert "JOBLEDGER_SERVER" not in str(refused.value)


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


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://ledger:canary/x@host/db", "postgresql://[::1/db", "postgresql://host/db?sslmode=canary"],
)
@pytest.mark.parametrize("migrate", [True, False])
async def test_a_dsn_that_cannot_be_read_is_told_without_showing_it(dsn: str, *, migrate: bool) -> None:
    given = settings.load(database_url=dsn)

    with pytest.raises(errors.SetupError, match="percent-encoded") as refused:
        async with database.provided(given) as used:
            await database.prepared(used, given, migrate=migrate, stop=asyncio.Event())

    assert "canary" not in str(refused.value)


async def test_password_file_completes_the_dsn_without_its_line_break(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p@ss/w:rd%\n")
    given = settings.load(
        database_url="postgresql://ledger@host:5433/db?application_name=x", database_password_file=file
    )

    async with database.provided(given) as used:
        assert used.dsn == "postgresql://ledger:p%40ss%2Fw%3Ard%25@host:5433/db?application_name=x"


@pytest.mark.parametrize(
    ("dsn", "content", "said"),
    [
        ("postgresql://ledger:canary@host/db", b"canary", "both give a password"),
        ("postgresql://ledger@host/db?password=canary", b"canary", "both give a password"),
        ("postgresql://ledger@host/db", None, "No such file"),
        ("postgresql://ledger@host/db", b"canary\xff", "not UTF-8"),
    ],
)
async def test_password_file_that_will_not_do_is_refused_without_showing_a_password(
    dsn: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(errors.SetupError, match=said) as refused:
        async with database.provided(settings.load(database_url=dsn, database_password_file=file)):
            pass

    assert "canary" not in str(refused.value)
