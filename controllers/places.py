"""Where pods are: the index that controllers share."""

from pinnace.api.core_v1_pb2 import Pod


def node_of(pod: Pod) -> str:
    """Empty: it is not bound."""
    return pod.spec.nodeName


def finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")
