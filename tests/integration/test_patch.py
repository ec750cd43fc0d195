"""Patches and deletes of many, as a client meets them: real servers over a real etcd."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.api import wire
from pinnace.api.core_v1_pb2 import Namespace, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import STORAGE_CLASSES
from pinnace.api.status import decode
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.verbs_pb2 import DeleteCollectionRequest, PatchRequest
from pinnace.apiserver.services import resource
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import Conflict, Invalid, NotFound
from pinnace.client.resource import delete_request
from tests.builders import make_node, make_pod
from tests.integration.cli.commands import Server


@pytest.fixture
async def clients(etcd_storage: EtcdStorage) -> AsyncIterator[tuple[Client, Client]]:
    """Of two servers."""
    servers = [Server(etcd_storage), Server(etcd_storage)]
    for server in servers:
        await server.start()
    connections = [Connection([server.address]) for server in servers]
    yield Client(connections[0]), Client(connections[1])
    for connection in connections:
        await connection.close()
    for server in servers:
        await server.stop()


@pytest.fixture
def client(clients: tuple[Client, Client]) -> Client:
    return clients[0]


def new_pod(name: str = "a") -> Pod:
    return make_pod(name).req(cpu="100m").label("app", "web").new()


async def test_patches_of_different_fields_never_lose_one_another(clients: tuple[Client, Client]) -> None:
    await clients[0].pods.create(new_pod())

    async def label(index: int) -> None:
        patch = {"metadata": {"labels": {f"l{index}": "x"}}}
        await clients[index % 2].pods.patch("a", "default", patch, PatchRequest.MERGE)

    await asyncio.gather(*(label(index) for index in range(50)))
    labels = (await clients[0].pods.get("a", "default")).metadata.labels
    assert set(labels) == {"app", *(f"l{index}" for index in range(50))}


async def test_patch_with_a_resource_version_is_compare_and_swap(client: Client) -> None:
    first = await client.pods.create(new_pod())
    version = first.metadata.resourceVersion
    patch = {"metadata": {"resourceVersion": version, "labels": {"x": "1"}}}
    second = await client.pods.patch("a", "default", patch)
    assert second.metadata.labels["x"] == "1" and int(second.metadata.resourceVersion) > int(version)
    with pytest.raises(Conflict, match=f"resourceVersion {version} is stale"):
        await client.pods.patch("a", "default", patch)
    with pytest.raises(Invalid, match=r'metadata.uid: Invalid value: "another": field is immutable'):
        await client.pods.patch("a", "default", {"metadata": {"uid": "another"}})
    with pytest.raises(NotFound):
        await client.pods.patch("b", "default", {})


async def test_rules_of_updates_hold(client: Client) -> None:
    pod = await client.pods.create(new_pod())
    name = pod.spec.containers[0].name
    patched = await client.pods.patch("a", "default", {"spec": {"containers": [{"name": name, "image": "other:2"}]}})
    assert patched.spec.containers[0].image == "other:2" and patched.metadata.generation == 2
    assert patched.spec.containers[0].resources == pod.spec.containers[0].resources
    for patch, field in (
        ({"spec": {"nodeName": "n"}}, "spec"),
        ({"metadata": {"labels": {"-": "x"}}}, "metadata.labels"),
        ({"metadata": {"name": "b"}}, "metadata.name"),
        ({"spec": {"colour": "red"}}, "spec.colour"),
    ):
        with pytest.raises(Invalid) as caught:
            await client.pods.patch("a", "default", patch)
        assert [violation.field for violation in caught.value.violations] == [field]
    same = await client.pods.patch("a", "default", {"metadata": {"labels": {"app": "web"}}})
    assert same == patched, "a patch that changes nothing is no write"


async def test_status_and_spec_are_separate(client: Client) -> None:
    await client.pods.create(new_pod())
    both = {"metadata": {"labels": {"x": "1"}}, "status": {"message": "hello"}}
    patched = await client.pods.patch("a", "default", both)
    assert patched.metadata.labels["x"] == "1" and not patched.status.message
    both["metadata"]["labels"]["x"] = "2"
    patched = await client.pods.patch("a", "default", both, subresource="status")
    assert patched.metadata.labels["x"] == "1" and patched.status.message == "hello"
    await client.of(STORAGE_CLASSES).create(StorageClass(metadata=ObjectMeta(name="fast"), provisioner="x"))
    with pytest.raises(Invalid, match="this resource has no status"):
        await client.of(STORAGE_CLASSES).patch("fast", "", {}, subresource="status")


async def test_dry_run_writes_nothing(client: Client) -> None:
    pod = await client.pods.create(new_pod())
    patched = await client.pods.patch("a", "default", {"metadata": {"labels": {"x": "1"}}}, dry_run=True)
    assert patched.metadata.labels["x"] == "1" and await client.pods.get("a", "default") == pod


async def test_patch_keeps_unmodelled_fields(client: Client) -> None:
    pod = new_pod()
    future = wire.field(9001, b"of the future")
    pod.spec.containers[0].MergeFromString(future)
    created = await client.pods.create(pod)
    name = created.spec.containers[0].name
    patched = await client.pods.patch("a", "default", {"spec": {"containers": [{"name": name, "image": "other:2"}]}})
    created.spec.containers[0].image = "other:2"
    assert patched.spec == created.spec and future in patched.SerializeToString()


async def test_last_finalizer_may_be_patched_away(client: Client) -> None:
    pod = new_pod()
    pod.metadata.finalizers.append("example.com/hold")
    await client.pods.create(pod)
    await client.pods.delete("a", "default")
    await client.pods.patch("a", "default", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}})
    with pytest.raises(NotFound):
        await client.pods.get("a", "default")


async def test_collection_is_deleted_by_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "MAX_BATCH", 3)
    for index in range(8):
        await client.pods.create(new_pod(f"p{index}"))
    await client.pods.create(make_pod("other").req(cpu="1").new())
    held = new_pod("held")
    held.metadata.finalizers.append("example.com/hold")
    await client.pods.create(held)
    assert not await client.pods.delete_collection("kube-system", labels="app=web")
    told = await client.pods.delete_collection("default", labels="app=web", dry_run=True)
    assert len(told) == 9 and len((await client.pods.list("default")).items) == 10
    told = await client.pods.delete_collection("default", labels="app=web")
    assert [item.name for item in told] == ["held", *(f"p{index}" for index in range(8))]
    assert all(item.uid and not item.HasField("error") for item in told)
    left = (await client.pods.list("default")).items
    assert [(pod.metadata.name, pod.metadata.HasField("deletionTimestamp")) for pod in left] == [
        ("held", True),
        ("other", False),
    ]


async def test_patch_of_a_large_list_keeps_later_pages(client: Client) -> None:
    for name in ("a", "b"):
        await client.pods.create(new_pod(name))
    request = DeleteCollectionRequest(namespace="default")
    request.options.limit = 1
    method = "/pinnace.v1.Pods/DeleteCollection"
    first = await client.connection.call(method, request, resource.BatchResponse, retry=False)
    await client.pods.delete("b", "default")
    for name in ("b", "c"):
        await client.pods.create(new_pod(name))
    setattr(request.options, "continue", getattr(first, "continue"))
    second = await client.connection.call(method, request, resource.BatchResponse, retry=False)
    assert [item.name for item in first.items] == ["a"] and not second.items, "b is a namesake"
    assert [pod.metadata.name for pod in (await client.pods.list("default")).items] == ["b", "c"]


async def test_collection_has_no_preconditions(client: Client) -> None:
    request = DeleteCollectionRequest(namespace="default")
    request.deleteOptions.preconditions.uid = "x"
    with pytest.raises(Invalid, match=r"deleteOptions\.preconditions"):
        await client.connection.call("/pinnace.v1.Pods/DeleteCollection", request, resource.BatchResponse, retry=False)


async def test_batch_of_deletes_is_a_dry_run_or_none(client: Client) -> None:
    for name in ("a", "b"):
        await client.pods.create(new_pod(name))
    asked = [delete_request("a", "default", dry_run=True), delete_request("b", "default")]
    with pytest.raises(Invalid, match=r"options\.dryRun: some items set it and others do not"):
        await client.pods.delete_batch(asked)
    assert len((await client.pods.list("default")).items) == 2
    asked[1].options.dryRun.append("All")
    assert not any(item.HasField("error") for item in await client.pods.delete_batch(asked))
    assert len((await client.pods.list("default")).items) == 2
    assert await client.pods.delete_batch([]) == []


async def test_kinds_without_a_namespace(client: Client) -> None:
    await client.nodes.create(make_node("n").label("zone", "a").new())
    await client.namespaces.create(Namespace(metadata=ObjectMeta(name="team")))
    patched = await client.namespaces.patch("team", "", {"metadata": {"labels": {"x": "1"}}})
    assert patched.metadata.labels["x"] == "1" and patched.status.phase == "Active"
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    assert (await client.nodes.patch("n", "", {"spec": {"taints": taints}})).spec.taints[0].key == "gpu"
    (item,) = await client.nodes.delete_collection(labels="zone=a")
    assert item.name == "n" and decode(item.error).reason == ""
    assert not (await client.nodes.list()).items
