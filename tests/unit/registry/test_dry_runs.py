"""Dry runs are told what would have happened, whatever the cache has heard of."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import NAMESPACES, PODS
from pinnace.api.verbs_pb2 import DeleteRequest, GetRequest, PatchRequest
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.storage.interface import ChangeBatch, Committed, Write
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving


class Slow(MemoryStorage):
    """Its watches tell nothing while they are held."""

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()
        self.told.set()

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        async with aclosing(super().watch(start_revision)) as batches:
            async for batch in batches:
                await self.told.wait()
                yield batch


class Lagging:
    """An API server that hears late of what others write."""

    def __init__(self, assembly: Assembly, storage: Slow) -> None:
        self._assembly = assembly
        self._storage = storage

    async def call(self, verb: str, request: Any) -> Pod:
        return Pod.FromString(await self._assembly.methods[f"/pinnace.v1.Pods/{verb}"].call(request, Caller(PEOPLE["admin"])))

    async def dry(self, verb: str, request: Any) -> str:
        """Why the dry run is refused; "": it is not."""
        request.options.dryRun[:] = ["All"]
        asking = asyncio.ensure_future(self.call(verb, request))
        for _ in range(100):
            await asyncio.sleep(0)
        assert asking.done() == self._storage.told.is_set(), "it waits for what it has not heard"
        self._storage.told.set()
        try:
            await asking
        except Rejected as rejected:
            return rejected.refusal.reason
        return ""

    async def put(self, name: str, pod: Pod | None) -> None:
        """Written by another server; None: deleted."""
        await self.write(PODS.key(OWN, name), pod)

    async def write(self, key: str, obj: Any) -> None:
        self._storage.told.clear()
        present = await self._storage.get(key)
        value = None if obj is None else obj.SerializeToString()
        assert isinstance(await self._storage.transact([Write(key, value, present.mod_revision if present else 0)]), Committed)

    def asked(self, verb: str, pod: Pod) -> Any:
        request: Any = self._assembly.methods[f"/pinnace.v1.Pods/{verb}"].parse(b"")
        request.object.CopyFrom(pod)
        return request


@pytest.fixture
async def lagging() -> AsyncIterator[Lagging]:
    storage = Slow()
    async with serving(storage) as assembly:
        await assembly.methods["/pinnace.v1.Pods/Get"].call(GetRequest(namespace=OWN, name="thing"), Caller(PEOPLE["admin"]))
        yield Lagging(assembly, storage)


async def test_create_of_what_is_there(lagging: Lagging) -> None:
    pod = make_pod("new", namespace=OWN).req().new()
    assert await lagging.dry("Create", lagging.asked("Create", pod)) == ""
    await lagging.put("new", pod)
    assert await lagging.dry("Create", lagging.asked("Create", pod)) == "AlreadyExists"


async def test_update_and_a_delete_of_another_version(lagging: Lagging) -> None:
    pod = await lagging.call("Get", GetRequest(namespace=OWN, name="thing", options={"resourceVersion": "0"}))
    update, delete = lagging.asked("Update", pod), DeleteRequest(namespace=OWN, name="thing")
    update.object.metadata.labels["a"] = "b"
    delete.options.preconditions.resourceVersion = pod.metadata.resourceVersion
    assert [await lagging.dry("Update", update), await lagging.dry("Delete", delete)] == ["", ""]
    later = Pod()
    later.CopyFrom(pod)
    later.metadata.resourceVersion = ""
    later.metadata.labels["by"] = "another"
    await lagging.put("thing", later)
    assert [await lagging.dry("Update", update), await lagging.dry("Delete", delete)] == ["Conflict", "Conflict"]
    await lagging.put("thing", None)
    assert [await lagging.dry("Update", update), await lagging.dry("Delete", delete)] == ["NotFound", "NotFound"]


async def test_create_in_a_namespace_that_is_gone(lagging: Lagging) -> None:
    """A write would be compared with the namespace's version."""
    pod = make_pod("new", namespace=OWN).req().new()
    await lagging.write(NAMESPACES.key("", OWN), None)
    assert await lagging.dry("Create", lagging.asked("Create", pod)) == "NamespaceNotFound"


@pytest.mark.parametrize("said", ["", "all", "None", "x" * 100])
async def test_there_is_one_kind_of_dry_run(lagging: Lagging, said: str) -> None:
    """As in Kubernetes. Who misspells it would not know whether anything was written."""
    pod = make_pod("new", namespace=OWN).req().new()
    thing = await lagging.call("Get", GetRequest(namespace=OWN, name="thing"))
    patch = PatchRequest(namespace=OWN, name="thing", type=PatchRequest.MERGE, patch=b"{}")
    for verb, request in (
        ("Create", lagging.asked("Create", pod)),
        ("Update", lagging.asked("Update", thing)),
        ("Patch", patch),
        ("Delete", DeleteRequest(namespace=OWN, name="thing")),
    ):
        request.options.dryRun[:] = ["All", said]
        with pytest.raises(Rejected) as caught:
            await lagging.call(verb, request)
        told = f'options.dryRun: Unsupported value: "{said[:32]}": supported values: "All"'
        assert (caught.value.refusal.reason, caught.value.refusal.message) == ("BadRequest", told)
