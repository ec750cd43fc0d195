"""What the scheduler may do, and must: from the objects, one node after another, as plainly as can be.

Nothing of the scheduler's own is used: not its table, not its columns, not its hints.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, Pod
from tests.unit.scheduler import reference
from tests.unit.scheduler.pods_reference import Affinity, Spread


@dataclass(frozen=True, slots=True)
class View:
    """A state of the cluster, as somebody sees it. `placed`: pods by uid, with their nodes, which need not exist."""

    nodes: Mapping[str, Node]
    placed: Mapping[str, tuple[Pod, str]]
    nominated: Sequence[tuple[Pod, str]] = ()
    """Pods for which room is being made, and where."""

    def without(self, uids: Iterable[str]) -> "View":
        gone = set(uids)
        return replace(self, placed={uid: each for uid, each in self.placed.items() if uid not in gone})

    def on(self, node: str) -> list[Pod]:
        return [pod for pod, name in self.placed.values() if name == node]


def objections(pod: Pod, view: View) -> dict[str, list[str]]:
    """Why each node refuses the pod; an empty list: it does not."""
    alone = view.without([pod.metadata.uid])
    result = _objections(pod, alone)
    for name in [name for name, said in result.items() if not said]:
        ahead = [
            each
            for each, node in view.nominated
            if node == name and each.spec.priority >= pod.spec.priority and each.metadata.uid != pod.metadata.uid
        ]
        if ahead:
            crowded = replace(alone, placed={**alone.placed, **{item.metadata.uid: (item, name) for item in ahead}})
            result[name] = [f"{reason} (kept for nominated pods)" for reason in _objections(pod, crowded)[name]]
    return result


def feasible(pod: Pod, view: View) -> list[str]:
    return sorted(name for name, said in objections(pod, view).items() if not said)


def after_preemption(pod: Pod, view: View) -> list[str]:
    """The nodes that could take the pod if all pods of a lower priority left that node."""
    if pod.spec.preemptionPolicy == "Never":
        return []
    result = []
    for name in view.nodes:
        lower = [item.metadata.uid for item in view.on(name) if item.spec.priority < pod.spec.priority]
        if lower and not objections(pod, view.without(lower))[name]:
            result.append(name)
    return sorted(result)


def overcommitted(view: View, node: str, pod: Pod) -> list[str]:
    """What the pod wants and has, but cannot have, as there are others on its node."""
    used, ports = Counter[str](), Counter[int]()
    for item in view.on(node):
        used.update(dict(fit.pod_requests(item).amounts))
        ports.update(_ports(item))
    has = fit.allocatable_amounts(view.nodes[node])
    wanted = [resource for resource, amount in fit.pod_requests(pod).amounts if amount]
    result = [f"{used[item]} of {has.get(item, 0)} {item}" for item in wanted if used[item] > has.get(item, 0)]
    return result + [f"port {port} {ports[port]} times" for port in _ports(pod) if ports[port] > 1]


def _ports(pod: Pod) -> set[int]:
    return {port.hostPort for container in pod.spec.containers for port in container.ports if port.hostPort}


def _objections(pod: Pod, view: View) -> dict[str, list[str]]:
    there = [(other, view.nodes[name]) for other, name in view.placed.values() if name in view.nodes]
    affinity = Affinity(pod, there, {})
    spread = Spread(pod, there, list(view.nodes.values()))
    result = {}
    for name, node in view.nodes.items():
        said = [*reference.reasons(pod, node, view.on(name)), affinity.reason(node), spread.reason(node)]
        result[name] = [reason for reason in said if reason]
    return result
