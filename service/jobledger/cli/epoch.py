"""``jobledger epoch``: the histories of a log; a new one is due when an older backup was restored."""

from __future__ import annotations

import msgspec
import typer

from jobledger.cli import options, serve, verify

program = typer.Typer(
    help="The histories of the log: a restored backup goes on under a new one.", no_args_is_help=True
)


@program.command("show")
def show(*, data_dir: serve.DataDir = None, as_json: options.Json = False) -> None:
    """Print every epoch and the position that it begins at, the oldest first."""
    from jobledger import upkeep  # noqa: PLC0415 - the base installation has no server

    known = verify.finished(upkeep.known_epochs(verify.loaded(data_dir)))
    if as_json:
        typer.echo(msgspec.json.encode(known).decode())
        return
    for each in known:
        typer.echo(f"{each.epoch} from position {each.from_position}")


@program.command("new")
def new(*, data_dir: serve.DataDir = None, as_json: options.Json = False) -> None:
    """Begin a new epoch after the log's end. Do it once, after an older backup was restored.

    Subscribers whose cursor the backup does not hold are then told so; all others resume.
    """
    from jobledger import upkeep  # noqa: PLC0415 - the base installation has no server

    begun = verify.finished(upkeep.new_epoch(verify.loaded(data_dir)))
    if as_json:
        typer.echo(msgspec.json.encode(begun).decode())
    else:
        typer.echo(f"epoch {begun.epoch} begins at position {begun.from_position}")
