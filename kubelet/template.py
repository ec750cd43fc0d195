"""What pods of one spec have in common, wherever they run: computed once, because pods come in thousands of a kind."""

from functools import lru_cache
from typing import NamedTuple

from pinnace.api.core_v1_pb2 import Pod, PodSpec
from pinnace.fit import Requests, pod_requests


class Template(NamedTuple):
    containers: tuple[str, ...]
    images: tuple[str, ...]
    restart_policy: str
    host_network: bool
    requests: Requests


def template_of(pod: Pod) -> Template:
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    spec.nodeName = ""
    return _of_bytes(spec.SerializeToString())


@lru_cache(maxsize=16384)
def _of_bytes(encoded: bytes) -> Template:
    pod = Pod()
    pod.spec.ParseFromString(encoded)
    containers = pod.spec.containers
    return Template(
        tuple(container.name for container in containers),
        tuple(container.image for container in containers),
        pod.spec.restartPolicy,
        pod.spec.hostNetwork,
        pod_requests(pod),
    )
