"""schemathesis, a stranger that knows only ``/openapi.json``, finds nothing that is not as it says there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support import described, ledgers, rest

ROOT = Path(__file__).parents[2]


# Half a minute on a machine of its own; here others may run.
@pytest.mark.timeout(600)
async def test_service_does_what_its_openapi_document_says(database: str, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(described.CONFIGURATION)
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
            "run",
            f"http://127.0.0.1:{api.port}/openapi.json",
            "--header=Accept: application/problem+json",
            # A stream has no end.
            "--exclude-operation-id=follow",
            "--phases=coverage,fuzzing,stateful",
            "--max-examples=8",
            "--generation-deterministic",
            "--generation-allow-x00=false",
            "--suppress-health-check=all",
            "--no-color",
            "--warnings=off",
            cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.support.described", "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()

    report = said.decode(errors="replace")
    assert process.returncode == 0, report
    assert "Stateful (not applicable)" not in report, report
