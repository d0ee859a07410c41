"""``jobledger job``."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
import rich.console
import rich.table
import rich.text
import typer

from jobledger.cli import options, terminal


def command(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    *,
    region: Annotated[str, typer.Option(envvar="JOBLEDGER_REGION", help="The job's region.")] = "default",
    as_json: options.Json = False,
    url: options.Url = options.DEFAULT_URL,
) -> None:
    """Show what the ledger says of one job now."""
    from jobledger.client import rest  # noqa: PLC0415 - aiohttp takes longer to import than all the rest

    answer = terminal.run(rest.job(url, job_id, region))
    if as_json:
        typer.echo(answer)
        return
    described = msgspec.json.decode(answer, type=dict[str, object])
    table = rich.table.Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    for name, value in described.items():
        if _given(value):
            # As text: a name with brackets in it is no markup.
            table.add_row(name, rich.text.Text(_shown(value)))
    rich.console.Console().print(table)


def _given(value: object) -> bool:
    """Whether somebody said anything: REST answers with every key, and zeros and empty text for the rest."""
    if isinstance(value, dict):
        return any(map(_given, cast("dict[str, object]", value).values()))
    return bool(value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value)).decode()
