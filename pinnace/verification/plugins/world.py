"""A cluster in memory for one plugin: nodes, pods on them, and the plugin's results by node.

    cluster = PluginCluster([make_node("a", cpu="8"), make_node("b", cpu="8")], [make_pod("p", node="a", cpu="6")])
    cluster.score(Mine, make_pod("new", cpu="1"))        {"a": 75.0, "b": 12.5}
    cluster.refusals(Mine, make_pod("new", cpu="1"))     {"a": "", "b": "node(s) were too empty"}

Results are checked as in the scheduler. `random_cluster` and `random_pod` make the inputs of the checks from a seed.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES, PODS, Resource, T
from pinnace.api.wellknown import HOSTNAME_LABEL, ZONE_LABEL
from pinnace.client.client import Client
from pinnace.client.informer import Index
from pinnace.fit.table import BoolArray, insufficient_nodes
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import (
    SKIP,
    CycleState,
    FilterPlugin,
    FloatArray,
    NodeTable,
    NormalizePlugin,
    Plugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from pinnace.scheduler.framework.filtering import run_filter, run_pre_filter
from pinnace.scheduler.framework.plugin_errors import call_plugin, check_range, check_scores
from pinnace.scheduler.framework.profile import Preemption, WaitingPods, create_plugin
from pinnace.scheduler.plugins.gpu_share import (
    DEVICES,
    GPU_MILLI,
    INDEX_ANNOTATION,
    MODEL_LABEL,
    WHOLE,
    device_table,
    fitting_nodes,
    gpu_request,
)

PODS_PER_NODE = 110
_SIZES = (("4", "16Gi"), ("16", "64Gi"), ("32", "64Gi"), ("32", "256Gi"))
_CPUS = ("0", "50m", "333m", "1", "2500m")
_MEMORY = ("0", "64Mi", "1Gi", "7Gi")
_SHARES = (250, 500, WHOLE, 2 * WHOLE)


def make_node(
    name: str,
    cpu: str = "8",
    memory: str = "32Gi",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[tuple[str, str, str]] = (),
    **resources: str,
) -> Node:
    """Return a node. `taints`: (key, value, effect). `resources`: other amounts, `**{"example.com/gpu": "2"}`."""
    node = Node()
    node.metadata.name = node.metadata.uid = name
    node.metadata.labels[HOSTNAME_LABEL] = name
    for key, value in (labels or {}).items():
        node.metadata.labels[key] = value
    for key, value, effect in taints:
        node.spec.taints.add(key=key, value=value, effect=effect)
    for resource, amount in {"cpu": cpu, "memory": memory, "pods": f"{PODS_PER_NODE}", **resources}.items():
        node.status.capacity[resource].string = node.status.allocatable[resource].string = amount
    return node


def make_pod(
    name: str = "pod",
    cpu: str = "0",
    memory: str = "0",
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    priority: int = 0,
    **resources: str,
) -> Pod:
    """Return a pod with one container. `node`: where it runs; without it, the pod is pending."""
    pod = Pod()
    pod.metadata.name = pod.metadata.uid = name
    pod.metadata.namespace = "default"
    for key, value in (labels or {}).items():
        pod.metadata.labels[key] = value
    pod.spec.priority, pod.spec.nodeName = priority, node
    requests = pod.spec.containers.add(name="main", image="example.com/app:1").resources.requests
    for resource, amount in {"cpu": cpu, "memory": memory, **resources}.items():
        if amount != "0":
            requests[resource].string = amount
    pod.status.phase = "Running" if node else "Pending"
    return pod


class WorldHandle:
    """The framework's Handle with fixed nodes and pods. There is no API client, and no preemption."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
        self._objects: dict[Any, dict[str, Any]] = {
            NODES: {node.metadata.name: node for node in nodes},
            PODS: {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods},
        }
        self.waiting = WaitingPods(lambda: None)
        self.preemption: Preemption | None = None

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return self._objects.get(resource, {})

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        return Index(by, self.objects(resource).values())

    def activate(self, uid: str) -> None:
        """Do nothing, because there is no queue."""

    @property
    def client(self) -> Client:
        raise RuntimeError("there is no API client here")


class PluginCluster:
    """Nodes and the pods on them. A plugin may be a class, which is constructed with `args`, or an object."""

    def __init__(self, nodes: Sequence[Node], pods: Sequence[Pod] = (), *, args: Mapping[str, Any] | None = None) -> None:
        """Raise ValueError if two nodes or pods have one name, or a pod is on an unknown node."""
        for kind, names in (("nodes", [n.metadata.name for n in nodes]), ("pods", [p.metadata.uid for p in pods])):
            if twice := [name for name, number in Counter(names).items() if number > 1]:
                raise ValueError(f"two {kind} have the name {twice[0]}")
        self.cache = Cache()
        self._handle = WorldHandle(nodes, pods)
        self._devices = device_table(self._handle)
        self._args = args or {}
        for node in nodes:
            self.cache.set_node(node)
        for pod in pods:
            if self.nodes.row(pod.spec.nodeName) is None:
                raise ValueError(f'pod {pod.metadata.name}: there is no node "{pod.spec.nodeName}"')
            self.cache.add_pod(PodInfo(pod), pod.spec.nodeName)

    @property
    def nodes(self) -> NodeTable:
        """The scheduler's table of the nodes."""
        return self.cache.nodes

    def create(self, plugin: type[Plugin]) -> Plugin:
        """Construct a plugin as the scheduler does. Raise PluginLoadError."""
        return create_plugin(plugin, plugin.__name__, self._args, self._handle)

    def new_state(self) -> CycleState:
        """Return the state of a new cycle, with the devices of GpuShare."""
        self._devices.update(self.nodes)
        return {DEVICES: self._devices}

    def feasible_nodes(self, pod: PodInfo) -> BoolArray:
        """Return the nodes with enough free resources and devices."""
        feasible: BoolArray = np.ones(len(self.nodes), np.bool_)
        for _, lacking in insufficient_nodes(pod.requests, self.nodes.free):
            feasible &= ~lacking
        if (request := gpu_request(pod.requests)) is not None:
            self._devices.update(self.nodes)
            feasible &= fitting_nodes(self._devices.free, request)
        return feasible

    def score(self, plugin: type[Plugin] | Plugin, pod: Pod) -> dict[str, float]:
        """Return the score of each node with enough free resources; 0 for all if the plugin skips the pod. Raise PluginError
        if the result is invalid."""
        info, made = PodInfo(pod), self._plugin(plugin)
        feasible = self.feasible_nodes(info)
        scores = run_score_plugin(_require(made, ScorePlugin, "score"), self.new_state(), info, self.nodes, feasible)
        values = np.zeros(len(self.nodes)) if scores is None else scores
        return {name: float(values[row]) for row, name in enumerate(self.nodes.names) if feasible[row]}

    def refusals(self, plugin: type[Plugin] | Plugin, pod: Pod) -> dict[str, str]:
        """Return the reason of each node, or an empty text if the node passes. Raise PluginError if the result is invalid."""
        made = _require(self._plugin(plugin), FilterPlugin, "filter")
        reasons = run_filter_plugin(made, self.new_state(), PodInfo(pod), self.nodes)
        return {name: "; ".join(reasons[row]) for row, name in enumerate(self.nodes.names)}

    def _plugin(self, plugin: type[Plugin] | Plugin) -> Plugin:
        return self.create(plugin) if isinstance(plugin, type) else plugin


def _require(plugin: Any, protocol: Any, method: str) -> Any:
    if not isinstance(plugin, protocol):
        raise TypeError(f"{plugin.name} has no method `{method}`")
    return plugin


def run_score_plugin(
    plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray
) -> FloatArray | None:
    """Run PreScore, Score and NormalizeScore. Return the scores, or None if the plugin skips the pod. Raise PluginError for an
    invalid result."""
    skips = isinstance(plugin, PreScorePlugin) and (
        call_plugin(plugin, "PreScore", plugin.pre_score, state, pod, nodes, feasible) is SKIP
    )
    if skips:
        return None
    scores = call_plugin(plugin, "Score", plugin.score, state, pod, nodes, feasible)
    scores = call_plugin(plugin, "Score", check_scores, scores, feasible)
    if isinstance(plugin, NormalizePlugin):
        scores = call_plugin(plugin, "NormalizeScore", plugin.normalize, state, scores, feasible)
        scores = call_plugin(plugin, "NormalizeScore", check_scores, scores, feasible)
    checked, _ = call_plugin(plugin, "Score", check_range, scores, feasible)
    return checked


def run_filter_plugin(plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeTable) -> list[tuple[str, ...]]:
    """Run PreFilter and Filter. Return the reasons of each node, or () if it passes. Raise PluginError for an invalid
    result."""
    if isinstance(plugin, PreFilterPlugin) and (status := run_pre_filter(plugin, state, pod, nodes)) is not None:
        return [() if status is SKIP else (status.reason,)] * len(nodes)
    result = run_filter(plugin, state, pod, nodes)
    explained = result.explain()
    reasons: list[tuple[str, ...]] = []
    for row, passed in enumerate(result.passed.tolist()):
        code = int(explained.codes[row])
        if passed is bool(code):
            problem = f"node {nodes.names[row]} {'passes, but has' if passed else 'is refused without'} a reason"
            call_plugin(plugin, "Filter", _fail, problem)
        reasons.append(tuple(explained.reasons(code)) if code else ())
    return reasons


def _fail(problem: str) -> None:
    raise ValueError(problem)


# --- random inputs


def random_cluster(
    rng: random.Random, nodes: int, pods: int, *, labels: Mapping[str, Sequence[str]], args: Mapping[str, Any]
) -> PluginCluster:
    """Return a cluster with nodes of several sizes, zones, GPUs, taints and `labels`, and at most `pods` pods that fit.

    In some clusters, pods use more of a node than its allocatable CPU, as after a kubelet reserves more for the system."""
    made = [_random_node(rng, f"node-{number}", labels) for number in range(nodes)]
    left = {node.metadata.name: _Room(node) for node in made}
    placed = []
    for number in range(pods):
        node, pod = rng.choice(made).metadata.name, random_pod(rng, f"placed-{number}")
        if left[node].reserve_pod(pod):
            pod.spec.nodeName, pod.status.phase = node, "Running"
            placed.append(pod)
    if placed and rng.random() < 0.5:
        name = rng.choice(placed).spec.nodeName
        next(node for node in made if node.metadata.name == name).status.allocatable["cpu"].string = "10m"
    return PluginCluster(made, placed, args=args)


def random_pod(rng: random.Random, name: str) -> Pod:
    """Return a pending pod, with GPUs in one of four cases."""
    share = rng.choice(_SHARES) if rng.random() < 0.25 else 0
    group = rng.choice("abcd")
    pod = make_pod(
        name, rng.choice(_CPUS), rng.choice(_MEMORY), labels={"app": group}, priority=rng.choice((0, 0, 100)), **_gpus(share)
    )
    owner = pod.metadata.ownerReferences.add(apiVersion="apps/v1", kind="ReplicaSet", controller=True)
    owner.name = owner.uid = group
    if rng.random() < 0.2:
        pod.spec.tolerations.add(key="dedicated", operator="Exists")
    if rng.random() < 0.2:
        pod.spec.nodeSelector[ZONE_LABEL] = rng.choice(("zone-a", "zone-b"))
    return pod


def _gpus(milli: int) -> dict[str, str]:
    return {GPU_MILLI: f"{milli}"} if milli else {}


def _random_node(rng: random.Random, name: str, labels: Mapping[str, Sequence[str]]) -> Node:
    cpu, memory = rng.choice(_SIZES)
    devices = rng.choice((1, 2, 8)) if rng.random() < 0.4 else 0
    chosen = {ZONE_LABEL: rng.choice(("zone-a", "zone-b", "zone-c"))}
    if devices:
        chosen[MODEL_LABEL] = rng.choice(("A10", "V100"))
    chosen |= {key: rng.choice(list(values)) for key, values in labels.items() if rng.random() < 0.8}
    taints = [("dedicated", "batch", "NoSchedule")] if rng.random() < 0.1 else []
    node = make_node(name, cpu, memory, labels=chosen, taints=taints, **_gpus(devices * WHOLE))
    node.spec.unschedulable = rng.random() < 0.05
    return node


class _Room:
    """The free resources of one node, including devices."""

    def __init__(self, node: Node) -> None:
        self._free = dict(fit.allocatable_amounts(node))
        self._devices = [WHOLE] * (self._free.get(GPU_MILLI, 0) // WHOLE)

    def reserve_pod(self, pod: Pod) -> bool:
        """Subtract the requests of a pod, and choose its devices. Return False if it does not fit."""
        amounts = dict(PodInfo(pod).requests.amounts)
        if any(self._free.get(resource, 0) < amount for resource, amount in amounts.items()):
            return False
        if milli := amounts.get(GPU_MILLI, 0):
            number = max(milli // WHOLE, 1)
            fitting = [index for index, free in enumerate(self._devices) if free >= milli // number][:number]
            if len(fitting) < number:
                return False
            for index in fitting:
                self._devices[index] -= milli // number
            pod.metadata.annotations[INDEX_ANNOTATION] = "-".join(map(str, fitting))
        for resource, amount in amounts.items():
            self._free[resource] -= amount
        return True


def describe_pod(pod: Pod) -> str:
    """Return the pod's requests and other inputs of plugins in one line, for messages."""
    requests = {key: value.string for key, value in pod.spec.containers[0].resources.requests.items()}
    parts = [f"requests {requests or 'nothing'}", f"app={pod.metadata.labels.get('app', '')}", f"priority {pod.spec.priority}"]
    return ", ".join(parts)
