"""A secret that comes in by REST is nowhere afterwards: not in answers, tables or logs."""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any

import asyncpg
import pytest

from tests.support import canaries, ledgers, rest
from tests.support import postgres as support


async def test_secret_in_a_posted_job_is_in_no_dump(database: str, postgres: support.Postgres) -> None:
    body, made = canaries.made()
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        await api.post(body)
        await api.post({"comment": "told-in-a-dump", **body})

    dump = await canaries.dumped(postgres, database)

    assert "told-in-a-dump" in dump
    assert not canaries.found(dump, made)
    # Columns of bytes are dumped in hexadecimal.
    assert not canaries.found(dump, [secret.encode().hex() for secret in made])


async def test_secret_in_a_posted_job_is_nowhere_afterwards(
    database: str, connection: asyncpg.Connection[asyncpg.Record], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body, made = canaries.made()
    async with ledgers.running(database) as ledger, rest.serving(ledger) as api:
        answers = [await api.post(body), await api.job(), await api.post({"comment": "again", **body})]
        answers += [await api.delete()]

    assert [answer.envelope["statusCode"] for answer in answers] == [800] * 4
    assert json.loads(answers[1].body)["returnObj"]["output"]["accessKeySecret"] == "******"
    stored = await canaries.everything_stored(connection)
    assert '"accessKeySecret":"******"' in stored
    assert not canaries.found(stored, made)
    assert not canaries.found("".join(answer.body.decode() for answer in answers), made)
    assert not canaries.found(caplog.text, made)


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
    assert not canaries.found(shown + caplog.text, [canary])
