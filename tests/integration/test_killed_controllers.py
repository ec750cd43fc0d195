"""Controllers of real processes that are killed while they create: no node, index or time has two objects."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import CRON_JOBS, DAEMON_SETS, JOBS, PODS, Object, Resource
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Informer
from pinnace.controllers.daemonnodes import target_node
from tests.integration.conftest import Start
from tests.integration.processes import Component

PATIENCE = 40.0
NODES = 20
INDEX = "batch.kubernetes.io/job-completion-index"
LABELS = {"app": "web"}


class Workload(NamedTuple):
    """An object, and what its controller creates for it. `identity`: what no two of them share. `expected`: of all, and of the
    first that makes the test kill the controllers."""

    owner: Resource[Any]
    spec: dict[str, Any]
    created: Resource[Any]
    identity: Callable[[Any], str]
    expected: int


def pod_template(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    metadata = {"labels": LABELS, "annotations": {"pinnace.io/run-seconds": "0.2"} if spec else {}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


ONCE = pod_template(restartPolicy="Never")
WORKLOADS = {
    "daemonset": Workload(
        DAEMON_SETS, {"selector": {"matchLabels": LABELS}, "template": pod_template()}, PODS, target_node, NODES
    ),
    "job": Workload(
        JOBS,
        {"completions": 30, "parallelism": 5, "completionMode": "Indexed", "template": ONCE},
        PODS,
        lambda pod: pod.metadata.annotations[INDEX],
        30,
    ),
    "cronjob": Workload(
        CRON_JOBS,
        {"schedule": "@every 1s", "jobTemplate": {"spec": {"template": ONCE}}},
        JOBS,
        lambda job: job.metadata.name,
        1,
    ),
}


@pytest.fixture
async def controllers(apiserver: Component, start: Start) -> Component:
    server = ("--server", apiserver.address)
    parts = [start("controllers", "controllers-0", *server), start("scheduler", "scheduler-0", *server)]
    parts.append(start("kubelet", "fleet", *server, "--nodes", str(NODES), "--node-prefix", "node-"))
    await asyncio.gather(*(part.ready() for part in parts))
    return parts[0]


@pytest.mark.parametrize("name", WORKLOADS)
async def test_objects_are_created_once_by_killed_controllers(client: Client, controllers: Component, name: str) -> None:
    workload = WORKLOADS[name]
    identities: list[str] = []
    changed = asyncio.Event()

    def follow(deltas: Sequence[Delta[Object]]) -> None:
        identities.extend(workload.identity(delta.obj) for delta in deltas if delta.kind == ADDED)
        changed.set()

    async def until(count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(identities) < count:
                changed.clear()
                await changed.wait()

    created: Informer[Any] = Informer(client.of(workload.created))
    created.add_handler(follow)
    watching = asyncio.ensure_future(created.run())
    await created.wait_synced(PATIENCE)
    body = {"metadata": {"name": "web", "namespace": "default"}, "spec": workload.spec}
    await client.of(workload.owner).create(from_dict(workload.owner, body))
    for kill in range(3):
        await until(min(workload.expected, 1 + kill * workload.expected // 4))
        controllers.kill()
        controllers.restart()
    await until(workload.expected)
    await controllers.ready()
    marker = {"metadata": {"annotations": {"touched": "yes"}}}
    await client.of(workload.owner).patch("web", "default", marker)
    await is_complete(client, workload)
    assert [identity for identity, count in Counter(identities).items() if count > 1] == []
    watching.cancel()


async def is_complete(client: Client, workload: Workload) -> None:
    """Wait until the status says that the new leader has done its work."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status = (await client.of(workload.owner).get("web", "default")).status
            if workload.owner is CRON_JOBS and status.HasField("lastSuccessfulTime"):
                return
            if workload.owner is not CRON_JOBS and workload.expected in (
                getattr(status, "numberReady", 0),
                getattr(status, "succeeded", 0),
            ):
                return
            await asyncio.sleep(0.05)
