"""Runs each pod as processes or simulated, according to its images.

    all containers have a command, or an image of the table   --> process runtime
    one has neither                                           --> simulated, all of its containers; an event says so

A pod stays where it was prepared: a prepared pod of the process runtime has a folder. A simulated pod that an earlier kubelet
process has left is decided again, so that it runs as processes after its image has been added to the table.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods_pb2 import (
    AttachRequest,
    ExecResponse,
    ExecStart,
    LogsRequest,
    PortForwardRequest,
    PortForwardResponse,
    PortForwardStart,
)
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.runtime.interface import ContainerCall, ContainerView, Moment, Runtime, Streams, VolumeProgress
from pinnace.kubelet.runtime.process.images import ImageTable
from pinnace.kubelet.runtime.process.root import RuntimeRoot
from pinnace.kubelet.runtime.simulated_runtime import PodVolumeManager
from pinnace.kubelet.stats import ResourceUsage, RunningPod, UsageMeter


class RuntimeChooser:
    """Decides which runtime a pod has."""

    def __init__(self, root: RuntimeRoot, images: ImageTable) -> None:
        self._root = root
        self._images = images

    def find_unknown_image(self, pod: Pod) -> str:
        """The image because of which the pod is simulated; empty if it runs as processes."""
        return "" if self._root.has_pod(pod.metadata.uid) else self._images.find_unknown_image(pod)

    def is_process(self, uid: str) -> bool:
        """Whether the process runtime has prepared the pod."""
        return self._root.has_pod(uid)


class RuntimeByImage:
    """Implements pinnace.kubelet.runtime.interface.Runtime with two runtimes."""

    def __init__(self, process: Runtime, simulated: Runtime, chooser: RuntimeChooser) -> None:
        self._process = process
        self._simulated = simulated
        self._chooser = chooser
        self._uids: set[str] = set()
        """Simulated pods."""

    def _choose_for(self, uid: str) -> Runtime:
        return self._simulated if uid in self._uids else self._process

    def set_listener(self, notify: Callable[[str], None]) -> None:
        self._process.set_listener(notify)
        self._simulated.set_listener(notify)

    def prepare_pod(self, pod: Pod, addresses: PodAddresses) -> str | None:
        image = self._chooser.find_unknown_image(pod)
        if not image:
            self._uids.discard(pod.metadata.uid)
            return self._process.prepare_pod(pod, addresses)
        remark = self._simulated.prepare_pod(pod, addresses)
        self._uids.add(pod.metadata.uid)
        why = (
            f'image "{image}" is not in the table of images, and its container has no command: the containers of this pod are '
            "simulated; set a command, or name the image in the file of --images"
        )
        return f"{why}; {remark}" if remark else why

    def adopt_pod(self, pod: Pod, now: Moment) -> None:
        if self._chooser.find_unknown_image(pod):
            self._uids.add(pod.metadata.uid)
        self._choose_for(pod.metadata.uid).adopt_pod(pod, now)

    def resize_pod(self, pod: Pod) -> None:
        self._choose_for(pod.metadata.uid).resize_pod(pod)

    def start(self, uid: str, container: str, attempt: int, now: Moment) -> None:
        self._choose_for(uid).start(uid, container, attempt, now)

    def stop(self, uid: str, container: str, grace: float, now: Moment) -> None:
        self._choose_for(uid).stop(uid, container, grace, now)

    def crash_container(self, uid: str, container: str, attempt: int, code: int, now: Moment) -> None:
        self._choose_for(uid).crash_container(uid, container, attempt, code, now)

    def call(self, uid: str, container: str, call: ContainerCall, now: Moment) -> None:
        self._choose_for(uid).call(uid, container, call, now)

    def observe_containers(self, uid: str, now: Moment) -> Sequence[ContainerView]:
        return self._choose_for(uid).observe_containers(uid, now)

    def remove(self, uid: str) -> None:
        self._choose_for(uid).remove(uid)
        self._uids.discard(uid)

    def kill_leftovers(self, uid: str) -> None:
        self._choose_for(uid).kill_leftovers(uid)

    def retain_pods(self, nodes: Collection[str], uids: Collection[str]) -> None:
        self._process.retain_pods(nodes, uids)
        self._simulated.retain_pods(nodes, uids)

    def close(self) -> None:
        self._process.close()
        self._simulated.close()


class VolumesByImage:
    """Implements pinnace.kubelet.runtime.simulated_runtime.Volumes. Volumes of simulated pods are simulated, too."""

    def __init__(self, process: PodVolumeManager, simulated: PodVolumeManager, chooser: RuntimeChooser) -> None:
        self._process = process
        self._simulated = simulated
        self._chooser = chooser

    def _choose_for(self, pod: Pod) -> PodVolumeManager:
        return self._simulated if self._chooser.find_unknown_image(pod) else self._process

    def set_listener(self, report: Callable[[str, VolumeProgress], None], event: Callable[[Pod, str, str, str], None]) -> None:
        self._process.set_listener(report, event)
        self._simulated.set_listener(report, event)

    async def run(self) -> None:
        """The simulated volumes have nothing to do."""
        await self._process.run()

    def publish_volumes(self, pod: Pod, now: Moment) -> float:
        return self._choose_for(pod).publish_volumes(pod, now)

    def adopt_volumes(self, pod: Pod, now: Moment, *, started: bool) -> float:
        return self._choose_for(pod).adopt_volumes(pod, now, started=started)

    def update(self, pod: Pod) -> None:
        for volumes in (self._process, self._simulated):
            volumes.update(pod)

    def unpublish_volumes(self, pod: Pod) -> None:
        """Both forget the pod: neither minds one that it does not know."""
        for volumes in (self._process, self._simulated):
            volumes.unpublish_volumes(pod)


class StreamsByImage:
    """Implements pinnace.kubelet.runtime.interface.Streams."""

    def __init__(self, process: Streams, simulated: Streams, chooser: RuntimeChooser) -> None:
        self._process = process
        self._simulated = simulated
        self._chooser = chooser

    def _choose_for(self, uid: str) -> Streams:
        return self._process if self._chooser.is_process(uid) else self._simulated

    async def logs(self, request: LogsRequest) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._choose_for(request.uid).logs(request)) as chunks:
            async for data in chunks:
                yield data

    async def exec(self, start: ExecStart, stdin: AsyncIterator[bytes]) -> AsyncGenerator[ExecResponse, None]:
        async with aclosing(self._choose_for(start.uid).exec(start, stdin)) as responses:
            async for response in responses:
                yield response

    async def attach(self, request: AttachRequest) -> AsyncGenerator[ExecResponse, None]:
        async with aclosing(self._choose_for(request.uid).attach(request)) as responses:
            async for response in responses:
                yield response

    async def port_forward(
        self, start: PortForwardStart, sent: AsyncIterator[PortForwardRequest]
    ) -> AsyncGenerator[PortForwardResponse, None]:
        async with aclosing(self._choose_for(start.uid).port_forward(start, sent)) as responses:
            async for response in responses:
                yield response


class MeterByImage:
    """Implements pinnace.kubelet.stats.Meter."""

    def __init__(self, process: UsageMeter, simulated: UsageMeter, chooser: RuntimeChooser) -> None:
        self._process = process
        self._simulated = simulated
        self._chooser = chooser

    async def measure(self, running: Sequence[RunningPod]) -> Sequence[Mapping[str, ResourceUsage]]:
        real = [self._chooser.is_process(item.pod.metadata.uid) for item in running]
        measured = iter(await self._process.measure([each for each, is_real in zip(running, real, strict=True) if is_real]))
        declared = iter(
            await self._simulated.measure([each for each, is_real in zip(running, real, strict=True) if not is_real])
        )
        return [next(measured if is_real else declared) for is_real in real]
