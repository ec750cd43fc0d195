"""Namespaces that end while something is being created in them: whoever commits first, nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Namespace, NamespaceSpec, Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions, ObjectMeta
from pinnace.api.namespaces_pb2 import CreateNamespaceRequest, UpdateNamespaceRequest
from pinnace.api.pods_pb2 import CreatePodBatchRequest, CreatePodRequest
from pinnace.api.resources import NAMESPACES
from pinnace.api.status import Code, Refusal, Violation
from pinnace.api.verbs_pb2 import BatchResponse, DeleteRequest, GetRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.storage.interface import Committed, CompareFailed, Write
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

TEAM = "team"
PATIENCE = 10.0


class Interrupted(MemoryStorage):
    """Something happens, once, right before the first write of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[Callable[[Write], bool], Callable[[], Awaitable[object]]] | None = None

    def before(self, concerns: Callable[[Write], bool], something: Callable[[], Awaitable[object]]) -> None:
        self._before = concerns, something

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self._before is not None and any(map(self._before[0], writes)):
            (_, something), self._before = self._before, None
            await something()
        return await super().transact(writes)


def of_a_pod(write: Write) -> bool:
    return write.key.startswith("/registry/pods/")


def ends_the_namespace(write: Write) -> bool:
    return write.key == NAMESPACES.key("", TEAM) and write.value is None


class World:
    def __init__(self, assembly: Assembly, storage: Interrupted) -> None:
        self.assembly, self.storage = assembly, storage

    async def call(self, method: str, request: Any) -> bytes:
        return await self.assembly.methods[f"/pinnace.v1.{method}"].call(request, Caller(PEOPLE["admin"]))

    async def create(self, name: str) -> bytes:
        return await self.call("Pods/Create", CreatePodRequest(object=pod(name)))

    async def delete_namespace(self) -> Namespace:
        return Namespace.FromString(await self.call("Namespaces/Delete", DeleteRequest(name=TEAM)))

    async def names_of_pods(self) -> list[str]:
        page = await self.storage.page(f"/registry/pods/{TEAM}/")
        return [item.key.rpartition("/")[2] for item in page.items]

    async def label_namespace(self) -> None:
        namespace = Namespace.FromString(await self.call("Namespaces/Get", GetRequest(name=TEAM)))
        namespace.metadata.labels["owner"] = "somebody"
        await self.call("Namespaces/Update", UpdateNamespaceRequest(object=namespace))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    storage = Interrupted()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.opening.bootstrapped.wait()
            world = World(assembly, storage)
            namespace = Namespace()
            namespace.metadata.name = TEAM
            await world.call("Namespaces/Create", CreateNamespaceRequest(object=namespace))
            yield world
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def pod(name: str) -> Pod:
    return make_pod(name, namespace=TEAM).req(cpu="1").new()


async def refused(awaitable: Awaitable[object]) -> Refusal:
    with pytest.raises(Rejected) as caught:
        await awaitable
    return caught.value.refusal


async def refusal(awaitable: Awaitable[object]) -> str:
    return (await refused(awaitable)).reason


async def test_empty_namespace_is_deleted_immediately(world: World) -> None:
    await world.delete_namespace()
    assert await world.storage.get(NAMESPACES.key("", TEAM)) is None


async def test_nonempty_namespace_waits_for_the_controller(world: World) -> None:
    await world.create("a")
    assert (await world.delete_namespace()).status.phase == "Terminating"
    assert await world.storage.get(NAMESPACES.key("", TEAM)) is not None
    assert await refusal(world.create("b")) == "NamespaceTerminating"


async def test_create_in_a_terminating_namespace_gets_kubernetes_message(world: World) -> None:
    await world.create("a")
    await world.delete_namespace()
    told = await refused(world.create("q"))
    assert (told.code, told.reason) == (Code.PERMISSION_DENIED, "NamespaceTerminating")
    assert told.message == (
        'pods "q" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert told.violations == (Violation("metadata.namespace", "namespace team is being terminated"),)


async def test_deletion_of_a_permanent_namespace_is_refused(world: World) -> None:
    told = await refused(world.call("Namespaces/Delete", DeleteRequest(name="default")))
    assert told.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_object_that_was_admitted_before_its_namespace_went_is_not_written(world: World) -> None:
    world.storage.before(of_a_pod, world.delete_namespace)
    assert await refusal(world.create("a")) == "NamespaceNotFound"
    assert await world.names_of_pods() == []


async def test_batch_create_in_a_terminating_namespace_is_refused(world: World) -> None:
    world.storage.before(of_a_pod, world.delete_namespace)
    request = CreatePodBatchRequest(items=[pod("a"), make_pod("b", namespace="default").req(cpu="1").new()])
    response = BatchResponse.FromString(await world.call("Pods/CreateBatch", request))
    assert [item.HasField("error") for item in response.items] == [True, False]


async def test_creates_fail_between_the_empty_check_and_the_delete(world: World) -> None:
    refused: list[str] = []

    async def late() -> None:
        refused.append(await refusal(world.create("a")))

    world.storage.before(ends_the_namespace, late)
    await world.delete_namespace()
    assert refused == ["NamespaceTerminating"]
    assert await world.names_of_pods() == []


async def test_namespace_update_does_not_fail_concurrent_creates(world: World) -> None:
    world.storage.before(of_a_pod, world.label_namespace)
    created = Pod.FromString(await world.create("a"))
    assert created.metadata.name == "a"
    assert await world.names_of_pods() == ["a"]


OTHER_FINALIZER = "example.com/wait"


async def finalized(world: World, *finalizers: str, **metadata: str) -> Namespace:
    wanted = Namespace(metadata=ObjectMeta(name=TEAM, **metadata), spec=NamespaceSpec(finalizers=finalizers))
    return Namespace.FromString(await world.call("Namespaces/Finalize", UpdateNamespaceRequest(object=wanted)))


async def stored(world: World) -> Namespace | None:
    result = await world.storage.get(NAMESPACES.key("", TEAM))
    return Namespace.FromString(result.value) if result is not None else None


async def test_other_finalizers_of_the_spec_keep_an_empty_namespace_until_they_are_removed(world: World) -> None:
    """kubernetes#84515"""
    assert list((await finalized(world, "kubernetes", OTHER_FINALIZER)).spec.finalizers) == ["kubernetes", OTHER_FINALIZER]
    await world.delete_namespace()
    namespace = await stored(world)
    assert namespace is not None
    assert (namespace.status.phase, list(namespace.spec.finalizers)) == ("Terminating", [OTHER_FINALIZER])
    assert (await world.delete_namespace()).status.phase == "Terminating"
    assert await refusal(world.create("a")) == "NamespaceTerminating"
    await finalized(world)
    assert await stored(world) is None


async def test_removal_of_all_finalizers_ends_a_namespace_that_is_not_empty(world: World) -> None:
    await world.create("a")
    await world.delete_namespace()
    await finalized(world)
    assert await stored(world) is None
    assert await world.names_of_pods() == ["a"]


async def test_only_finalize_changes_the_finalizers_of_the_spec(world: World) -> None:
    namespace = Namespace.FromString(await world.call("Namespaces/Get", GetRequest(name=TEAM)))
    namespace.spec.finalizers.append(OTHER_FINALIZER)
    for method in ("Update", "UpdateStatus"):
        updated = await world.call(f"Namespaces/{method}", UpdateNamespaceRequest(object=namespace))
        assert list(Namespace.FromString(updated).spec.finalizers) == ["kubernetes"]
    assert list((await finalized(world, OTHER_FINALIZER, uid=namespace.metadata.uid)).spec.finalizers) == [OTHER_FINALIZER]


async def test_finalize_refuses_invalid_finalizers_and_other_namespaces(world: World) -> None:
    told = await refused(finalized(world, "kubernetes", "wait"))
    assert told.violations == (
        Violation(
            "spec.finalizers[1]",
            'Invalid value: "wait": name is neither a standard finalizer name nor is it fully qualified',
        ),
    )
    assert await refusal(finalized(world, uid="another")) == "UIDMismatch"
    assert await refusal(finalized(world, resourceVersion="1")) == "Conflict"


async def test_dry_run_of_a_delete_removes_no_finalizer(world: World) -> None:
    request = DeleteRequest(name=TEAM, options=DeleteOptions(dryRun=["All"]))
    assert list(Namespace.FromString(await world.call("Namespaces/Delete", request)).spec.finalizers) == ["kubernetes"]
    namespace = await stored(world)
    assert namespace is not None and not namespace.metadata.HasField("deletionTimestamp")


async def test_phase_of_a_namespace_follows_its_deletion(world: World) -> None:
    namespace = Namespace.FromString(await world.call("Namespaces/Get", GetRequest(name=TEAM)))
    namespace.status.conditions.add(type="Ready", status="True")
    updated = await world.call("Namespaces/UpdateStatus", UpdateNamespaceRequest(object=namespace))
    assert Namespace.FromString(updated).status.conditions[0].type == "Ready"
    namespace.metadata.resourceVersion, namespace.status.phase = "", "Terminating"
    told = await refused(world.call("Namespaces/UpdateStatus", UpdateNamespaceRequest(object=namespace)))
    text = "Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    assert told.violations == (Violation("status.Phase", text),)
