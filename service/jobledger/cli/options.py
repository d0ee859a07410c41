"""Options that more than one command has."""

from __future__ import annotations

from typing import Annotated

import typer

Server = Annotated[
    str, typer.Option(metavar="HOST:PORT", envvar="JOBLEDGER_SERVER", help="The service's gRPC address.")
]
DEFAULT_SERVER = "127.0.0.1:8899"
"""Where ``jobledger serve`` listens for gRPC unless told otherwise."""

Url = Annotated[str, typer.Option(envvar="JOBLEDGER_URL", help="The service's REST address.")]
DEFAULT_URL = "http://127.0.0.1:8080"
"""Where ``jobledger serve`` listens for REST unless told otherwise."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
