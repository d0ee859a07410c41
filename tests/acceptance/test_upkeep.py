"""verify, rebuild and epoch as users call them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from jobledger.ledger import verify as verifying
from tests.support import auditing, events, ledgers, services

Connection = auditing.Connection


async def jobledger(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "jobledger",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **services.os.environ,
            "PYTHONPATH": str(Path(verifying.__file__).parents[2]),
            **variables,
        },
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_given_database_is_verified_rebuilt_and_found_bad(
    database: str, connection: Connection
) -> None:
    async with ledgers.running(database) as ledger:
        await ledger.receipts(*(events.submission(f"job-{n}") for n in range(5)))

    code, out, _ = await jobledger("verify", JOBLEDGER_DATABASE_URL=database)
    assert (code, "good: 5 events" in out, "keep this one" in out) == (0, True, True)
    anchor = next(line for line in out.splitlines() if line.startswith("anchor: ")).removeprefix("anchor: ")

    await connection.execute("update jobs set sid = 'wrong'")
    code, out, _ = await jobledger("verify", JOBLEDGER_DATABASE_URL=database)
    assert (code, "jobledger rebuild" in out) == (1, True)
    code, out, _ = await jobledger("rebuild", "--json", JOBLEDGER_DATABASE_URL=database)
    assert (code, json.loads(out)) == (0, {"jobs": 5, "differed": 5})

    await auditing.spoil(connection, "delete from job_events where position = 5")
    await connection.execute("delete from jobs where last_position = 5")
    code, out, _ = await jobledger("verify", "--anchor", anchor, "--json", JOBLEDGER_DATABASE_URL=database)
    found: dict[str, Any] = json.loads(out)
    assert (code, found["ok"], found["first_bad"]) == (1, False, 5)

    code, _, err = await jobledger("verify", "--anchor", "5", JOBLEDGER_DATABASE_URL=database)
    assert (code, "POSITION:HASH" in err) == (2, True)
    code, _, err = await jobledger("verify", "--to", "99", JOBLEDGER_DATABASE_URL=database)
    assert (code, "which goes from 1 to 4" in err) == (2, True)


async def test_verify_ends_with_a_code_of_its_own_when_postgres_is_away() -> None:
    code, _, err = await jobledger("verify", JOBLEDGER_DATABASE_URL="postgresql://127.0.0.1:1/none")

    assert (code, "Postgres is not available" in err) == (3, True)


async def test_private_database_is_verified_beside_its_service_and_without_it(tmp_path: Path) -> None:
    private = {"JOBLEDGER_DATA_DIR": str(tmp_path / "data")}
    code, _, err = await jobledger("verify", **private)
    assert (code, "holds no ledger yet" in err) == (2, True)

    async with services.serving(JOBLEDGER_DATA_DIR=private["JOBLEDGER_DATA_DIR"]):
        code, out, err = await jobledger("verify", "--json", **private)
        assert (code, json.loads(out)["ok"]) == (0, True), err
        code, out, err = await jobledger("epoch", "new", "--json", **private)
        assert (code, json.loads(out)["from_position"]) == (0, 1), err
    epoch = json.loads(out)["epoch"]

    code, out, err = await jobledger("rebuild", "--json", **private)
    assert (code, json.loads(out)) == (0, {"jobs": 0, "differed": 0}), err
    code, out, err = await jobledger("epoch", "show", **private)
    assert code == 0, err
    assert [line.partition(" ")[2] for line in out.splitlines()] == ["from position 1"] * 2
    assert out.splitlines()[-1].startswith(epoch)
