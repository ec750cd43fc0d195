"""A pod as the scheduler handles it: the object, and what is asked of it again and again."""

from collections.abc import Hashable
from functools import cached_property
from typing import Any

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import Tolerations
from pinnace.api.wire import read_only
from pinnace.fit import Requests, pod_requests
from scheduler.cache.pod_index import identity_of
from scheduler.cache.pod_terms import Term, pod_terms
from scheduler.cache.used_volumes import PodVolumes, pod_volumes


class PodInfo:
    """One version of a pod. `raw` is the informer's own object, for code that is known to change nothing: an index into one of
    its maps puts in what was missing. Others are shown `pod`."""

    def __init__(self, pod: Pod) -> None:
        metadata = pod.metadata
        self.raw = pod
        self.uid = metadata.uid
        self.namespace = metadata.namespace
        self.name = metadata.name
        self.priority = pod.spec.priority

    @cached_property
    def parsed(self) -> dict[Hashable, Any]:
        """What plugins have read out of this version of the pod, by a key of their own."""
        return {}

    @cached_property
    def requests(self) -> Requests:
        """What it asks of its node. Not before it is asked for: a pod may have thousands of containers."""
        return pod_requests(self.raw)

    @cached_property
    def pod(self) -> Pod:
        """To read."""
        return read_only(self.raw)

    @property
    def key(self) -> str:
        """As informers write it."""
        return f"{self.namespace}/{self.name}"

    @cached_property
    def volumes(self) -> PodVolumes | None:
        """The claims and disks that it uses, if any."""
        return pod_volumes(self.raw) if len(self.raw.spec.volumes) else None

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(self.raw.spec.tolerations)

    @cached_property
    def template(self) -> bytes:
        """Equal for pods that no plugin which looks at the spec alone can tell apart."""
        return self.raw.spec.SerializeToString()

    @cached_property
    def identity(self) -> Hashable:
        """Equal for pods that no selector can tell apart, and that state the same about other pods."""
        return identity_of(self.raw)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """What it states about other pods."""
        return pod_terms(self.raw)
