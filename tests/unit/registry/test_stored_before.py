"""Objects that were stored before there was a rule which they break: they can be scaled, labelled and let go all the same."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiserver.assembly import Assembly
from apiserver.registry.errors import Rejected
from apiserver.registry.strategies import STRATEGIES
from apiserver.registry.strategy import added
from apiserver.storage.interface import Committed, Write
from apiserver.storage.memory import MemoryStorage
from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.deployments_pb2 import UpdateDeploymentRequest
from pinnace.api.resources import DEPLOYMENTS, SERVICES
from pinnace.api.verbs_pb2 import GetRequest
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.workloads import make_deployment

PATIENCE = 10.0


@pytest.fixture
async def assembly() -> AsyncIterator[Assembly]:
    """With a deployment "old", whose environment no process can be given."""
    storage = MemoryStorage()
    deployment = make_deployment("old")
    container = deployment.spec.template.spec.containers[0]
    container.env.add(name="A", value="x\0y")
    container.terminationMessagePath, container.imagePullPolicy = "/dev/termination-log", "Always"
    container.terminationMessagePolicy = "File"
    write = Write(DEPLOYMENTS.key("default", "old"), deployment.SerializeToString(), 0)
    assert isinstance(await storage.transact([write]), Committed)
    assembly = Assembly(storage)
    running = asyncio.ensure_future(assembly.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await assembly.bootstrapped.wait()
            yield assembly
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def call(assembly: Assembly, method: str, request: Any) -> Deployment:
    answer = await assembly.methods[f"/pinnace.v1.Deployments/{method}"].call(request, Caller(PEOPLE["admin"]))
    return Deployment.FromString(answer)


async def get(assembly: Assembly) -> Deployment:
    return await call(assembly, "Get", GetRequest(name="old", namespace="default"))


async def test_it_is_scaled_and_labelled(assembly: Assembly) -> None:
    found = await get(assembly)
    found.spec.replicas = 0
    found.metadata.labels["owner"] = "somebody"
    await call(assembly, "Update", UpdateDeploymentRequest(object=found))
    now = await get(assembly)
    assert (now.spec.replicas, now.metadata.labels["owner"]) == (0, "somebody")


async def test_nothing_new_is_let_in(assembly: Assembly) -> None:
    found = await get(assembly)
    found.spec.template.spec.containers[0].env.add(name="B", value="x\0y")
    found.spec.replicas = -1
    with pytest.raises(Rejected) as refused:
        await call(assembly, "Update", UpdateDeploymentRequest(object=found))
    fields = [each.field for each in refused.value.refusal.violations]
    assert sorted(fields) == ["spec.replicas", "spec.template.spec.containers[0].env[1].value"]


def test_what_may_not_change_may_not_change_in_such_an_object() -> None:
    strategy = STRATEGIES[SERVICES.plural]
    old = Service()
    old.metadata.name, old.metadata.namespace, old.metadata.resourceVersion = "old", "default", "1"
    old.spec.type, old.spec.clusterIP = "ClusterIP", "10.0.0.1"
    new = Service()
    new.CopyFrom(old)
    assert strategy.validate_update(old, old)
    assert not added(strategy.validate_update, new, old)
    new.spec.clusterIP = "10.0.0.2"
    assert [each.field for each in added(strategy.validate_update, new, old)] == ["spec.clusterIP"]
