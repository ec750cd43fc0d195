"""What every cluster has, when the store has lost it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiserver.assembly import Assembly
from apiserver.registry.errors import Rejected
from apiserver.storage.memory import MemoryStorage
from pinnace.api.core_v1_pb2 import NamespaceList
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import ListRequest
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import eventually

PATIENCE = 10.0
SCHEDULER = Caller(PEOPLE["scheduler"])


@pytest.fixture
async def server() -> AsyncIterator[tuple[Assembly, FlakyStorage]]:
    """An API server without a transport."""
    storage = FlakyStorage()
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    async with asyncio.timeout(PATIENCE):
        await assembly.bootstrapped.wait()
    await eventually(lambda: assembly.readiness() is None)
    yield assembly, storage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def namespaces(assembly: Assembly, caller: Caller) -> set[str]:
    answer = await assembly.methods["/pinnace.v1.Namespaces/List"].call(ListRequest(), caller)
    return {each.metadata.name for each in NamespaceList.FromString(answer).items}


async def test_a_store_that_comes_back_empty_is_given_what_every_cluster_has(server: tuple[Assembly, FlakyStorage]) -> None:
    """Without roles everything would be forbidden, until somebody restarts the servers."""
    assembly, storage = server
    before = await namespaces(assembly, SCHEDULER)
    storage.leave()
    await eventually(lambda: assembly.readiness() is not None)
    storage.restore(MemoryStorage())
    storage.come_back()
    await eventually(lambda: assembly.readiness() is None)
    assert "default" in before and await namespaces(assembly, SCHEDULER) == before


async def test_no_call_is_taken_before_that(server: tuple[Assembly, FlakyStorage]) -> None:
    """It would be told that it is forbidden, and give up."""
    assembly, _ = server
    assembly.cacher.install(1, ())
    assert assembly.readiness() is not None
    with pytest.raises(Rejected) as rejected:
        await namespaces(assembly, SCHEDULER)
    assert rejected.value.refusal.code is Code.UNAVAILABLE and rejected.value.refusal.reason == "NotReady"
