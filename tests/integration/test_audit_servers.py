"""Which jobs a server had: whatever the spelling of the table, for as long as it holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import auditing, events, ledgers


async def stays(connection: auditing.Connection, arguments: str) -> list[tuple[str, int, int | None]]:
    rows = await connection.fetch(f"select * from audit.jobs_on_server({arguments})")  # noqa: S608
    return [(row["job_id"], row["from_position"], row["until_position"]) for row in rows]


async def test_a_stay_lasts_until_the_table_the_status_or_the_job_ends(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    both, one = events.rank_table("10.0.0.1", "10.0.0.2"), events.rank_table("10.0.0.1")
    for said in (
        events.submission("moved", job_status="running", hccl_json=both),  # 1
        events.submission("ended", job_status="running", hccl_json=both),
        events.submission("deleted", job_status="running", hccl_json=both),
        events.submission("stays", job_status="running", hccl_json=both),
        events.submission("moved", job_status="running", hccl_json=both, sid="same"),  # 5
        events.submission("moved", job_status="running", hccl_json=one),
        events.submission("ended", job_status="failed", hccl_json=both),
        events.deletion("deleted"),
        events.submission("deleted", job_status="running", hccl_json=both),
        events.submission("ended", job_status="running", hccl_json=both),  # 10
        events.submission("elsewhere", job_status="running", hccl_json=one),
    ):
        await ledger.receipts(said)

    whole = [
        ("moved", 1, 6),
        ("ended", 2, 7),
        ("deleted", 3, 8),
        ("stays", 4, None),
        ("deleted", 9, None),
        ("ended", 10, None),
    ]
    assert await stays(connection, "'10.0.0.2'") == whole
    assert await stays(connection, "'10.0.0.2', int8range(7, 9)") == [whole[2], whole[3]]
    assert await stays(connection, "'10.0.0.2', int8range(6, 6, '[]')") == whole[1:4]
    assert await stays(connection, "'10.0.0.2', tstzrange(now() - interval '1 day', now())") == whole
    assert await stays(connection, "'10.0.0.2', tstzrange(now() + interval '1 day', null)") == [
        whole[3],
        *whole[4:],
    ]
    assert await stays(connection, "'10.0.0.3'") == []


def compact(table: object) -> str:
    return json.dumps(table, separators=(",", ":"))


def spaced(table: object) -> str:
    return json.dumps(table)


def indented(table: object) -> str:
    return json.dumps(table, indent="\t", ensure_ascii=False)


def escaped(table: object) -> str:
    return compact(table).replace("server_", "\\u0073erver_")


def spaced_once(table: object) -> str:
    return compact(table).replace(':"a"', ': "a"')


@pytest.mark.parametrize("spelt", [compact, spaced, indented, escaped, spaced_once])
async def test_servers_are_found_however_the_table_is_spelt(
    ledger: ledgers.Ledger, connection: auditing.Connection, spelt: Callable[[object], str]
) -> None:
    table = {
        "server_list": [
            {"server_id": "a", "server_name": "训练-🚀", "server_sn": "sn"},
            {"server_id": 7, "server_name": None},
            {"server_name": 'with "quotes"', "server_id": "x" * 300},
        ],
        "server_count": "3",
    }
    await ledger.receipts(events.submission("job", job_status="running", hccl_json=spelt(table)))

    for server in ("a", "训练-🚀", "7", 'with "quotes"'):
        assert len(await connection.fetch("select * from audit.jobs_on_server($1)", server)) == 1, server
    for server in ("sn", "3", "x" * 300, "", "null"):
        assert await connection.fetch("select * from audit.jobs_on_server($1)", server) == [], server


@pytest.mark.parametrize("spelt", [compact, spaced, indented, escaped])
@pytest.mark.parametrize(
    "servers",
    [
        [{"server_id": "a", "server_name": "训练-🚀"}, {"server_name": 'with "quotes"'}, {"server_id": "a"}],
        [{"server_id": "x" * 256, "server_name": "🚀" * 257}, {"server_id": "", "server_name": None}, {}],
        [{"server_id": "a", "device": [{"server_id": "within", "rank_id": 7}], "host_ip": None}],
        [],
        None,
    ],
)
async def test_the_service_names_the_servers_that_postgres_reads(
    ledger: ledgers.Ledger, connection: auditing.Connection, servers: object, spelt: Callable[[object], str]
) -> None:
    await ledger.receipts(events.submission("job", hccl_json=spelt({"server_list": servers})))

    parsed = "array_to_string(coalesce(job_events_servers_parsed(hccl), '{}'), chr(10))"
    row = await connection.fetchrow(f"select servers, {parsed} from job_events")  # noqa: S608
    assert row is not None
    assert row[0] == row[1]
    assert row[0] is not None


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ({"server_id": 7}, "7"),
        ({"server_id": {"a": 1}}, '{"a": 1}'),
        ({"server_name": "two\nlines"}, "two\nlines"),
    ],
)
async def test_a_server_whose_name_is_no_line_of_text_is_found_all_the_same(
    ledger: ledgers.Ledger, connection: auditing.Connection, server: object, name: str
) -> None:
    table = compact({"server_list": [{"server_id": "a"}, server]})
    await ledger.receipts(events.submission("job", job_status="running", hccl_json=table))

    assert await connection.fetchval("select servers from job_events") is None
    for each in ("a", name):
        assert len(await connection.fetch("select * from audit.jobs_on_server($1)", each)) == 1, each


async def test_servers_are_found_in_events_of_the_release_before_which_did_not_name_them(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    table = events.rank_table("10.0.0.1")
    await ledger.receipts(events.submission("job", job_status="running", hccl_json=table))
    await auditing.spoil(connection, "update job_events set servers = null")

    assert await stays(connection, "'10.0.0.1'") == [("job", 1, None)]
    assert await connection.fetchval("select ok from audit.verify(deep => true)")


@pytest.mark.parametrize(
    "table",
    [
        '{"server_list":7}',
        '{"server_list":[7,null,[]]}',
        '{"server_list":{}}',
        '{"a":1e5}',
        '{"server_list":[]}',
    ],
)
async def test_what_is_no_rank_table_is_recorded_and_names_no_server(
    ledger: ledgers.Ledger, connection: auditing.Connection, table: str
) -> None:
    await ledger.receipts(events.submission("job", hccl_json=table))

    named = "select coalesce(string_to_array(servers, chr(10)), job_events_servers(hccl)) from job_events"
    assert await connection.fetchval(named) in (None, [])


async def test_the_stays_of_a_job_that_says_much_cost_no_more_a_state(
    ledger: ledgers.Ledger, connection: auditing.Connection
) -> None:
    both, one = events.rank_table("10.0.0.1", "10.0.0.2"), events.rank_table("10.0.0.1")
    comings = 200
    await ledger.receipts(
        *(
            events.submission("restless", job_status="running", hccl_json=table, sid=str(n))
            for _ in range(comings)
            for n, table in enumerate((both, both, both, both, one))
        )
    )
    body: str = await connection.fetchval("select pg_get_function_sqlbody('audit.stays(text)'::regprocedure)")
    query = body.strip().removeprefix("BEGIN ATOMIC").removesuffix("END").rstrip().removesuffix(";")
    named = query.replace("stays.server", "'10.0.0.2'::text")
    plan: str = await connection.fetchval(f"explain (analyze, format json) {named}")

    assert await stays(connection, "'10.0.0.2'") == [
        ("restless", first, first + 4) for first in range(1, comings * 5, 5)
    ]
    # Each state is touched once or twice at each step, never with each other.
    assert max(touched(json.loads(plan)[0]["Plan"])) <= 3 * 5 * comings


def touched(step: dict[str, Any]) -> Iterator[float]:
    """How many rows each step of a plan took up, kept or not."""
    removed = sum(rows for name, rows in step.items() if name.startswith("Rows Removed"))
    yield (step["Actual Rows"] + removed) * step["Actual Loops"]
    for below in step.get("Plans", []):
        yield from touched(below)


async def test_servers_are_found_by_an_index(connection: auditing.Connection) -> None:
    await connection.execute("set enable_seqscan = off")
    plan = await connection.fetch(
        "explain select 1 from job_events "
        "where hccl is not null "
        "and coalesce(string_to_array(servers, chr(10)), job_events_servers(hccl)) @> array['a']"
    )

    assert any("job_events_servers_idx" in line[0] for line in plan)
