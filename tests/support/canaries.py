"""Secrets that must be nowhere afterwards, and everything that is stored."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from typing import Any

import asyncpg

from tests.support import dumps
from tests.support import postgres as support


def made() -> tuple[dict[str, Any], list[str]]:
    """A job with a fresh secret in every place that the contract names, and the secrets."""
    secret_values: list[str] = []

    def canary() -> str:
        secret_values.append(f"cnry{secrets.token_hex(12)}")
        return secret_values[-1]

    def output() -> dict[str, str]:
        return {
            "zosEndpoint": f"http://user:{canary()}@10.0.0.1",
            "accessKeyID": "AKID" + canary() + "END",
            "accessKeySecret": canary(),
        }

    yaml = {
        "spec": {
            "containers": [
                {
                    "env": [{"name": "HF_TOKEN", "value": canary()}],
                    "args": ["--api-key", canary(), f"--password={canary()}"],
                }
            ]
        }
    }
    body = {
        "output": output(),
        "logOutput": output(),
        "envs": [
            {"name": name, "value": canary()}
            for name in (
                "AWS_SECRET_ACCESS_KEY",
                "mySqlPassword",
                "GITHUB_TOKENS",
                "SK",
                "apikey",
                "db.passwd",
            )
        ],
        "command": [
            "--hf-token",
            canary(),
            f"--access-token={canary()}",
            "sh",
            "-c",
            f"export DB_PASSWORD={canary()} && git clone https://me:{canary()}@example.org/x",
        ],
        "pods": [{"name": "pod-1", "yaml": yaml}],
    }
    return body, secret_values


def found(text: str, hidden: list[str]) -> list[str]:
    """Those of the secrets that a text shows."""
    return [secret for secret in hidden if secret in text]


async def everything_stored(connection: asyncpg.Connection[asyncpg.Record]) -> str:
    """All rows of all tables, bytes as text too."""
    texts: list[str] = []
    tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    for table in tables:
        rows = await connection.fetch(f'select * from "{table["tablename"]}"')  # noqa: S608 - the catalogue's names
        texts += [
            value.decode("latin-1") if isinstance(value, bytes) else str(value)
            for row in rows
            for value in row
        ]
    return "\n".join(texts)


async def dumped(server: support.Postgres, dsn: str) -> str:
    """What pg_dump writes of a database."""
    command = [str(dumps.program(server, "pg_dump")), dsn]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    return done.stdout.decode()
