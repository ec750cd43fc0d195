"""What happens in the cluster of `churn`: one method for each kind of event. Each tells what it did; empty: nothing."""

import random
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.pods import ended
from pinnace.api.resources import NODES, PODS, Resource
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.fake_api import FakeApi

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NAMESPACE = "ns"
GRACE = 1.0
MOST_NODES = 8
WEIGHTS: Mapping[str, int] = {
    "add_pod": 30,
    "delete_pod": 8,
    "finish_pod": 6,
    "relabel_pod": 4,
    "ungate_pod": 2,
    "bind_by_hand": 2,
    "add_node": 4,
    "remove_node": 2,
    "change_node": 10,
    "depose": 1,
}


class Events:
    """Plays clients, controllers and kubelets. `unsettle(node)`: what the node can hold, or holds, has changed for the worse.
    `later(seconds, do)` is a timer."""

    def __init__(
        self,
        rng: random.Random,
        api: FakeApi,
        unsettle: Callable[[str], None],
        later: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        self._rng = rng
        self._api = api
        self._unsettle = unsettle
        self._timer = later
        self._numbers = count()

    # --- pods

    def add_pod(self) -> str:
        name = f"p{next(self._numbers)}"
        builder, told = self._some_pod(name)
        self._api.put(PODS, builder.build())
        return f"{name} {told}"

    def delete_pod(self) -> str:
        pod = self._any(PODS)
        if pod is None:
            return ""
        if pod.spec.nodeName:
            self._change(PODS, pod, _mark_deleted)
        else:
            self._api.remove(PODS, _key(pod))
        return f"{pod.metadata.name}, on {pod.spec.nodeName or 'no node'}"

    def finish_pod(self) -> str:
        pod = self._any(PODS, lambda pod: bool(pod.spec.nodeName))
        if pod is None:
            return ""
        self._change(PODS, pod, lambda pod: setattr(pod.status, "phase", "Succeeded"))
        return str(pod.metadata.name)

    def relabel_pod(self) -> str:
        pod = self._any(PODS)
        if pod is None:
            return ""
        return f"{pod.metadata.name}, on {pod.spec.nodeName or 'no node'}: app={self._relabel(pod)}"

    def _relabel(self, pod: Pod) -> str:
        app = self._rng.choice("xyz")
        self._change(PODS, pod, lambda pod: pod.metadata.labels.update(app=app))
        return app

    def ungate_pod(self) -> str:
        pod = self._any(PODS, lambda pod: bool(pod.spec.schedulingGates))
        if pod is None:
            return ""
        self._change(PODS, pod, lambda pod: pod.spec.ClearField("schedulingGates"))
        return str(pod.metadata.name)

    def bind_by_hand(self) -> str:
        """As another scheduler does, which asks nobody."""
        pod, node = self._any(PODS, lambda pod: not pod.spec.nodeName), self._any(NODES)
        if pod is None or node is None:
            return ""
        self._unsettle(node.metadata.name)
        self._change(PODS, pod, lambda pod: setattr(pod.spec, "nodeName", node.metadata.name))
        return f"{pod.metadata.name} to {node.metadata.name}"

    # --- nodes

    def add_node(self) -> str:
        free = [name for number in range(MOST_NODES) if (name := f"n{number}") not in self._api.all(NODES)]
        if not free:
            return ""
        name = self._rng.choice(free)
        self._unsettle(name)
        self._api.put(NODES, self._some_node(name).build())
        return self._describe(name)

    def remove_node(self) -> str:
        node = self._any(NODES)
        if node is None or len(self._api.all(NODES)) < 3:
            return ""
        self._api.remove(NODES, node.metadata.name)
        return str(node.metadata.name)

    def change_node(self) -> str:
        node = self._any(NODES)
        if node is None:
            return ""
        name = node.metadata.name
        self._unsettle(name)
        other = self._some_node(name).build()
        part = self._rng.choice(["labels", "taints", "unschedulable", "status"])

        def change(node: Node) -> None:
            match part:
                case "labels":
                    node.metadata.labels.clear()
                    node.metadata.labels.update(other.metadata.labels)
                case "taints":
                    del node.spec.taints[:]
                    node.spec.taints.extend(other.spec.taints)
                case "unschedulable":
                    node.spec.unschedulable = not node.spec.unschedulable
                case _:
                    node.status.CopyFrom(other.status)

        self._change(NODES, node, change)
        return f"{part} of {self._describe(name)}"

    def sweep(self) -> None:
        """Pods of nodes that are gone go too."""
        for key, pod in list(self._api.all(PODS).items()):
            if pod.spec.nodeName and pod.spec.nodeName not in self._api.all(NODES):
                self._api.remove(PODS, key)

    # --- kubelets

    def pod_written(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            return
        if not new.spec.nodeName:
            if new.status.nominatedNodeName and old is not None and not old.status.nominatedNodeName:
                self._later(new, 0.1, self._relabel)  # while it is nominated, which is not for long
            return
        if old is None or not old.spec.nodeName:
            self._later(new, 0.1, lambda pod: self._change(PODS, pod, _start))
        if _ends(new) and not (old is not None and _ends(old)):
            self._later(new, GRACE, lambda pod: self._api.remove(PODS, _key(pod)))

    def _later(self, pod: Pod, seconds: float, act: Callable[[Pod], Any]) -> None:
        def do() -> None:
            current = self._api.all(PODS).get(_key(pod))
            if current is not None and current.metadata.uid == pod.metadata.uid:
                act(current)

        self._timer(seconds, do)

    # --- chance

    def _some_pod(self, name: str) -> tuple[PodBuilder, str]:
        rng = self._rng
        pod = make_pod(name, NAMESPACE).req(cpu=rng.choice(["500m", 1, 1, 2, 3]), memory=rng.choice(["500Mi", "1Gi", "3Gi"]))
        pod.label("app", rng.choice("xyz")).priority(priority := rng.choice([0, 0, 0, 5, 10]))
        traits = [f"priority {priority}"]
        traits += [self._trait(pod) for _ in range(rng.choice([0, 1, 1, 2]))]
        if rng.random() < 0.1:
            pod.preemption_policy("Never")
            traits.append("never preempts")
        return pod, ", ".join(traits)

    def _trait(self, pod: PodBuilder) -> str:
        rng = self._rng
        key, app, zone = rng.choice([HOSTNAME, ZONE]), rng.choice("xyz"), rng.choice("abc")
        match kind := rng.choice(["port", "selector", "affinity", "tolerant", "away", "near", "prefers", "spread", "gate"]):
            case "port":
                pod.host_port(rng.choice([80, 443]))
            case "selector":
                pod.node_selector(ZONE, zone)
            case "affinity":
                pod.node_affinity((ZONE, rng.choice(["In", "NotIn"]), [zone, "b"]))
            case "tolerant":
                pod.tolerate("hard", "", "", "Exists")
            case "away":
                pod.anti_affinity(f"app={app}", key)
            case "near":
                pod.affinity(f"app={app}", key)
            case "prefers":
                pod.affinity(f"app={app}", key, weight=50).prefer_nodes(30, (ZONE, "In", [zone]))
            case "spread":
                pod.spread(f"app={app}", key, skew=rng.choice([1, 2]))
            case _:
                pod.gate("wait")
        return f"{kind} {key.rpartition('/')[2]} app={app} zone={zone}"

    def _some_node(self, name: str) -> NodeBuilder:
        rng = self._rng
        node = make_node(name).capacity(
            cpu=rng.choice([2, 3, 4, 6]), memory=rng.choice(["2Gi", "4Gi", "8Gi"]), pods=rng.choice([3, 10])
        )
        if rng.random() < 0.9:
            node.label(ZONE, rng.choice("abc"))
        if rng.random() < 0.2:
            node.taint(rng.choice(["hard", "soft"]), "", rng.choice(["NoSchedule", "PreferNoSchedule", "NoExecute"]))
        return node

    def _any(self, resource: Resource[Any], wanted: Callable[[Any], bool] = lambda obj: True) -> Any:
        objs = [obj for obj in self._api.all(resource).values() if wanted(obj) and not (resource is PODS and ended(obj))]
        return self._rng.choice(objs) if objs else None

    def _change(self, resource: Resource[Any], obj: Any, change: Callable[[Any], Any]) -> None:
        changed = resource.message()
        changed.CopyFrom(obj)
        change(changed)
        self._api.put(resource, changed)

    def _describe(self, name: str) -> str:
        node = self._api.all(NODES)[name]
        has = fit.allocatable_amounts(node)
        taints = [f"{taint.key}:{taint.effect}" for taint in node.spec.taints]
        zone = node.metadata.labels.get(ZONE, "-")
        room = f"cpu {has['cpu']}, {has['memory'] >> 20} MiB, {has['pods']} pods"
        return f"{name}: zone {zone}, {room}, {taints}{', cordoned' if node.spec.unschedulable else ''}"


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _mark_deleted(pod: Pod) -> None:
    pod.metadata.deletionTimestamp.seconds = 1


def _start(pod: Pod) -> None:
    if pod.status.phase == "Pending":
        pod.status.phase = "Running"
        pod.status.startTime.seconds = 1


def _ends(pod: Pod) -> bool:
    """A kubelet has it, and is told to end it: also one that was deleted before it was bound."""
    return bool(pod.spec.nodeName) and pod.metadata.HasField("deletionTimestamp")
