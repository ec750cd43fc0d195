"""Server-side apply through the API server's methods. The replayed responses of kube-apiserver are in tests/unit/gateway."""

import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.ownership import decode_shown
from pinnace.api.resources import CLUSTER_ROLES, DEPLOYMENTS, PODS, ROLE_BINDINGS, Resource
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import GetRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry import managed_fields
from pinnace.apiserver.registry.strategy import collect_warnings
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving

KUBECTL_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


class Cluster:
    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self.created = False

    async def call(self, resource: Resource[Any], verb: str, request: Any, person: str = "admin") -> dict[str, Any]:
        user = replace(PEOPLE[person], impersonator="system:gateway")
        with collect_warnings() as said:
            data = await self._assembly.methods[f"/{resource.service}/{verb}"].call(request, Caller(user))
        self.created = said.created
        return to_dict(decode_shown(resource, data))

    async def apply(
        self,
        data: Mapping[str, Any],
        manager: str = "alice",
        *,
        resource: Resource[Any] = DEPLOYMENTS,
        name: str = "web",
        force: bool = False,
        person: str = "admin",
        subresource: str = "",
        dry_run: bool = False,
    ) -> dict[str, Any]:
        named = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **data}
        request = PatchRequest(
            namespace=OWN if resource.namespaced else "", name=name, type=PatchRequest.APPLY, subresource=subresource,
            patch=json.dumps(named).encode(),
        )  # fmt: skip
        request.options.fieldManager, request.options.force = manager, force
        if dry_run:
            request.options.dryRun.append("All")
        return await self.call(resource, "Patch", request, person)

    async def patch(self, data: Any, manager: str = "editor", kind: PatchRequest.Type = PatchRequest.MERGE) -> dict[str, Any]:
        request = PatchRequest(namespace=OWN, name="web", type=kind, patch=json.dumps(data).encode())
        request.options.fieldManager = manager
        return await self.call(DEPLOYMENTS, "Patch", request)

    async def create(self, data: dict[str, Any], resource: Resource[Any] = DEPLOYMENTS) -> dict[str, Any]:
        request: Any = resource.request("Create")(object=from_dict(resource, data))
        return await self.call(resource, "Create", request)

    async def update(self, data: dict[str, Any], resource: Resource[Any] = DEPLOYMENTS, verb: str = "Update") -> dict[str, Any]:
        request: Any = resource.request("Update")(object=from_dict(resource, data))
        return await self.call(resource, verb, request)

    async def get(self, name: str = "web", resource: Resource[Any] = DEPLOYMENTS) -> dict[str, Any]:
        return await self.call(resource, "Get", GetRequest(namespace=OWN, name=name))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with serving() as assembly:
        yield Cluster(assembly)


def deployment(**spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]}]},
    }
    return {"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}}


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": OWN}, **deployment(**spec)}


def owners(obj: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    entries = obj["metadata"].get("managedFields", [])
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


async def refused(call: Any) -> Refusal:
    with pytest.raises(Rejected) as caught:
        await call
    return caught.value.refusal


async def test_creates_and_updates_own_what_they_write(cluster: Cluster) -> None:
    created = await cluster.create(stored())
    assert owners(created)["pinnace", "Update"]["f:spec"]["f:replicas"] == {}
    patched = await cluster.patch({"spec": {"replicas": 3}})
    assert owners(patched)["editor", "Update"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owners(patched)["pinnace", "Update"]["f:spec"]
    refusal = await refused(cluster.apply({"spec": {"replicas": 7}}))
    assert refusal.message == 'Apply failed with 1 conflict: conflict with "editor" using apps/v1: .spec.replicas'


async def test_present_fields_get_owner_at_apply_after_reset(cluster: Cluster) -> None:
    await cluster.create(stored())
    reset = await cluster.patch({"metadata": {"managedFields": [{}]}})
    assert not owners(reset)
    patched = await cluster.patch({"spec": {"replicas": 3}})
    assert not owners(patched), "updates of objects without owners are not tracked, as in Kubernetes"
    applied = await cluster.apply({"metadata": {"name": "web", "labels": {"tier": "db"}}})
    assert owners(applied)["alice", "Apply"] == {"f:metadata": {"f:labels": {"f:tier": {}}}}
    before = owners(applied)["before-first-apply", "Update"]
    assert before["f:spec"]["f:replicas"] == {} and "f:status" not in before
    assert before["f:spec"]["f:template"]["f:metadata"] == {"f:labels": {".": {}, "f:app": {}}}


async def test_applying_twice_writes_nothing(cluster: Cluster) -> None:
    first = await cluster.apply(deployment())
    assert cluster.created
    assert await cluster.apply(deployment()) == first and not cluster.created
    quantity = {"limits": {"cpu": "1000m"}}
    container = {"name": "c", "image": "i:1", "resources": quantity}
    other = deployment()
    other["spec"]["template"]["spec"]["containers"] = [container]
    once = await cluster.apply(other)
    assert await cluster.apply(other) == once, "another form of the same quantity"


async def test_fields_that_are_no_longer_applied_are_removed(cluster: Cluster) -> None:
    await cluster.apply(deployment(paused=True) | {"metadata": {"name": "web", "labels": {"a": "1", "b": "2"}}})
    await cluster.apply({"metadata": {"name": "web", "labels": {"b": "2"}}}, "bob")
    result = await cluster.apply(deployment())
    assert result["metadata"]["labels"] == {"b": "2"} and "paused" not in result["spec"]
    result = await cluster.apply({}, "bob")
    assert "labels" not in result["metadata"] and ("bob", "Apply") not in owners(result)


async def test_forced_apply_takes_fields_over(cluster: Cluster) -> None:
    await cluster.apply(deployment())
    refusal = await refused(cluster.apply({"spec": {"replicas": 5, "paused": True}}, "bob"))
    assert refusal.code is Code.ABORTED and refusal.reason == "ApplyConflict"
    assert refusal.message == 'Apply failed with 1 conflict: conflict with "alice": .spec.replicas'
    result = await cluster.apply({"spec": {"replicas": 5}}, "bob", force=True)
    assert result["spec"]["replicas"] == 5 and owners(result)["bob", "Apply"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owners(result)["alice", "Apply"]["f:spec"]


async def test_conflicts_with_several_managers(cluster: Cluster) -> None:
    await cluster.apply(deployment())
    await cluster.patch({"spec": {"minReadySeconds": 3, "paused": True}}, "editor")
    refusal = await refused(cluster.apply({"spec": {"replicas": 9, "minReadySeconds": 4, "paused": False}}, "bob"))
    assert refusal.message == (
        'Apply failed with 3 conflicts: conflicts with "alice":\n- .spec.replicas\n'
        'conflicts with "editor" using apps/v1:\n- .spec.minReadySeconds\n- .spec.paused'
    )


async def test_updates_take_the_fields_that_they_change(cluster: Cluster) -> None:
    applied = await cluster.apply(deployment())
    applied["spec"]["replicas"] = 4
    del applied["metadata"]["managedFields"]
    updated = await cluster.update(applied)
    assert owners(updated)["pinnace", "Update"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in owners(updated)["alice", "Apply"]["f:spec"]
    assert await cluster.update(updated) == updated


async def test_status_has_owners_of_its_own(cluster: Cluster) -> None:
    live = await cluster.apply(deployment())
    live["status"] = {"replicas": 1, "observedGeneration": 1}
    updated = await cluster.update(live, verb="UpdateStatus")
    entry = next(item for item in updated["metadata"]["managedFields"] if item["operation"] == "Update")
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {
        "f:status": {"f:observedGeneration": {}, "f:replicas": {}}
    }
    result = await cluster.apply({"status": {"replicas": 1}, "spec": {"replicas": 9}}, "bob", subresource="status")
    entry = next(item for item in result["metadata"]["managedFields"] if item["manager"] == "bob")
    assert entry["subresource"] == "status" and entry["fieldsV1"] == {"f:status": {"f:replicas": {}}}
    assert result["spec"]["replicas"] == 2
    refusal = await refused(cluster.apply({"status": {"replicas": 2}}, "carol", subresource="status"))
    assert '"bob" with subresource "status"' in refusal.message


async def test_status_is_ignored_in_the_main_resource(cluster: Cluster) -> None:
    result = await cluster.apply(deployment() | {"status": {"replicas": 7}})
    assert "f:status" not in owners(result)["alice", "Apply"] and "replicas" not in result.get("status", {})


async def test_dry_runs_write_nothing(cluster: Cluster) -> None:
    result = await cluster.apply(deployment(), dry_run=True)
    assert result["spec"]["replicas"] == 2
    assert (await refused(cluster.get())).reason == "NotFound"
    before = await cluster.apply(deployment())
    assert (await cluster.apply(deployment(replicas=3), dry_run=True))["spec"]["replicas"] == 3
    assert await cluster.get() == before


@pytest.mark.parametrize("sent", [[], [{}]])
async def test_managed_fields_are_reset(cluster: Cluster, sent: list[Any]) -> None:
    await cluster.apply(deployment())
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": sent}]
    result = await cluster.patch(patch, kind=PatchRequest.JSON)
    assert "managedFields" not in result["metadata"]


async def test_client_may_hand_its_fields_to_another_manager(cluster: Cluster) -> None:
    """As kubectl does when it replaces client-side apply."""
    await cluster.apply(deployment(), "other")
    live = await cluster.patch({"spec": {"replicas": 4}}, "kubectl-client-side-apply")
    entries = live["metadata"]["managedFields"]
    for entry in entries:
        if entry["manager"] == "kubectl-client-side-apply":
            entry |= {"manager": "kubectl", "operation": "Apply"}
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
    ]
    result = await cluster.patch(patch, "kubectl", PatchRequest.JSON)
    assert owners(result)["kubectl", "Apply"] == {"f:spec": {"f:replicas": {}}}
    result = await cluster.apply({"spec": {"replicas": 6}}, "kubectl")
    assert result["spec"]["replicas"] == 6


async def test_client_side_apply_is_taken_over_without_conflicts(cluster: Cluster) -> None:
    """Values of the annotation may be changed; values that others changed since may not."""
    data = {"apiVersion": "apps/v1", "kind": "Deployment", **stored()}
    created = stored()
    created["metadata"]["annotations"] = {KUBECTL_ANNOTATION: json.dumps(data)}
    await cluster.create(created)
    await cluster.patch({"spec": {"replicas": 3}})
    refusal = await refused(cluster.apply(deployment(replicas=5), "kubectl"))
    assert refusal.message.endswith(": .spec.replicas")
    new = deployment(replicas=3)
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"
    result = await cluster.apply(new, "kubectl")
    assert result["spec"]["template"]["spec"]["containers"][0]["image"] == "i:2"
    assert json.loads(result["metadata"]["annotations"][KUBECTL_ANNOTATION])["spec"]["replicas"] == 3


async def test_old_update_managers_become_one(cluster: Cluster) -> None:
    await cluster.apply(deployment())
    for number in range(13):
        result = await cluster.patch({"metadata": {"labels": {f"l{number}": "x"}}}, f"m{number:02}")
    updaters = [name for name, operation in owners(result) if operation == "Update"]
    assert len(updaters) == managed_fields.MAX_UPDATE_MANAGERS and managed_fields.ANCIENT_CHANGES in updaters


@pytest.mark.parametrize(
    ("data", "manager", "message"),
    [
        ({"metadata": {"managedFields": []}}, "alice", "metadata.managedFields must be nil"),
        ({"metadata": {"name": "other"}}, "alice", "the name of the object (other) does not match the name on the URL (web)"),
        ({"metadata": {"namespace": "other"}}, "alice", "does not match the namespace sent on the request"),
        ({"apiVersion": "apps/v2"}, "alice", "invalid object type: apps/v2, Kind=Deployment"),
        ({}, "", "fieldManager: Required value"),
        ({}, "x" * 129, "fieldManager: Invalid value"),
        ({"spec": {"replicas": "many"}}, "alice", ".spec.replicas: expected numeric (int or float)"),
    ],
)
async def test_bad_requests(cluster: Cluster, data: dict[str, Any], manager: str, message: str) -> None:
    refusal = await refused(cluster.apply(data, manager))
    assert refusal.code is Code.INVALID_ARGUMENT and message in refusal.message


async def test_preconditions(cluster: Cluster) -> None:
    refusal = await refused(cluster.apply({"metadata": {"name": "web", "uid": "x"}, **deployment()}))
    assert refusal.reason == "UIDMismatch"
    await cluster.apply(deployment())
    refusal = await refused(cluster.apply({"metadata": {"name": "web", "resourceVersion": "1"}, **deployment()}))
    assert refusal.code is Code.ABORTED and refusal.reason == "Conflict"


async def test_created_object_must_be_valid_and_permitted(cluster: Cluster) -> None:
    refusal = await refused(cluster.apply({"spec": {"replicas": 1}}))
    assert refusal.reason == "Invalid"
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}
    await cluster.create({"metadata": {"name": "patcher"}, "rules": [rule]}, CLUSTER_ROLES)
    binding = {
        "metadata": {"name": "patcher", "namespace": OWN},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "nemo"}],
    }
    await cluster.create(binding, ROLE_BINDINGS)
    refusal = await refused(cluster.apply(deployment(), person="nobody"))
    assert refusal.code is Code.PERMISSION_DENIED and "create" in refusal.message
    await cluster.apply(deployment())
    assert (await cluster.apply({"spec": {"paused": True}}, "bob", person="nobody"))["spec"]["paused"]


async def test_binds_keep_owners(cluster: Cluster) -> None:
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    await cluster.apply({"spec": spec}, resource=PODS, name="p")
    live = await cluster.get("p", PODS)
    live["status"]["message"] = "x"
    result = await cluster.update(live, PODS, "UpdateStatus")
    assert {name for name, _ in owners(result)} == {"alice", "pinnace"}


@pytest.mark.parametrize("seed", range(15))
async def test_random_appliers_with_fields_of_their_own(cluster: Cluster, seed: int) -> None:
    """Each applier's labels are those of its last configuration, whatever the others do; none has a conflict."""
    rng = random.Random(seed)
    await cluster.apply(deployment(), "base")
    wanted: dict[str, dict[str, str]] = {}
    for _ in range(12):
        manager = rng.choice("abc")
        wanted[manager] = {f"{manager}{key}": rng.choice("xy") for key in rng.sample("123", rng.randint(0, 3))}
        configuration = {"metadata": {"name": "web"} | ({"labels": wanted[manager]} if wanted[manager] else {})}
        result = await cluster.apply(configuration, manager)
        expected = {key: value for labels in wanted.values() for key, value in labels.items()}
        assert result["metadata"].get("labels", {}) == expected
        assert await cluster.apply(configuration, manager) == result
        for name, labels in wanted.items():
            tree = owners(result).get((name, "Apply"), {"f:metadata": {"f:labels": {}}})
            assert set(tree["f:metadata"]["f:labels"]) == {f"f:{key}" for key in labels}
