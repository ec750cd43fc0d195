"""The objects that benchmarks use: those of the measurements they are compared with.

Nodes have 4 CPU, 32 GiB and room for 110 pods; a pod has one container that asks for 100m CPU and 500 MiB. So a node takes 40.
"""

from pinnace.api.core_v1_pb2 import Pod

NAMESPACE = "default"
PODS_PER_NODE = 40


def pod(name: str) -> Pod:
    made = Pod()
    made.metadata.name, made.metadata.namespace = name, NAMESPACE
    container = made.spec.containers.add(name="app", image="example.com/app:1")
    container.resources.requests["cpu"].string = "100m"
    container.resources.requests["memory"].string = "500Mi"
    return made
