"""What ``/openapi.json`` says is what is answered, key by key and type by type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support import events, ledgers, rest

TYPES = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def problems(document: Any, schema: Any, value: Any, path: str = "") -> Iterator[str]:
    """Where a value is not what its schema says."""
    if "$ref" in schema:
        yield from problems(
            document, document["components"]["schemas"][schema["$ref"].split("/")[-1]], value, path
        )
    for word in ("anyOf", "oneOf"):
        if word in schema:
            each = [list(problems(document, choice, value, path)) for choice in schema[word]]
            if [found for found in each if not found] == []:
                yield from min(each, key=len)
    yield from _words(schema, value, path)
    if "type" in schema and type(value) is not TYPES[schema["type"]]:
        yield f"{path} is no {schema['type']}"
        return
    yield from _inside(document, schema, value, path)


def _words(schema: Any, value: Any, path: str) -> Iterator[str]:
    if "const" in schema and value != schema["const"]:
        yield f"{path} is not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is none of {schema['enum']}"


def _inside(document: Any, schema: Any, value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{path}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, member in value.items():  # pyright: ignore[reportUnknownVariableType]
            if key in schema["properties"]:
                yield from problems(document, schema["properties"][key], member, f"{path}.{key}")
            elif schema.get("additionalProperties") is False:
                yield f"{path}.{key} is not in the schema"
    if isinstance(value, list) and "items" in schema:
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from problems(document, schema["items"], each, f"{path}[]")


async def test_every_answer_is_what_its_schema_says(ledger: ledgers.Ledger, api: rest.Rest) -> None:
    document = (await api.get("/openapi.json")).envelope
    await api.post(rest.example())
    await api.post({"jobID": "plain"})
    await ledger.receipts(
        events.submission("ranked", region=rest.REGION, hccl_json=events.rank_table("10.0.0.1"))
    )
    region = rest.example()["regionID"]
    asked = [
        ("/v4/cwai/job/{jobID}", f"/v4/cwai/job/{rest.example()['jobID']}?regionID={region}"),
        ("/v4/cwai/job/{jobID}", "/v4/cwai/job/plain?regionID=region-1&includeDeleted=true"),
        ("/v4/cwai/job/{jobID}", "/v4/cwai/job/ranked?regionID=region-1"),
        ("/v4/cwai/job/{jobID}", "/v4/cwai/job/none?regionID=region-1"),
        ("/v4/cwai/job/{jobID}/events", "/v4/cwai/job/plain/events?regionID=region-1"),
        ("/v4/cwai/jobs", "/v4/cwai/jobs?regionID=region-1"),
        ("/v4/cwai/jobs", f"/v4/cwai/jobs?regionID={region}&detail=true&includeDeleted=true"),
        ("/healthz", "/healthz"),
        ("/readyz", "/readyz"),
        ("/openapi.json", "/openapi.json"),
    ]
    for path, target in asked:
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert list(problems(document, schema, (await api.get(target)).envelope)) == [], target
    recorded = document["paths"]["/v4/cwai/job"]["post"]["responses"]["200"]["content"]["application/json"]
    assert list(problems(document, recorded["schema"], (await api.post({})).envelope)) == []
    problem = await api.get("/nowhere", Accept="application/problem+json")
    assert list(problems(document, {"$ref": "#/Problem"}, json.loads(problem.body))) == []


async def test_schema_finds_what_is_wrong(api: rest.Rest) -> None:
    document = (await api.get("/openapi.json")).envelope
    await api.post({})
    shown = (await api.job()).object
    wrong = {**shown, "replicas": "1", "pods": [{"yaml": None}], "more": 1}
    del wrong["envs"]

    found = list(problems(document, {"$ref": "#/JobObject"}, wrong))

    assert ".replicas is no integer" in found
    assert ".envs is missing" in found
    assert ".more is not in the schema" in found
    assert ".pods[].yaml is no object" in found


async def test_every_reference_leads_somewhere_and_every_path_is_served(api: rest.Rest) -> None:
    answer = await api.get("/openapi.json")
    document = answer.envelope

    assert document["openapi"].startswith("3.1")
    assert {"/openapi.json", "/metrics", "/healthz", "/readyz"} < set(document["paths"])
    names = {part.split('"')[0] for part in answer.body.decode().split("#/components/schemas/")[1:]}
    assert names <= set(document["components"]["schemas"])
    assert {"Pod", "GivenPod"} < names
    assert not [name for name in names if "jobledger" in name]
    for path, methods in document["paths"].items():
        allowed = (await api.call("OPTIONS", path.replace("{jobID}", "a"))).headers["Allow"]
        assert {method.upper() for method in methods} <= set(allowed.split(", "))
