"""Workloads on real processes: what a deployment promises while it is rolled out, watched from outside."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import API_SERVICES, DEPLOYMENTS, ENDPOINTS, PODS, SERVICES
from pinnace.api.rollouts import REVISION_ANNOTATION
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Informer
from pinnace.controllers.pods import is_pod_active, is_pod_ready
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.workloads import make_deployment

PATIENCE = 15.0
REPLICAS, SURGE, UNAVAILABLE = 6, 2, 1


class Watcher:
    """Follows the pods and the deployments, and remembers the worst moment of the pods."""

    def __init__(self, client: Client) -> None:
        self.pods, self.deployments = Informer(client.of(PODS)), Informer(client.of(DEPLOYMENTS))
        self._changed = asyncio.Event()
        self.fewest, self.most = REPLICAS, 0
        self.pods.add_handler(self._count)
        self.deployments.add_handler(lambda deltas: self._changed.set())

    def _count(self, deltas: Iterable[Delta[Pod]]) -> None:
        there = [pod for pod in self.pods.store.values() if is_pod_active(pod)]
        self.fewest, self.most = min(self.fewest, sum(map(is_pod_ready, there))), max(self.most, len(there))
        self._changed.set()

    def begin(self) -> None:
        """Forgets the worst moment."""
        self.fewest, self.most = REPLICAS, 0

    @property
    def images(self) -> list[str]:
        return sorted(
            pod.spec.containers[0].image for pod in self.pods.store.values() if is_pod_active(pod) and is_pod_ready(pod)
        )

    async def until(self, what: str, holds: Callable[[Deployment], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while (result := self.deployments.store.get("default/web")) is None or not holds(result):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s: {what}\n{self.images}\n{result}") from None


@asynccontextmanager
async def watching(client: Client) -> AsyncIterator[Watcher]:
    watcher = Watcher(client)
    tasks = [asyncio.ensure_future(item.run()) for item in (watcher.pods, watcher.deployments)]
    try:
        for item in (watcher.pods, watcher.deployments):
            await item.wait_synced(PATIENCE)
        yield watcher
    finally:
        for task in tasks:
            task.cancel()


@pytest.fixture(autouse=True)
async def cluster(apiserver: Component, start: Start) -> None:
    server = ("--server", apiserver.address)
    parts = [start("controllers", "controllers-0", *server), start("scheduler", "scheduler-0", *server)]
    parts.append(start("kubelet", "fleet", *server, "--nodes", "2", "--node-prefix", "node-"))
    await asyncio.gather(*(part.ready() for part in parts))


def complete(deployment: Deployment) -> bool:
    status, wanted = deployment.status, deployment.spec.replicas
    seen = status.observedGeneration == deployment.metadata.generation
    return seen and status.replicas == status.updatedReplicas == status.availableReplicas == wanted


async def test_deployment_comes_is_updated_undone_and_goes_and_keeps_its_promises(client: Client) -> None:
    web = make_deployment("web", replicas=REPLICAS)
    web.spec.strategy.rollingUpdate.maxSurge.intVal, web.spec.strategy.rollingUpdate.maxUnavailable.intVal = SURGE, UNAVAILABLE
    web.spec.strategy.rollingUpdate.maxSurge.type = web.spec.strategy.rollingUpdate.maxUnavailable.type = 0
    web.metadata.uid = web.metadata.resourceVersion = ""
    deployments = client.of(DEPLOYMENTS)
    async with watching(client) as watcher:
        await deployments.create(web)
        await watcher.until("it has come", complete)
        assert watcher.images == ["app:1"] * REPLICAS

        watcher.begin()
        new = {"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": "app:2"}]}}}}
        await deployments.patch("web", "default", new)
        await watcher.until("it is updated", lambda found: complete(found) and watcher.images == ["app:2"] * REPLICAS)
        assert watcher.fewest >= REPLICAS - UNAVAILABLE
        assert watcher.most <= REPLICAS + SURGE

        old = {"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": "app:1"}]}}}}
        await deployments.patch("web", "default", old)  # as `kubectl rollout undo` does
        await watcher.until("it is undone", lambda found: complete(found) and watcher.images == ["app:1"] * REPLICAS)
        assert watcher.fewest >= REPLICAS - UNAVAILABLE
        assert watcher.most <= REPLICAS + SURGE
        assert watcher.deployments.store["default/web"].metadata.annotations[REVISION_ANNOTATION] == "3"

        await deployments.patch("web", "default", {"spec": {"replicas": 0}})
        await watcher.until("it is gone", lambda found: complete(found) and not watcher.pods.store)


async def test_old_clients_find_endpoints_and_api_services(client: Client) -> None:
    service = Service(metadata=ObjectMeta(name="web", namespace="default"))
    service.spec.selector["app"] = "web"
    service.spec.ports.add(port=80, protocol="TCP")
    await client.of(SERVICES).create(service)
    deployment = make_deployment("web", replicas=2)
    deployment.metadata.uid = deployment.metadata.resourceVersion = ""
    await client.of(DEPLOYMENTS).create(deployment)
    async with asyncio.timeout(PATIENCE):
        while True:
            found = [each for each in (await client.of(ENDPOINTS).list("default")).items if each.metadata.name == "web"]
            addresses = [address.targetRef.kind for each in found for subset in each.subsets for address in subset.addresses]
            if addresses == ["Pod", "Pod"]:
                break
            await asyncio.sleep(0.1)
    apps = await client.of(API_SERVICES).get("v1.apps")
    assert [(condition.status, condition.reason) for condition in apps.status.conditions] == [("True", "Local")]
