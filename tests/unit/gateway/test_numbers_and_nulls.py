"""Numbers and nulls in bodies, as decoded by kube-apiserver 1.36."""

from typing import Any

import pytest

from pinnace.gateway.media_types import YAML
from tests.unit.gateway.serving import gateway

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def deployment(replicas: str) -> str:
    return f"""{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "a"}}, "spec": {{"replicas": {replicas},
        "selector": {{"matchLabels": {{"app": "a"}}}}, "template": {{"metadata": {{"labels": {{"app": "a"}}}},
        "spec": {{"containers": [{{"name": "c", "image": "i"}}]}}}}}}}}"""


@pytest.mark.parametrize("number", ["3.0", "1e1", "2.5", "-0.0"])
async def test_integers_in_json_have_no_fraction_or_exponent(number: str) -> None:
    async with gateway() as served:
        answer = await served.ask("POST", DEPLOYMENTS, deployment(number))
        assert answer.code == 400
        start = 'Deployment in version "v1" cannot be handled as a Deployment: spec.replicas: expected a whole number'
        assert answer.json["message"].startswith(start)
        assert (await served.ask("POST", DEPLOYMENTS, deployment("3"))).code == 201
        patch = f'{{"spec": {{"replicas": {number}}}}}'
        assert (await served.ask("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=MERGE)).code == 422
        operations = f'[{{"op": "replace", "path": "/spec/replicas", "value": {number}}}]'
        answer = await served.ask("PATCH", f"{DEPLOYMENTS}/a", operations, content_type="application/json-patch+json")
        assert answer.code == 422


@pytest.mark.parametrize(("number", "replicas"), [("3.0", 3), ("1e1", 10)])
async def test_integral_numbers_of_yaml_and_merged_documents_are_integers(number: str, replicas: int) -> None:
    """YAML is converted to JSON first. Strategic merges and applies do not decode the JSON text into the object."""
    async with gateway() as served:
        created = await served.ask("POST", DEPLOYMENTS, deployment(number), content_type=YAML)
        assert (created.code, created.json["spec"]["replicas"]) == (201, replicas)
        patch = f'{{"spec": {{"replicas": {number}}}}}'
        answer = await served.ask("PATCH", f"{DEPLOYMENTS}/a", patch, content_type=STRATEGIC)
        assert (answer.code, answer.json["spec"]["replicas"]) == (200, replicas)
        answer = await served.ask(
            "PATCH",
            f"{DEPLOYMENTS}/b?fieldManager=m",
            deployment(number).replace('"name": "a"', '"name": "b"'),
            content_type=APPLY,
        )
        assert (answer.code, answer.json["spec"]["replicas"]) == (201, replicas)


@pytest.mark.parametrize(
    ("path", "body", "field", "value"),
    [
        (CONFIG_MAPS, {"data": {"k": None}}, "data", {"k": ""}),
        (CONFIG_MAPS, {"binaryData": {"k": None}}, "binaryData", {"k": ""}),
        ("/api/v1/namespaces/default/secrets", {"data": {"k": None}}, "data", {"k": ""}),
    ],
)
async def test_null_in_a_map_is_zero(path: str, body: dict[str, Any], field: str, value: dict[str, str]) -> None:
    async with gateway() as served:
        metadata = {"name": "a", "labels": {"x": None}, "annotations": {"y": None}}
        created = await served.ask("POST", path, {"metadata": metadata, **body})
        assert (created.code, created.json[field]) == (201, value)
        assert created.json["metadata"]["labels"] == {"x": ""} and created.json["metadata"]["annotations"] == {"y": ""}


async def test_null_in_a_merge_patch_removes_the_key() -> None:
    async with gateway() as served:
        assert (await served.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}})).code == 201
        patched = await served.ask("PATCH", f"{CONFIG_MAPS}/a", {"data": {"k": None}}, content_type=MERGE)
        assert patched.json["data"] == {"l": "w"}
