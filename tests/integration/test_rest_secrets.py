"""A secret that comes in by REST is nowhere afterwards: not in answers, tables or logs."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import subprocess
from typing import Any

import asyncpg
import pytest

from tests.support import dumps, ledgers, rest
from tests.support import postgres as support


def canaries() -> tuple[dict[str, Any], list[str]]:
    """A job with a fresh secret in every place that the contract names, and the secrets."""
    made: list[str] = []

    def canary() -> str:
        made.append(f"cnry{secrets.token_hex(12)}")
        return made[-1]

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
    return body, made


def found(text: str, made: list[str]) -> list[str]:
    return [secret for secret in made if secret in text]


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


async def test_secret_in_a_posted_job_is_in_no_dump(database: str, postgres: support.Postgres) -> None:
    body, made = canaries()
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        await api.post(body)
        await api.post({"comment": "told-in-a-dump", **body})

    dump = await dumped(postgres, database)

    assert "told-in-a-dump" in dump
    assert not found(dump, made)
    # Columns of bytes are dumped in hexadecimal.
    assert not found(dump, [secret.encode().hex() for secret in made])


async def test_secret_in_a_posted_job_is_nowhere_afterwards(
    database: str, connection: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body, made = canaries()
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        answers = [await api.post(body), await api.job(), await api.post({"comment": "again", **body})]
        answers += [await api.delete()]

    assert [answer.envelope["statusCode"] for answer in answers] == [800] * 4
    assert json.loads(answers[1].body)["returnObj"]["output"]["accessKeySecret"] == "******"
    stored = await everything_stored(connection)
    assert '"accessKeySecret":"******"' in stored
    assert not found(stored, made)
    assert not found("".join(answer.body.decode() for answer in answers), made)
    assert not found(caplog.text, made)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"output": {"accessKeySecret": "CANARY", "unknown": 1}},
        {"output": {"accessKeySecret": ["CANARY"]}},
        {"output": {"accessKeySecret": "CANARY\0"}},
        {"output": "CANARY"},
        {"envs": [{"name": "TOKEN", "value": {"value": "CANARY"}}]},
        {"envs": "TOKEN=CANARY"},
        {"command": ["--token", 5, "CANARY"], "replicas": "many"},
        {"command": "--token CANARY"},
        {"pods": [{"yaml": "token: CANARY"}]},
        {"signal": {"jobStatus": 5}, "output": {"accessKeySecret": "CANARY"}},
        {"signal": {"time": ["CANARY"]}},
        {"uuid": ["CANARY"]},
        {"comment": "CANARY\ud800"},
    ],
)
async def test_refusal_does_not_show_a_secret(
    database: str, caplog: pytest.LogCaptureFixture, spoiled: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = f"cnry{secrets.token_hex(12)}"
    text = json.dumps({"jobID": "job-1", "regionID": rest.REGION, **spoiled}).replace("CANARY", canary)
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        headers = {"Content-Type": "application/json"}
        answers = [
            await api.call("POST", "/v4/cwai/job", data=data, headers=headers)
            for data in (text, text[:-1], text + text, text.encode() + b"\xff")
        ]

    assert [answer.code for answer in answers] == ["BadRequest"] * 4
    shown = "".join(answer.failure[1] for answer in answers)
    assert not found(shown + caplog.text, [canary])
