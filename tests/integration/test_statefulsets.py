"""A stateful set on real processes: its leading controllers are killed during the rollout and the update."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Informer
from pinnace.controllers.pods import is_pod_ready
from pinnace.controllers.statefulpods import ordinal_of
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.workloads import make_stateful_set

PATIENCE = 40.0
REPLICAS = 3


@pytest.fixture
async def controllers(apiserver: Component, start: Start) -> Component:
    server = ("--server", apiserver.address)
    parts = [start("controllers", "controllers-0", *server), start("scheduler", "scheduler-0", *server)]
    parts.append(start("kubelet", "fleet", *server, "--nodes", "2", "--node-prefix", "node-"))
    await asyncio.gather(*(part.ready() for part in parts))
    return parts[0]


async def test_ordered_rollout_and_update_survive_killed_controllers(client: Client, controllers: Component) -> None:
    web = make_stateful_set("web", replicas=REPLICAS)
    web.metadata.uid = web.metadata.resourceVersion = ""
    pods = Informer(client.of(PODS))
    created: list[int] = []
    changed = asyncio.Event()

    def follow(deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            if delta.kind == ADDED:
                before = range(ordinal_of(delta.obj))
                assert all(is_pod_ready(pods.store[f"default/web-{ordinal}"]) for ordinal in before)
                created.append(ordinal_of(delta.obj))
        changed.set()

    async def until(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                changed.clear()
                await changed.wait()

    def images() -> list[str]:
        return [pod.spec.containers[0].image for pod in pods.store.values() if is_pod_ready(pod)]

    sets = client.of(STATEFUL_SETS)
    stored = Informer(sets)
    stored.add_handler(lambda deltas: changed.set())
    pods.add_handler(follow)
    watching = [asyncio.ensure_future(informer.run()) for informer in (pods, stored)]
    for informer in (pods, stored):
        await informer.wait_synced(PATIENCE)
    await sets.create(web)
    await until(lambda: "default/web-0" in pods.store)
    controllers.kill()
    controllers.restart()
    await until(lambda: images() == ["app:1"] * REPLICAS)
    assert created == [0, 1, 2]
    new = {"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": "app:2"}]}}}}
    await sets.patch("web", "default", new)
    await until(lambda: images() == ["app:2"] * REPLICAS)
    assert created == [0, 1, 2, 2, 1, 0]

    def is_complete() -> bool:
        status = stored.store["default/web"].status
        return status.observedGeneration == 2 and status.currentRevision == status.updateRevision

    await until(is_complete)
    status = stored.store["default/web"].status
    assert (status.replicas, status.readyReplicas, status.currentReplicas) == (REPLICAS,) * 3
    revisions = (await client.of(CONTROLLER_REVISIONS).list("default")).items
    assert sorted(revision.revision for revision in revisions) == [1, 2]
    for task in watching:
        task.cancel()
