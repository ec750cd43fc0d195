"""What pods of one spec have in common, wherever they run: computed once, because pods come in thousands of a kind."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kubelet.lifecycle import PodPlan, plan_of
from pinnace.api.core_v1_pb2 import Pod, PodSpec, Toleration
from pinnace.fit import Requests, insists, pod_requests


class Template(NamedTuple):
    plan: PodPlan
    host_network: bool
    requests: Requests
    choosy: PodSpec | None
    """The spec, if it insists on labels of the node."""
    tolerations: Sequence[Toleration]


def template_of(pod: Pod) -> Template:
    spec = PodSpec()
    spec.CopyFrom(pod.spec)
    spec.nodeName = ""
    return _of_bytes(spec.SerializeToString())


@lru_cache(maxsize=16384)
def _of_bytes(encoded: bytes) -> Template:
    pod = Pod()
    pod.spec.ParseFromString(encoded)
    return Template(
        plan_of(pod.spec),
        pod.spec.hostNetwork,
        pod_requests(pod),
        pod.spec if insists(pod.spec) else None,
        tuple(pod.spec.tolerations),
    )
