"""The largest objects and requests, and what a larger one gets: the limits and answers of kube-apiserver 1.36."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.gateway.serving import Gateway, gateway

pytestmark = pytest.mark.slow

MIB = 1 << 20
INITIAL = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2"
TOO_LARGE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "etcdserver: request is too large",
    "code": 500,
}


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


def config_map(name: str, size: int) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "x" * size}}


def secret(name: str, size: int) -> Any:
    data = {"k": base64.b64encode(bytes(size)).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def pod(name: str, size: int) -> Any:
    """A pod whose environment has this size."""
    value = [{"name": "V", "value": "x" * size}]
    spec = {"containers": [{"name": "c", "image": "i:1", "env": value}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(("plural", "build"), [("configmaps", config_map), ("secrets", secret)])
async def test_configuration_of_one_mebibyte_is_the_largest(served: Gateway, plural: str, build: Any) -> None:
    path = f"/api/v1/namespaces/default/{plural}"
    created = await served.ask("POST", path, build("largest", MIB))
    assert created.code == 201
    assert (await served.ask("GET", f"{path}/largest")).json["data"] == created.json["data"]
    refused = await served.ask("POST", path, build("larger", MIB + 1))
    field = "[]" if plural == "configmaps" else "data"
    assert refused.code == 422
    assert refused.json["details"]["causes"] == [
        {"reason": "FieldValueTooLong", "message": "Too long: may not be more than 1048576 bytes", "field": field}
    ]
    assert f"is invalid: {field}: Too long: may not be more than 1048576 bytes" in refused.json["message"]


async def test_other_objects_fill_a_request_of_etcd(served: Gateway) -> None:
    path = "/api/v1/namespaces/default/pods"
    assert (await served.ask("POST", path, pod("large", 1_200_000))).code == 201
    assert (await served.ask("POST", path, pod("largest", 1_570_000))).code == 201
    refused = await served.ask("POST", path, pod("larger", 1_573_000))
    assert (refused.code, refused.json) == (500, TOO_LARGE)
    patch = {"metadata": {"labels": {"x": "1"}}}
    merge = "application/merge-patch+json"
    assert (await served.ask("PATCH", f"{path}/large", patch, content_type=merge)).code == 200
    grown = await served.ask("PATCH", f"{path}/large/status", {"status": {"message": "x" * 400_000}}, content_type=merge)
    assert (grown.code, grown.json) == (500, TOO_LARGE)


async def test_lists_and_watches_deliver_large_objects(served: Gateway) -> None:
    path = "/api/v1/namespaces/kube-public/configmaps"
    for number in range(12):
        assert (await served.ask("POST", path, config_map(f"c{number:02}", MIB))).code == 201
    listed = (await served.ask("GET", path)).json["items"]
    assert [len(item["data"]["k"]) for item in listed] == [MIB] * 12
    events = (await served.ask("GET", f"{path}?{INITIAL}")).lines
    assert [event["type"] for event in events] == ["ADDED"] * 12 + ["BOOKMARK"]
    version = events[-1]["object"]["metadata"]["resourceVersion"]
    for number in range(12):
        assert (await served.ask("PUT", f"{path}/c{number:02}", config_map(f"c{number:02}", MIB - 1))).code == 200
    events = (await served.ask("GET", f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=2")).lines
    assert [event["type"] for event in events] == ["MODIFIED"] * 12
