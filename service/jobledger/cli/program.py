"""The command line, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import jobledger
from jobledger.cli import demo, epoch, job, publish, serve, subscribe, verify

app = typer.Typer(
    help="A ledger of job events for AI clusters: append, replay, and prove what happened.",
    no_args_is_help=True,
    # Plain help: brackets and braces in it are JSON, no markup.
    rich_markup_mode=None,
    # A traceback is for us; with locals in it, it could show a DSN.
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("migrate")(serve.migrate)
app.command("publish")(publish.command)
app.command("subscribe")(subscribe.command)
app.command("job")(job.command)
app.command("demo")(demo.command)
app.command("verify")(verify.command)
app.command("rebuild")(verify.rebuild)
app.add_typer(epoch.program, name="epoch")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        typer.echo(f"jobledger {jobledger.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Takes the options that stand before a command."""


options.__doc__ = app.info.help
