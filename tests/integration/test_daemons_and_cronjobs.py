"""Daemon sets and cron jobs on an API server with etcd, across terms of the controllers; the test is the scheduler."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resources import CONTROLLER_REVISIONS, CRON_JOBS, DAEMON_SETS, JOBS, NODES
from pinnace.client.client import Client
from pinnace.controllers.daemonnodes import target_node
from pinnace.controllers.main import build_controllers
from pinnace.controllers.manager import ControllerManager
from pinnace.controllers.nodelifecycle import NodeLifecycleOptions

PATIENCE = 20.0
COUNT = 5
LABELS = {"app": "agent"}


@asynccontextmanager
async def term(client: Client, name: str) -> AsyncIterator[None]:
    """A term of the controllers, which ends without a resignation."""
    manager = ControllerManager(client, name, lambda shared: build_controllers(shared, NodeLifecycleOptions()))
    running = asyncio.ensure_future(manager.run())
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def node(name: str) -> Node:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}  # otherwise it has the taint not-ready
    return from_dict(NODES, {"metadata": {"name": name}, "status": ready})


async def test_each_node_has_one_pod_after_a_failover(client: Client) -> None:
    for number in range(COUNT):
        await client.of(NODES).create(node(f"node-{number}"))
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    body = {"metadata": {"name": "agent", "namespace": "default"}}
    spec = {"selector": {"matchLabels": LABELS}, "template": template}
    async with term(client, "a"):
        await client.of(DAEMON_SETS).create(from_dict(DAEMON_SETS, body | {"spec": spec}))
        await _until_status(client, COUNT)
    async with term(client, "b"):
        await client.of(NODES).create(node("late"))
        await _until_status(client, COUNT + 1)
    pods = (await client.pods.list("default")).items
    names = [*(f"node-{number}" for number in range(COUNT)), "late"]
    assert Counter(map(target_node, pods)) == Counter(names)
    assert len((await client.of(CONTROLLER_REVISIONS).list("default")).items) == 1


async def _until_status(client: Client, scheduled: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await client.of(DAEMON_SETS).get("agent", "default")).status.currentNumberScheduled != scheduled:  # noqa: ASYNC110 (another process: there is no event to wait for)
            await asyncio.sleep(0.05)


async def test_cron_job_has_one_job_for_a_time_after_a_failover(client: Client) -> None:
    job = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    spec = {"schedule": "@every 1s", "jobTemplate": {"spec": job}}
    await client.of(CRON_JOBS).create(from_dict(CRON_JOBS, {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}))
    names = list[str]()
    for leader in ("a", "b"):
        async with term(client, leader), asyncio.timeout(PATIENCE):
            while True:
                names = [job.metadata.name for job in (await client.of(JOBS).list("default")).items]
                cron_job = await client.of(CRON_JOBS).get("c", "default")
                active = {reference.name for reference in cron_job.status.active}
                if names and active == set(names):
                    break
                await asyncio.sleep(0.05)
    assert len(set(names)) == len(names) <= 2  # names have minutes
