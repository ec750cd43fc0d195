"""Server-side apply over the gateway: media types, options and resets. The replay compares whole responses."""

from typing import Any

import pytest

from tests.unit.gateway.serving import Answer, Gateway, gateway

PATH = "/api/v1/namespaces/default/configmaps/c"
APPLY = "application/apply-patch+yaml"
YAML = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {a: "1"}
"""


async def apply(served: Gateway, body: Any = YAML, query: str = "fieldManager=alice") -> Answer:
    return await served.ask("PATCH", f"{PATH}?{query}", body, content_type=APPLY)


async def test_apply_accepts_yaml_and_json() -> None:
    async with gateway() as served:
        created = await apply(served)
        assert (created.code, created.json["data"]) == (201, {"a": "1"})
        again = await apply(served, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}})
        assert (again.code, again.json) == (200, created.json)
        dry = await apply(served, YAML.replace("1", "2").replace("v2", "v1"), "fieldManager=alice&dryRun=All")
        assert dry.json["data"] == {"a": "2"} and (await served.ask("GET", PATH)).json["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        ("{", "fieldManager=a", 400, "error decoding YAML"),
        ("[]", "fieldManager=a", 400, "expected an object"),
        (YAML, "force=true", 422, "fieldManager: Required value: is required for apply patch"),
        (YAML, f"fieldManager={'x' * 129}", 422, "fieldManager: Too long: may not be more than 128 bytes"),
        (YAML, "fieldManager=%0A", 422, "invalid character U+000A (at position 0)"),
        ('{"kind": "ConfigMap", "kind": "ConfigMap"}', "fieldManager=a&fieldValidation=Strict", 400, "already set in map"),
    ],
)
async def test_invalid_apply_is_refused(body: str, query: str, code: int, message: str) -> None:
    async with gateway() as served:
        answer = await apply(served, body, query)
        assert answer.code == code and message in answer.json["message"], answer.json


async def test_force_is_refused_for_other_patches() -> None:
    async with gateway() as served:
        answer = await served.ask("PATCH", f"{PATH}?force=true", {}, content_type="application/merge-patch+json")
        assert answer.code == 422 and "force: Forbidden: may not be specified for non-apply patch" in answer.json["message"]


async def test_conflict_lists_all_fields() -> None:
    async with gateway() as served:
        keys = [f"a-long-key-{number:03}" for number in range(40)]
        config = {"apiVersion": "v1", "kind": "ConfigMap", "data": dict.fromkeys(keys, "1")}
        await apply(served, config)
        answer = await apply(served, config | {"data": dict.fromkeys(keys, "2")}, "fieldManager=bob")
        assert answer.code == 409 and len(answer.json["details"]["causes"]) == 40
        assert answer.json["message"].startswith(
            'Apply failed with 40 conflicts: conflicts with "alice":\n- .data.a-long-key-000\n'
        )
        assert answer.json["message"].endswith(".data.a-long-key-039")
        forced = await apply(served, config | {"data": dict.fromkeys(keys, "2")}, "fieldManager=bob&force=true")
        assert forced.code == 200 and {item["manager"] for item in forced.json["metadata"]["managedFields"]} == {"bob"}


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_update_can_reset_managed_fields(reset: list[Any]) -> None:
    async with gateway() as served:
        obj = (await apply(served)).json
        kept = await served.ask("PUT", PATH, obj | {"metadata": {"name": "c"}})
        assert kept.json["metadata"]["managedFields"] == obj["metadata"]["managedFields"]
        done = await served.ask("PUT", PATH, obj | {"metadata": {"name": "c", "managedFields": reset}})
        assert done.code == 200 and "managedFields" not in done.json["metadata"]
