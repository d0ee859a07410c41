"""What DELETE records, answers and refuses."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.support import rest

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def recorded(connection: Connection, position: int = 1) -> asyncpg.Record:
    """An event as the log holds it."""
    row = await connection.fetchrow("select * from job_events where position = $1", position)
    assert row is not None
    return row


async def logged(connection: Connection) -> int:
    return await connection.fetchval("select count(*) from job_events")


async def test_delete_is_recorded_with_what_the_job_was(api: rest.Rest, connection: Connection) -> None:
    await api.post({"signal": {"namespace": "team-a", "jobName": "train", "jobStatus": "running"}})

    await api.delete()

    event = await recorded(connection, 2)
    assert (event["operator"], event["namespace"], event["job_name"], event["job_status"]) == (
        "delete",
        "team-a",
        "train",
        "running",
    )
    assert event["delete_time"] is not None


async def test_delete_of_an_unknown_job_is_recorded(api: rest.Rest, connection: Connection) -> None:
    assert (await api.delete("nobody")).object["position"] == 1

    event = await recorded(connection)
    assert (event["operator"], event["job_id"], event["region"]) == ("delete", "nobody", rest.REGION)


async def test_repeated_delete_by_uuid_is_a_duplicate_also_of_a_new_life(api: rest.Rest) -> None:
    uuid = str(uuid4())
    await api.post({})
    first = (await api.delete(query=f"&uuid={uuid}")).object
    await api.post({"regionID": "region-2"})

    again = (await api.delete(query=f"&uuid={uuid}")).object

    assert again == {**first, "duplicate": True}
    assert (await api.job(region="region-2")).object


async def test_delete_of_a_job_live_in_another_region_is_not_found(
    api: rest.Rest, connection: Connection
) -> None:
    await api.post({})

    code, message = (await api.delete(region="region-2")).failure

    assert code == "NotFound"
    assert "region-1" not in message
    assert await logged(connection) == 1


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/v4/cwai/job?regionID=region-1", "jobID is missing"),
        ("/v4/cwai/job/job-1", "regionID is missing"),
        ("/v4/cwai/job/job-1?regionID=region-1&uuid=x", "uuid: 'x' is not a uuid"),
        (
            f"/v4/cwai/job/job-1?regionID=region-1&uuid={UUID(int=1)}&uuid={UUID(int=1)}",
            "uuid is given 2 times",
        ),
    ],
)
async def test_malformed_delete_is_refused(api: rest.Rest, target: str, words: str) -> None:
    code, message = (await api.call("DELETE", target)).failure

    assert code == "BadRequest"
    assert words in message


@pytest.mark.parametrize(
    "target",
    [
        "/v4/cwai/job/jobID=job-1?regionID=region-1",
        "/v4/cwai/job?jobID=job-1&regionID=region-1",
    ],
)
async def test_job_may_be_deleted_in_each_form_of_naming_it(api: rest.Rest, target: str) -> None:
    await api.post({})

    assert (await api.call("DELETE", target)).object["jobID"] == "job-1"
    assert (await api.job()).code == "NotFound"
