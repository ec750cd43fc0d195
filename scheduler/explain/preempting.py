"""What preemption could do for a pod: the nodes that could take it if no pod of lower priority were there; and for the one of
these where the fewest pods would have to go, which.

Computed by the filters themselves, on a cache without those pods. Disruption budgets are not asked: they make a victim less
liked, not impossible. Which node preemption would choose is its plugin's business.
"""

from collections.abc import Sequence

import numpy as np

from pinnace.api.explanation import listing
from scheduler.cache.cache import Cache
from scheduler.cache.pod_info import PodInfo
from scheduler.explain.survey import survey
from scheduler.framework.points import Point
from scheduler.framework.runtime import Framework

TRIED = 10
"""Nodes, at most, of which victims are looked for; and pods that are put back, on each."""
NEVER = "Never"


def preemption(framework: Framework, pod: PodInfo, cache: Cache, lower: Sequence[tuple[PodInfo, str]]) -> str:
    """A sentence; empty when there is nothing to say. `lower`: the pods of lower priority, and their nodes. The cache is as
    before in the end. Raises PluginError."""
    if not lower:
        return ""
    for info, _ in lower:
        cache.remove(info.uid)
    nodes = cache.nodes.seen_at(pod.priority, pod.uid)
    rows = np.flatnonzero(survey(framework, {}, pod, nodes).feasible).tolist()
    by_node: dict[str, list[PodInfo]] = {}
    for info, node in lower:
        by_node.setdefault(node, []).append(info)
    candidates = sorted(
        (name for row in rows if (name := nodes.names[row]) in by_node), key=lambda name: (len(by_node[name]), name)
    )
    victims = [(name, _victims(framework, pod, cache, name, by_node[name])) for name in candidates[:TRIED]]
    for info, node in lower:
        if cache.node_of(info.uid) is None:
            cache.observe(info, node)
    if not victims:
        return (
            f"it would not help: also without the {len(lower)} pods of lower priority than {pod.priority} no node could take it"
        )
    node, those = min(victims, key=lambda item: (len(item[1]), item[0]))
    room = f"{len(candidates)} nodes" if len(candidates) > 1 else "1 node"
    would = (
        f"without pods of lower priority than {pod.priority}, {room} could take it; on {node} {listing(those)} would have to go"
    )
    if pod.raw.spec.preemptionPolicy == NEVER:
        return f"{would}; but its preemptionPolicy is Never"
    if not framework.profile.get(Point.POST_FILTER):
        return f"{would}; but no plugin of the profile preempts"
    return would


def _victims(framework: Framework, pod: PodInfo, cache: Cache, node: str, lower: Sequence[PodInfo]) -> list[str]:
    """Those of the node's pods that cannot stay, when the more important ones are put back first."""
    victims = []
    row = cache.nodes.row(node)
    for info in sorted(lower, key=lambda info: (-info.priority, info.key)):
        cache.observe(info, node)
        if not survey(framework, {}, pod, cache.nodes.seen_at(pod.priority, pod.uid)).feasible[row]:
            cache.remove(info.uid)
            victims.append(info.key)
    return victims
