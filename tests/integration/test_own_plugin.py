"""A learner's plugin on a running cluster: it changes where pods go, and when it fails it says so and harms nobody else."""

import asyncio

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.client.client import Client
from tests.builders import PodBuilder, make_pod
from tests.integration.conftest import Start
from tests.integration.processes import Component
from tests.integration.test_first_story import PATIENCE, until

CONFIG = "examples/plugins/cheap.yaml"


def cheap(name: str) -> PodBuilder:
    return make_pod(name).req(cpu="100m").scheduler("cheap")


async def price(client: Client, node: str, value: str) -> None:
    await client.nodes.modify(node, "", lambda found: found.metadata.labels.update(price=value))


async def failure_of(client: Client, name: str) -> str:
    """What the event about the pod says."""
    async with asyncio.timeout(PATIENCE):
        async for batch in client.events.watch("default", fields=f"involvedObject.name={name},reason=FailedScheduling"):
            for _, event in batch.events:
                return event.message
    raise AssertionError("the watch ended")


async def bound(client: Client, name: str) -> Pod:
    return await until(client, name, lambda pod: bool(pod.spec.nodeName))


async def test_plugin_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, apiserver: Component, client: Client, start: Start
) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)
    await start("kubelet", "fleet", "--server", apiserver.address, "--nodes", "5", "--node-prefix", "node-").ready()
    schedulers = [
        start("scheduler", "usual", "--server", apiserver.address),
        start("scheduler", "own", "--server", apiserver.address, "--config", CONFIG),
    ]
    for scheduler in schedulers:
        await scheduler.ready()

    # It changes where pods go.
    await price(client, "node-3", "3")
    for number in range(3):
        await client.pods.create(cheap(f"web-{number}").new())
    assert {(await bound(client, f"web-{number}")).spec.nodeName for number in range(3)} == {"node-3"}

    # It fails: an event names it, the pod waits, and everybody else's pods are placed as before.
    await price(client, "node-1", "dear")
    await client.pods.create(cheap("unlucky").new())
    message = await failure_of(client, "unlucky")
    assert "CheapestNode" in message and "ValueError" in message and "dear" in message
    await client.pods.create(make_pod("other").req(cpu="100m").new())
    await bound(client, "other")
    assert not (await client.pods.get("unlucky", "default")).spec.nodeName

    # What was wrong is mended: the pod is placed without anybody's help.
    await price(client, "node-1", "2")
    assert (await bound(client, "unlucky")).spec.nodeName == "node-1"
    assert [scheduler.process.poll() for scheduler in schedulers] == [None, None]
