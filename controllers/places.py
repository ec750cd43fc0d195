"""Where objects are: what controllers index them by."""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import Object


def node_of(pod: Pod) -> str:
    """Empty: it is not bound."""
    return pod.spec.nodeName


def namespace_of(obj: Object) -> str:
    return obj.metadata.namespace
