"""``jobledger serve`` and ``jobledger migrate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from jobledger import errors
from jobledger.cli import options, terminal

if TYPE_CHECKING:
    from jobledger import app

EXAMPLE_EVENT = '{"signal":{"jobId":"job-1","jobName":"train","jobStatus":"pending","operator":"add"}}'
EXAMPLE_QUERY = "select position, recorded_at, operator, job_id, job_status from job_events"

DataDir = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        envvar="JOBLEDGER_DATA_DIR",
        help="Directory of the embedded Postgres, used unless JOBLEDGER_DATABASE_URL names another. "
        "[default: $XDG_DATA_HOME/jobledger, else ~/.local/share/jobledger]",
    ),
]


def serve(
    *,
    host: Annotated[
        str | None,
        typer.Option(envvar="JOBLEDGER_HOST", help="Address to listen on. [default: 127.0.0.1]"),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, envvar="JOBLEDGER_GRPC_PORT", help="gRPC; 0 takes a free one. [default: 8899]"
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, envvar="JOBLEDGER_HTTP_PORT", help="REST; 0 takes a free one. [default: 8080]"
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="JOBLEDGER_WORKERS",
            help="Processes that serve the same ports; about one a core. [default: 1]",
        ),
    ] = None,
    data_dir: DataDir = None,
    migrate: Annotated[
        bool, typer.Option("--migrate/--no-migrate", help="Bring the schema up first.")
    ] = True,
    as_json: options.Json = False,
) -> None:
    """Run the service until it is stopped.

    With JOBLEDGER_DATABASE_URL it uses that PostgreSQL (15 to 18), else a private one in the data
    directory. Every other setting is a JOBLEDGER_ variable too: see docs/operations.md.
    """
    try:
        from jobledger import app, settings  # noqa: PLC0415 - the base installation has no server
        from jobledger import workers as several  # noqa: PLC0415 - the same
    except ModuleNotFoundError as missing:
        _needs_server("serve", missing)

    given = {
        "host": host,
        "grpc_port": grpc_port,
        "http_port": http_port,
        "workers": workers,
        "data_dir": data_dir,
    }
    try:
        loaded = settings.load(**{name: value for name, value in given.items() if value is not None})
    except errors.SetupError as error:
        terminal.fail(str(error), terminal.SETUP)

    def announce(ready: app.Ready) -> None:
        typer.echo(_as_json(ready) if as_json else _as_text(ready, loaded.default_region))

    serving = several.serve if loaded.workers > 1 else app.serve
    terminal.run(serving(loaded, migrate=migrate, on_ready=announce))


def migrate(*, data_dir: DataDir = None) -> None:
    """Bring the database's schema up to this release. Safe to run twice, and at once."""
    try:
        from jobledger import app, settings  # noqa: PLC0415 - the base installation has no server
    except ModuleNotFoundError as missing:
        _needs_server("migrate", missing)

    try:
        loaded = settings.load(**({} if data_dir is None else {"data_dir": data_dir}))
    except errors.SetupError as error:
        terminal.fail(str(error), terminal.SETUP)
    typer.echo(terminal.run(app.migrate(loaded)))


def _needs_server(command: str, missing: ModuleNotFoundError) -> NoReturn:
    if missing.name is None or missing.name.partition(".")[0] == "jobledger":
        raise missing
    terminal.fail(
        f"jobledger {command} needs the server extra: pip install 'jobledger[server]'", terminal.SETUP
    )


def _as_json(ready: app.Ready) -> str:
    return json.dumps(
        {"ready": True, "grpc": ready.grpc, "http": ready.http, "postgres": ready.postgres},
        separators=(",", ":"),
    )


def _as_text(ready: app.Ready, region: str) -> str:
    jobledger = terminal.called()
    return f"""\
JobLedger is ready.
  gRPC      {ready.grpc}
  REST      http://{ready.http}
  Postgres  {ready.postgres}

Try next, in another terminal:
  {jobledger} subscribe --server {ready.grpc}
  echo '{EXAMPLE_EVENT}' | {jobledger} publish - --server {ready.grpc}
  curl 'http://{ready.http}/v4/cwai/job/job-1?regionID={region}'
  psql '{ready.postgres}' -c '{EXAMPLE_QUERY}'

Ctrl-C stops it."""
