"""The subresources of namespaces, and their verbs in discovery."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.gateway.serving import Gateway, gateway


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


async def test_namespaces_have_the_verbs_and_subresources_of_kubernetes(served: Gateway) -> None:
    resources = (await served.ask("GET", "/api/v1")).json["resources"]
    verbs = {
        resource["name"]: sorted(resource["verbs"])
        for resource in resources
        if resource["name"].partition("/")[0] == "namespaces"
    }
    assert verbs == {
        "namespaces": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "namespaces/finalize": ["update"],
        "namespaces/status": ["get", "patch", "update"],
    }
    assert (await served.ask("DELETE", "/api/v1/namespaces")).code == 405
    assert (await served.ask("PATCH", "/api/v1/namespaces/default/finalize", {})).code == 405


async def test_namespace_is_terminating_until_its_finalizers_are_removed(served: Gateway) -> None:
    path, finalizers = "/api/v1/namespaces/held", ["kubernetes", "example.com/wait"]
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "held"}, "spec": {"finalizers": finalizers[1:]}}
    created = (await served.ask("POST", "/api/v1/namespaces", body)).json
    assert sorted(created["spec"]["finalizers"]) == sorted(finalizers)
    deleted = (await served.ask("DELETE", path)).json
    assert (deleted["status"]["phase"], deleted["kind"]) == ("Terminating", "Namespace")
    result = (await served.ask("GET", path)).json
    assert (result["status"]["phase"], result["spec"]["finalizers"]) == ("Terminating", ["example.com/wait"])
    result["status"] = {"conditions": [{"type": "Waits", "status": "True"}], "phase": "Terminating"}
    assert (await served.ask("PUT", f"{path}/status", result)).json["status"]["conditions"][0]["type"] == "Waits"
    refused = await served.ask("PUT", f"{path}/finalize", body | {"spec": {"finalizers": ["wait"]}})
    assert (refused.code, refused.json["details"]["causes"][0]["field"]) == (422, "spec.finalizers[0]")
    assert (await served.ask("PUT", f"{path}/finalize", body | {"spec": {}})).code == 200
    assert (await served.ask("GET", path)).code == 404
