"""``jobledger demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from jobledger.cli import options, play, terminal
from jobledger.client import connection
from jobledger.trace import events, generated, pods


def command(
    *,
    trace: Annotated[
        Path | None,
        typer.Option(
            envvar="TRACE",
            help="The pod list of Alibaba's GPU cluster of 2023 (openb_pod_list_default.csv of GitHub's "
            "alibaba/clusterdata); without it a trace of the same shape is generated.",
        ),
    ] = None,
    count: Annotated[int, typer.Option("--pods", min=1, help="Pods to generate.")] = generated.PODS,
    seed: Annotated[
        int | None, typer.Option(help="What to generate from; another each time unless given.")
    ] = None,
    subscribers: Annotated[int, typer.Option(min=1, help="How many follow.")] = 3,
    cuts: Annotated[int, typer.Option(min=0, help="How often the last of them is killed and resumes.")] = 10,
    rate: Annotated[float, typer.Option(min=1, help="Events a second.")] = 2_000,
    server: options.Server = options.DEFAULT_SERVER,
) -> None:
    """Play a cluster's life into the running service, watch subscribers follow, and check what they got."""
    if seed is None:
        seed = int(time.time())
    problems = terminal.run(_play(server, trace, count, seed, subscribers, cuts, rate))
    if problems:
        terminal.fail("\n".join(("what subscribers got is not what was published:", *problems)))


async def _play(  # noqa: PLR0917 - the command's options, handed on once
    server: str, trace: Path | None, count: int, seed: int, subscribers: int, cuts: int, rate: float
) -> list[str]:
    address = connection.Address.parse(server)
    if trace is None:
        lives = generated.generate(count, seed=seed)
        typer.echo(f"Playing a generated trace of {count:,} pods, seed {seed}; TRACE=file plays a real one.")
    else:
        lives = pods.read(trace)
        typer.echo(f"Playing the real trace {trace}.")
    demonstration = play.Play(events.of(lives), subscribers=subscribers, cuts=cuts)
    await demonstration.run(address, rate)
    return demonstration.check()
