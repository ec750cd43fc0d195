"""Agreement with the real kube-scheduler 1.36.2, on small random clusters whose answers were recorded.

tests/data/kubernetes-placement-1.36.jsonl has one cluster a line: nodes, pods that are there, one pod, and the answer: the
node that kube-scheduler chose, or the message with which it refused. kube-scheduler chooses at random among equals, so the
recorded node must be among our best nodes. Messages must be equal but for two things: taints are named here, and claims of
devices are not modelled.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import NODES, PODS
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework.profile import Enabled, create_plugin, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from pinnace.scheduler.scheduling_cycle import Unschedulable, schedule_one
from tests.unit.scheduler.preempting import Bench

RECORDED = Path(__file__).parents[2] / "data/kubernetes-placement-1.36.jsonl"
CLUSTERS: list[dict[str, Any]] = [json.loads(line) for line in RECORDED.read_text().splitlines()]
PLACED = [item for item in CLUSTERS if "node" in item["answer"]]
REFUSED = [item for item in CLUSTERS if "message" in item["answer"]]


def seed_of(recorded: dict[str, Any]) -> str:
    return str(recorded["seed"])


def pod_info(data: dict[str, Any]) -> PodInfo:
    pod = from_dict(PODS, data)
    pod.metadata.namespace, pod.metadata.uid = "default", pod.metadata.name
    STRATEGIES[PODS.plural].prepare_create(pod)
    return PodInfo(pod)


def cluster(recorded: dict[str, Any]) -> tuple[Cache, Framework]:
    cache = Cache()
    for node in recorded["nodes"]:
        data = {
            "metadata": {"name": node["name"], "labels": node["labels"]},
            "spec": {"taints": node["taints"], "unschedulable": node["unschedulable"]},
            "status": {"capacity": node["capacity"], "allocatable": node["capacity"]},
        }
        cache.set_node(from_dict(NODES, data))
    for pod in recorded["pods"]:
        info = pod_info(pod)
        cache.add_pod(info, info.raw.spec.nodeName)
    handle = Bench(cache)
    plugins = [Enabled(create_plugin(plugin, name, {}, handle), weight) for name, (plugin, weight) in DEFAULT_PLUGINS.items()]
    handle.framework = Framework("default-scheduler", profile_of(plugins))
    return cache, handle.framework


@pytest.mark.parametrize("recorded", PLACED, ids=seed_of)
def test_recorded_node_is_among_the_best(recorded: dict[str, Any]) -> None:
    cache, framework = cluster(recorded)
    pod, nodes = pod_info(recorded["pod"]), cache.nodes
    diagnosis = framework.run_filters({}, pod, nodes)
    assert diagnosis.feasible.any()
    scores = framework.score({}, pod, nodes, diagnosis.feasible)
    best = [name for name, score in zip(nodes.names, scores, strict=True) if score == scores.max()]
    assert recorded["answer"]["node"] in best


@pytest.mark.parametrize("recorded", REFUSED, ids=seed_of)
def test_refusal_is_the_recorded_one(recorded: dict[str, Any]) -> None:
    cache, framework = cluster(recorded)
    outcome = schedule_one(pod_info(recorded["pod"]), NodeSelector(cache, framework, seed=0))
    assert isinstance(outcome, Unschedulable)
    ours = with_unnamed_taints(outcome.message)
    assert ours == recorded["answer"]["message"].replace("no new claims to deallocate, ", "")


def with_unnamed_taints(message: str) -> str:
    """The message, with all taints counted together as kube-scheduler 1.36 does."""
    head, dot, rest = message.partition(". ")
    title, colon, listed = head.partition(": ")
    counts: dict[str, int] = {}
    for part in re.split(r", (?=\d)", listed):
        number, _, reason = part.partition(" ")
        reason = re.sub(r"untolerated taint \{.*\}", "untolerated taint(s)", reason)
        counts[reason] = counts.get(reason, 0) + int(number)
    return title + colon + ", ".join(sorted(f"{number} {reason}" for reason, number in counts.items())) + dot + rest
