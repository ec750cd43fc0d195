"""Metrics of one's own for a study."""

from collections import Counter
from statistics import fmean

from pinnace.study.recording import ClusterView

LARGE = 8000
"""CPU request of a large pod, in millicores."""


def idle_nodes(cluster: ClusterView) -> float:
    """The nodes without pods, in percent."""
    return float(100 * (cluster.free("pods") == cluster.allocatable("pods")).mean())


def room_for_large_pods(cluster: ClusterView) -> float:
    """The number of additional large pods that fit, per node."""
    return float((cluster.free("cpu") // LARGE).mean())


def fullest_node_share(cluster: ClusterView) -> float:
    """The percentage of a service's replicas on its fullest node, the mean over services of at least three replicas."""
    services: dict[str, Counter[str]] = {}
    for task, node in cluster.running:
        services.setdefault(task.group, Counter())[node] += 1
    shares = [max(nodes.values()) / nodes.total() for group, nodes in services.items() if group and nodes.total() >= 3]
    return 100 * fmean(shares) if shares else 0.0
