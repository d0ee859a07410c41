"""A secret that was posted shows up on no surface that reads."""

from __future__ import annotations

import json
import logging
import secrets

import pytest

from tests.support import ledgers, rest


async def test_secret_shows_on_no_reading_surface(
    ledger: ledgers.Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    canary = f"canary{secrets.token_hex(12)}"
    surfaces = [
        "/v4/cwai/job/job-1?regionID=region-1",
        "/v4/cwai/job/job-1?regionID=region-1&asOf=1&includeDeleted=true",
        "/v4/cwai/job/job-1/events?regionID=region-1",
        "/v4/cwai/jobs?regionID=region-1&detail=true",
        "/v4/cwai/jobs?regionID=region-1&detail=true&asOf=1",
        "/metrics",
        "/openapi.json",
    ]
    async with rest.serving(ledger) as api:
        await api.post(
            {
                "name": "known",
                "envs": [{"name": "API_TOKEN", "value": canary}],
                "command": ["run", f"--db-password={canary}", f"https://user:{canary}@host/"],
                "output": {"accessKeyID": "x", "accessKeySecret": canary},
            }
        )
        said = [(await api.get(target)).body.decode() for target in surfaces]
        url = f"http://127.0.0.1:{api.port}/v4/cwai/events"
        async with api.session.get(url) as stream:
            while not (line := (await stream.content.readline()).decode()).startswith("data: "):
                pass
            said.append(line)

    assert json.loads(said[0])["returnObj"]["envs"][0]["value"] == "******"
    assert "job-1" in said[-1]
    assert [target for target, text in zip([*surfaces, url], said, strict=True) if canary in text] == []
    assert canary not in caplog.text
