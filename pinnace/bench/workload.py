"""The objects that benchmarks use: those of the measurements they are compared with.

Nodes have 4 CPU, 32 GiB and room for 110 pods; a pod has one container that asks for 100m CPU and 500 MiB. So a node takes 40.
"""

from collections.abc import Callable

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.documents import parse
from pinnace.fit import pod_requests

NAMESPACE = "default"
NODE_CPU = 4000
"""Millicores."""
PODS_PER_NODE = 40
Shape = Callable[[str], Pod]
"""What all pods of a kind are like, but for their names."""


def pod(name: str) -> Pod:
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, NAMESPACE
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    container.resources.requests["cpu"].string = "100m"
    container.resources.requests["memory"].string = "500Mi"
    return made


def like(more: str, *, cpu: str = "100m") -> Shape:
    """Pods like `pod`, that ask for so much CPU, and have what this YAML says besides."""
    (document,) = parse(more)
    template = pod("")
    template.MergeFrom(from_dict(Pod, document.data))
    template.spec.containers[0].resources.requests["cpu"].string = cpu

    def shape(name: str) -> Pod:
        made = Pod()
        made.CopyFrom(template)
        made.metadata.name = name
        return made

    return shape


def cpu_of(shape: Shape) -> int:
    """Millicores that a pod of this shape asks for."""
    return dict(pod_requests(shape("any")).amounts)["cpu"]
