"""Objects that an earlier version stored are rewritten once, and nothing but their form changes."""

import asyncio

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import DEPLOYMENTS, PODS, STORAGE_FORMAT_KEY
from pinnace.apiserver.startup import FORMAT
from pinnace.apiserver.storage.interface import Committed, Write
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage
from tests.unit.registry.test_stored_before import serving
from tests.workloads import make_deployment

DEADLINE = 10.0


def old_pod() -> Pod:
    pod = make_pod("old").req(cpu="0.1", memory="1000M").new()
    pod.metadata.uid, pod.metadata.generation = "u", 7
    return pod


async def migrated(storage: MemoryStorage) -> None:
    async with asyncio.timeout(DEADLINE):
        async for changes in storage.watch(1):
            if any(change.key == STORAGE_FORMAT_KEY for change in changes.changes):
                return


async def test_stored_quantities_become_canonical_and_nothing_else_changes() -> None:
    storage, pod = MemoryStorage(), old_pod()
    template = make_deployment("web")
    template.metadata.uid = "d"
    template.spec.template.spec.containers[0].resources.limits["cpu"].string = ".5"
    async with serving((PODS, pod), (DEPLOYMENTS, template), storage=storage):
        await migrated(storage)
        result = await storage.get(PODS.key_of(pod))
        assert result is not None
        requests = pod.spec.containers[0].resources.requests
        requests["cpu"].string, requests["memory"].string = "100m", "1G"
        assert Pod.FromString(result.value) == pod
        deployment = await storage.get(DEPLOYMENTS.key_of(template))
        assert deployment is not None and b"500m" in deployment.value


async def test_migrated_store_is_not_looked_through_again() -> None:
    storage, pod = MemoryStorage(), old_pod()
    assert isinstance(await storage.transact([Write(STORAGE_FORMAT_KEY, FORMAT, 0)]), Committed)
    async with serving((PODS, pod), storage=storage) as assembly:
        async with asyncio.timeout(DEADLINE):
            await assembly._migrate_storage_format()
        result = await storage.get(PODS.key_of(pod))
        assert result is not None and Pod.FromString(result.value) == pod
