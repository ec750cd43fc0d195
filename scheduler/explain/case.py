"""What is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import NodeTable
from scheduler.plugins.helper import Objects


@dataclass(frozen=True, slots=True)
class Case:
    """`pod` is in question, and takes no room. `placed`: the pods that do, by node, and those that are nominated
    there and ahead of it. `nodes`: as the pod sees them, what is kept for nominated pods is not free. `objects`: what the
    plugins read besides."""

    pod: PodInfo
    nodes: NodeTable
    placed: Mapping[str, Sequence[PodInfo]]
    objects: Objects
