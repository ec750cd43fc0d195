"""Plugins that compare a pod with one property of each node.

These are NodeUnschedulable, TaintToleration, NodeName, NodePorts, ImageLocality and NodePreferAvoidPods. Their reasons are
kube-scheduler's.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from pinnace.api.wellknown import UNSCHEDULABLE_TAINT
from pinnace.fit.room import PORTS_REASON
from pinnace.scheduler.cache.table import Taint
from pinnace.scheduler.framework import (
    MAX_SCORE,
    SKIP,
    BoolArray,
    Change,
    ClusterEvent,
    Cost,
    CycleState,
    Dependency,
    FilterResult,
    FloatArray,
    NodeTable,
    PodInfo,
    Status,
    floor_scores,
)
from pinnace.scheduler.framework.filtering import BUDGET

UNSCHEDULABLE_REASON = "node(s) were unschedulable"
CORDON_TAINT = (UNSCHEDULABLE_TAINT, "", "NoSchedule")
HARD_EFFECTS = ("NoSchedule", "NoExecute")
SOFT_EFFECTS = ("PreferNoSchedule",)
_TOLERATION = 1.5e-6
"""Seconds per toleration."""
_COUNTS = "TaintToleration.counts"
NODE_NAME_REASON = "node(s) didn't match the requested node name"
_PORT, _USER = 12e-6, 0.3e-6
"""Seconds per port, and per node that uses it."""
_LEAST = 23 << 20
_MOST = 1000 << 20
ANNOTATION = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_KINDS = ("ReplicaSet", "ReplicationController")
_CONTROLLER = "NodePreferAvoidPods.controller"


class NodeUnschedulable:
    name = "NodeUnschedulable"
    filter_depends_on = Dependency.NODES
    helped_by = Change.NODE_ADDED | Change.NODE_TAINTS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        if not np.count_nonzero(nodes.unschedulable):
            return SKIP
        return SKIP if pod.tolerations.tolerate(*CORDON_TAINT) else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(nodes.unschedulable, UNSCHEDULABLE_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not nodes.unschedulable[row]


def untolerated_taints(taints: Iterable[Taint], pod: PodInfo, effects: tuple[str, ...]) -> list[Taint]:
    """Return the taints with these effects that the pod does not tolerate."""
    tolerations = pod.tolerations
    return [taint for taint in taints if taint[2] in effects and not tolerations.tolerate(*taint)]


class TaintToleration:
    name = "TaintToleration"
    filter_depends_on = Dependency.NODES
    skip_depends_on = Dependency.NODES
    helped_by = Change.NODE_ADDED | Change.NODE_TAINTS

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        tolerations = len(pod.raw.spec.tolerations)
        return [Cost(tolerations * _TOLERATION, tolerations, "tolerations")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return SKIP if nodes.taints.uniform else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        reasons = {"": 0}

        def code(taints: tuple[Taint, ...]) -> int:
            result = untolerated_taints(taints, pod, HARD_EFFECTS)
            reason = f"node(s) had untolerated taint {{{result[0][0]}: {result[0][1]}}}" if result else ""
            return reasons.setdefault(reason, len(reasons))

        codes = nodes.taints.map(code, np.int32)
        return FilterResult.coded(codes, list(reasons))

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        row = nodes.row(event.node)
        return row is not None and not untolerated_taints(nodes.taints.at(row), pod, HARD_EFFECTS)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        if nodes.taints.uniform:
            return SKIP
        counts = nodes.taints.map(lambda taints: len(untolerated_taints(taints, pod, SOFT_EFFECTS)), np.float64)
        state[_COUNTS] = counts
        return None if counts.any() else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the number of untolerated PreferNoSchedule taints."""
        counts: FloatArray = state[_COUNTS]
        return counts

    def normalize(self, state: CycleState, scores: FloatArray, feasible: BoolArray) -> FloatArray:
        """Map 0 taints to 100 and the highest number to 0."""
        return MAX_SCORE - floor_scores(scores * (MAX_SCORE / max(float(scores[feasible].max()), 1.0)))


class NodeName:
    name = "NodeName"
    filter_depends_on = Dependency.NODES
    helped_by = Change.NODE_ADDED

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.raw.spec.nodeName else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        refused = np.ones(len(nodes), np.bool_)
        refused[nodes.rows([pod.raw.spec.nodeName])] = False
        return FilterResult.refusing(refused, NODE_NAME_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node == pod.raw.spec.nodeName


class NodePorts:
    name = "NodePorts"
    filter_depends_on = Dependency.ROW
    helped_by = Change.NODE_ADDED | Change.POD_FREED

    def cost(self, pod: PodInfo, nodes: NodeTable) -> Sequence[Cost]:
        """Return the cost of parsing the ports and of checking the nodes that use them."""
        spec = pod.raw.spec
        ports = sum(len(container.ports) for container in spec.containers) + sum(
            len(init_container.ports) for init_container in spec.initContainers
        )
        seconds = ports * _PORT
        if 0 < seconds <= BUDGET:
            seconds += nodes.used_ports.count_nodes_using(pod.requests.ports) * _USER
        return [Cost(seconds, ports, "ports")]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        return None if pod.requests.ports else SKIP

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        refused = np.zeros(len(nodes), np.bool_)
        refused[nodes.rows(nodes.used_ports.taken(pod.requests.ports))] = True
        return FilterResult.refusing(refused, PORTS_REASON)

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.node not in nodes.used_ports.taken(pod.requests.ports)


class ImageLocality:
    name = "ImageLocality"
    score_depends_on = Dependency.NODES

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        """Skip the pod if all scores are 0, for example if nodes have only the small sandbox image."""
        spec = pod.raw.spec
        return None if nodes.largest_image * (len(spec.initContainers) + len(spec.containers)) > _LEAST else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        spec = pod.raw.spec
        images = [
            normalized_image_name(container.image)
            for containers in (spec.initContainers, spec.containers)
            for container in containers
        ]
        total: FloatArray = np.zeros(len(nodes))
        for image, containers in Counter(filter(nodes.has_image, images)).items():
            sizes = nodes.image(image)
            total += sizes * (containers * np.count_nonzero(sizes) / len(nodes))
        most = _MOST * max(len(images), 1)
        return (total.clip(_LEAST, most) - _LEAST) * (MAX_SCORE / (most - _LEAST))


def normalized_image_name(image: str) -> str:
    """Return the image name as nodes report it, with the tag "latest" if it has no tag."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


class NodePreferAvoidPods:
    name = "NodePreferAvoidPods"
    score_depends_on = Dependency.NODES

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        owners = pod.raw.metadata.ownerReferences
        controllers = [(owner.kind, owner.uid) for owner in owners if owner.controller and owner.kind in _KINDS]
        if not controllers or nodes.annotation(ANNOTATION).uniform:
            return SKIP
        state[_CONTROLLER] = controllers[0]
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        controller = state[_CONTROLLER]

        def score(annotation: str | None) -> float:
            return 0 if annotation is not None and controller in avoided_controllers(annotation) else MAX_SCORE

        return nodes.annotation(ANNOTATION).map(score, np.float64)


@lru_cache(maxsize=1024)
def avoided_controllers(annotation: str) -> frozenset[tuple[str, str]]:
    """Return the (kind, UID) of the controllers in an annotation. An invalid annotation has none."""
    try:
        controllers = [load["podSignature"]["podController"] for load in json.loads(annotation)["preferAvoidPods"]]
        return frozenset((str(controller["kind"]), str(controller["uid"])) for controller in controllers)
    except (ValueError, LookupError, TypeError):
        return frozenset()
