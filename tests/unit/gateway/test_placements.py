"""The recorded placements of kube-scheduler 1.36.2 (tests/unit/scheduler/test_kube_scheduler.py) with objects that pass through
a gateway. Nodes and pods are created and read over HTTP, and the pod is bound over HTTP.

Every tenth cluster here; PINNACE_PLACEMENTS=1 replays all 270."""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import NODES, PODS
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework.profile import Enabled, create_plugin, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from pinnace.scheduler.scheduling_cycle import Unschedulable, schedule_one
from tests.unit.gateway.serving import Gateway, gateway
from tests.unit.scheduler.preempting import Bench
from tests.unit.scheduler.test_kube_scheduler import CLUSTERS, seed_of, with_unnamed_taints

EACH = int(os.environ.get("PINNACE_PLACEMENTS", "10"))
NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Gateway]:
    async with gateway() as result:
        yield result


async def ask(served: Gateway, method: str, path: str, body: Any = None, **options: Any) -> Any:
    answer = await served.ask(method, path, body, **options)
    assert answer.code in (200, 201), answer.body
    return answer.json


async def create(served: Gateway, recorded: dict[str, Any]) -> None:
    for node in recorded["nodes"]:
        path = f"{NODES_PATH}/{node['name']}"
        await ask(served, "POST", NODES_PATH, {"metadata": {"name": node["name"], "labels": node["labels"]}})
        spec = {"taints": node["taints"], "unschedulable": node["unschedulable"]}  # without the taint of a new node
        await ask(served, "PATCH", path, {"spec": spec}, content_type=MERGE)
        status = {"capacity": node["capacity"], "allocatable": node["capacity"]}
        await ask(served, "PATCH", f"{path}/status", {"status": status}, content_type=MERGE)
    for pod in (*recorded["pods"], recorded["pod"]):
        await ask(served, "POST", PODS_PATH, pod)


async def scheduler(served: Gateway, name: str) -> tuple[PodInfo, Cache, Framework]:
    """A scheduler with the listed nodes and pods, and the pod to schedule."""
    cache, wanted = Cache(), None
    for node in (await ask(served, "GET", NODES_PATH))["items"]:
        cache.set_node(from_dict(NODES, node))
    for pod in (await ask(served, "GET", PODS_PATH))["items"]:
        info = PodInfo(from_dict(PODS, pod))
        if pod["metadata"]["name"] == name:
            wanted = info
        else:
            cache.add_pod(info, info.raw.spec.nodeName)
    assert wanted is not None
    handle = Bench(cache)
    plugins = [Enabled(create_plugin(plugin, name, {}, handle), weight) for name, (plugin, weight) in DEFAULT_PLUGINS.items()]
    handle.framework = Framework("default-scheduler", profile_of(plugins))
    return wanted, cache, handle.framework


@pytest.mark.parametrize("recorded", CLUSTERS[::EACH], ids=seed_of)
async def test_placement_through_the_gateway_matches_the_recording(served: Gateway, recorded: dict[str, Any]) -> None:
    await create(served, recorded)
    name, answer = recorded["pod"]["metadata"]["name"], recorded["answer"]
    try:
        pod, cache, framework = await scheduler(served, name)
        if "message" in answer:
            outcome = schedule_one(pod, NodeSelector(cache, framework, seed=0))
            assert isinstance(outcome, Unschedulable)
            expected = answer["message"].replace("no new claims to deallocate, ", "")
            assert with_unnamed_taints(outcome.message) == expected
            return
        nodes = cache.nodes
        diagnosis = framework.run_filters({}, pod, nodes)
        scores = framework.score({}, pod, nodes, diagnosis.feasible)
        assert answer["node"] in [each for each, score in zip(nodes.names, scores, strict=True) if score == scores.max()]
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": answer["node"]}}
        await ask(served, "POST", f"{PODS_PATH}/{name}/binding", binding)
        assert (await ask(served, "GET", f"{PODS_PATH}/{name}"))["spec"]["nodeName"] == answer["node"]
    finally:
        for item in (*recorded["pods"], recorded["pod"]):
            await ask(served, "DELETE", f"{PODS_PATH}/{item['metadata']['name']}?gracePeriodSeconds=0")
        for node in recorded["nodes"]:
            await ask(served, "DELETE", f"{NODES_PATH}/{node['name']}")
