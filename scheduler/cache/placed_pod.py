"""A pod that takes room on a node, as far as the cache remembers it."""

import math
from dataclasses import dataclass

from pinnace.api.core_v1_pb2 import Pod
from pinnace.fit import Requests
from scheduler.cache.pod_index import PodGroup
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.used_volumes import PodVolumes

NOT_STARTED = math.inf


def start_time(pod: Pod) -> float:
    """Unix time, as the pod's kubelet says; NOT_STARTED as long as it does not."""
    status = pod.status
    return status.startTime.seconds + status.startTime.nanos / 1e9 if status.HasField("startTime") else NOT_STARTED


@dataclass(slots=True, eq=False)
class PlacedPod:
    uid: str
    key: str
    """As informers write it: "namespace/name"."""
    priority: int
    requests: Requests
    node: str
    group: PodGroup
    volumes: PodVolumes | None
    started: float
    """As of `start_time`."""
    assumed: PodInfo | None = None
    """The pod, while it is only assumed."""
