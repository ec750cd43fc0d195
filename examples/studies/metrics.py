"""A metric of one's own for a study."""

from pinnace.study.recording import ClusterView


def idle_nodes(cluster: ClusterView) -> float:
    """The nodes without pods, in percent."""
    return float(100 * (cluster.free("pods") == cluster.allocatable("pods")).mean())
