"""Dry runs are told what would have happened, whatever the cache has heard of."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.assembly import Assembly
from apiserver.registry.errors import Rejected
from apiserver.storage.interface import Committed, Write
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import DeleteRequest, GetRequest
from tests.builders import make_pod
from tests.unit.auth.matrix import OWN, PEOPLE, Caller, serving
from tests.unit.cacher.flaky import FlakyStorage


class Lagging:
    """An API server that hears of nothing any more, and what others write meanwhile."""

    def __init__(self, assembly: Assembly, storage: FlakyStorage) -> None:
        self._assembly = assembly
        self._storage = storage

    async def call(self, verb: str, request: Any) -> Pod:
        return Pod.FromString(await self._assembly.methods[f"/pinnace.v1.Pods/{verb}"].call(request, Caller(PEOPLE["admin"])))

    async def dry(self, verb: str, request: Any) -> str:
        """Why the dry run is refused; "": it is not."""
        request.options.dryRun[:] = ["All"]
        try:
            await self.call(verb, request)
        except Rejected as rejected:
            return rejected.refusal.reason
        return ""

    async def put(self, name: str, pod: Pod | None) -> None:
        """Written by another server; None: deleted."""
        key = PODS.key(OWN, name)
        present = await self._storage.get(key)
        value = None if pod is None else pod.SerializeToString()
        assert isinstance(await self._storage.transact([Write(key, value, present.mod_revision if present else 0)]), Committed)

    def asked(self, verb: str, pod: Pod) -> Any:
        request: Any = self._assembly.methods[f"/pinnace.v1.Pods/{verb}"].parse(b"")
        request.object.CopyFrom(pod)
        return request


@pytest.fixture
async def lagging() -> AsyncIterator[Lagging]:
    storage = FlakyStorage()
    async with serving(storage) as assembly:
        await assembly.methods["/pinnace.v1.Pods/Get"].call(GetRequest(namespace=OWN, name="thing"), Caller(PEOPLE["admin"]))
        storage.silent = True
        yield Lagging(assembly, storage)


async def test_a_create_of_what_is_there(lagging: Lagging) -> None:
    pod = make_pod("new", namespace=OWN).req().new()
    assert await lagging.dry("Create", lagging.asked("Create", pod)) == ""
    await lagging.put("new", pod)
    assert await lagging.dry("Create", lagging.asked("Create", pod)) == "AlreadyExists"


async def test_an_update_and_a_delete_of_another_version(lagging: Lagging) -> None:
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
