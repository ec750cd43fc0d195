"""The interface between the kubelet and what provides volumes, a CSI in small; and volumes that are pretended.

    a pod comes    its volumes are attached to the node, where they are not yet, and mounted for the pod; then containers start
    a pod is over  they are unmounted, and detached when no other pod of the node has them

What takes time are volumes that come from elsewhere: claims. The others (emptyDir, configMap and the like) are folders of the
node, and there at once. Nothing is ever waited for: `publish` begins, and says when it will be done.
Source: https://github.com/container-storage-interface/spec (ControllerPublishVolume, NodePublishVolume)
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kubelet.behaviour import PREFIX, seconds
from kubelet.runtime import Instant, Unsupported
from pinnace.api.core_v1_pb2 import Pod

ATTACH = f"{PREFIX}attach-seconds"
"""Annotation: how long it takes to attach a claim of the pod to a node."""
MOUNT = f"{PREFIX}mount-seconds"
"""Annotation: how long it takes to mount the claims of the pod."""


class Volumes(Protocol):
    def publish(self, pod: Pod, now: Instant) -> float:
        """Begins to attach and mount what the pod has on its node. Monotonic time at which it will all be there. Raises
        Unsupported, and then there is nothing to unpublish."""
        ...

    def adopt(self, pod: Pod, now: Instant, *, started: bool) -> float:
        """The same for a pod that an earlier kubelet process had accepted. If a container of it has started, they are there."""
        ...

    def unpublish(self, pod: Pod) -> None:
        """Of a pod that is over, or gone; nothing, when there is nothing."""
        ...


class Delays(NamedTuple):
    """Seconds, of pods that declare none."""

    attach: float = 0.0
    mount: float = 0.0


AT_ONCE = Delays()


@dataclass(slots=True)
class _Attachment:
    done: float
    """Monotonic."""
    pods: set[str] = field(default_factory=set)


class FakeVolumes:
    def __init__(self, delays: Delays = AT_ONCE) -> None:
        self._delays = delays
        self._attached: dict[tuple[str, str], _Attachment] = {}
        """By node and claim."""

    def publish(self, pod: Pod, now: Instant) -> float:
        return self._publish(pod, self._declared(pod), now)

    def adopt(self, pod: Pod, now: Instant, *, started: bool) -> float:
        try:
            delays = AT_ONCE if started else self._declared(pod)
        except Unsupported:  # annotations were edited after the pod was accepted
            delays = AT_ONCE
        return self._publish(pod, delays, now)

    def _publish(self, pod: Pod, delays: Delays, now: Instant) -> float:
        done = now.monotonic
        for claim in _claims(pod):
            key = pod.spec.nodeName, claim
            attachment = self._attached.get(key)
            if attachment is None:
                attachment = self._attached[key] = _Attachment(now.monotonic + delays.attach)
            attachment.pods.add(pod.metadata.uid)
            done = max(done, attachment.done + delays.mount, now.monotonic + delays.mount)
        return done

    def _declared(self, pod: Pod) -> Delays:
        annotations = pod.metadata.annotations
        return Delays(
            seconds(ATTACH, annotations[ATTACH]) if ATTACH in annotations else self._delays.attach,
            seconds(MOUNT, annotations[MOUNT]) if MOUNT in annotations else self._delays.mount,
        )

    def unpublish(self, pod: Pod) -> None:
        for claim in _claims(pod):
            key = pod.spec.nodeName, claim
            if (attachment := self._attached.get(key)) is not None:
                attachment.pods.discard(pod.metadata.uid)
                if not attachment.pods:
                    del self._attached[key]


def _claims(pod: Pod) -> Iterator[str]:
    """namespace/name of each."""
    for volume in pod.spec.volumes:
        source = volume.volumeSource
        if source.HasField("persistentVolumeClaim"):
            yield f"{pod.metadata.namespace}/{source.persistentVolumeClaim.claimName}"
        elif source.HasField("ephemeral"):
            yield f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"
