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
    found = _objections(pod, alone)
    for name in [name for name, said in found.items() if not said]:
        ahead = [
            each
            for each, node in view.nominated
            if node == name and each.spec.priority >= pod.spec.priority and each.metadata.uid != pod.metadata.uid
        ]
        if ahead:
            crowded = replace(alone, placed={**alone.placed, **{each.metadata.uid: (each, name) for each in ahead}})
            found[name] = [f"{reason} (kept for nominated pods)" for reason in _objections(pod, crowded)[name]]
    return found


def feasible(pod: Pod, view: View) -> list[str]:
    return sorted(name for name, said in objections(pod, view).items() if not said)


def after_preemption(pod: Pod, view: View) -> list[str]:
    """The nodes that could take the pod if all pods of a lower priority left that node."""
    if pod.spec.preemptionPolicy == "Never":
        return []
    found = []
    for name in view.nodes:
        lower = [each.metadata.uid for each in view.on(name) if each.spec.priority < pod.spec.priority]
        if lower and not objections(pod, view.without(lower))[name]:
            found.append(name)
    return sorted(found)


def overcommitted(view: View, node: str, pod: Pod) -> list[str]:
    """What the pod wants and has, but cannot have, as there are others on its node."""
    used, ports = Counter[str](), Counter[int]()
    for each in view.on(node):
        used.update(dict(fit.pod_requests(each).amounts))
        ports.update(_ports(each))
    has = fit.allocatable(view.nodes[node])
    wanted = [resource for resource, amount in fit.pod_requests(pod).amounts if amount]
    found = [f"{used[each]} of {has.get(each, 0)} {each}" for each in wanted if used[each] > has.get(each, 0)]
    return found + [f"port {port} {ports[port]} times" for port in _ports(pod) if ports[port] > 1]


def _ports(pod: Pod) -> set[int]:
    return {port.hostPort for each in pod.spec.containers for port in each.ports if port.hostPort}


def _objections(pod: Pod, view: View) -> dict[str, list[str]]:
    there = [(other, view.nodes[name]) for other, name in view.placed.values() if name in view.nodes]
    affinity = Affinity(pod, there, {})
    spread = Spread(pod, there, list(view.nodes.values()))
    found = {}
    for name, node in view.nodes.items():
        said = [*reference.reasons(pod, node, view.on(name)), affinity.reason(node), spread.reason(node)]
        found[name] = [reason for reason in said if reason]
    return found
