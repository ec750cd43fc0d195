"""In-place resize: the resources that a pod keeps until its node has room for those that its spec asks for.

    the spec changes --the node has room--> allocated --no container must restart--> done
            |                                   '--resizePolicy RestartContainer--> in progress --restarted--> done
            '--the node has no room--> pending: Deferred, or Infeasible for more than the node has

A pending resize is tried again when pods of the node free room and when the node or the spec changes.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from kubelet.runtime import ContainerView
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from pinnace.api.scalars import to_seconds, to_time
from pinnace.fit.requests import RESIZE_IN_PROGRESS, RESIZE_PENDING, is_resizing, largest, resizable

Resources: TypeAlias = Mapping[str, ResourceRequirements]
"""By container."""


class Restarting(NamedTuple):
    """A container that is restarted for its new resources."""

    attempt: int
    """The attempt that has the old ones."""
    resources: ResourceRequirements
    """The old ones."""


class Resize(NamedTuple):
    """A resize that is not done. Times are Unix seconds."""

    allocated: Resources
    reason: str = ""
    """Why it is pending: DEFERRED or INFEASIBLE; empty: it is not."""
    message: str = ""
    since: float = 0.0
    """Of being pending."""
    restarting: Mapping[str, Restarting] = MappingProxyType({})
    begun: float = 0.0
    """Of being in progress."""
    unseen: bool = False
    """It was left by an earlier kubelet process, and the node has not been asked again."""

    def granted(self, spec: PodSpec, containers: Sequence[ContainerView], now: float) -> "Resize | None":
        """What is left to do when the node has room for the resources of `spec`. None: nothing."""
        running = {view.name: view.attempt for view in containers if view.exit is None}
        restarting = {name: each for name, each in self.restarting.items() if running.get(name) == each.attempt}
        for each in resizable(spec):
            old = self.allocated.get(each.name, each.resources)
            if each.name in running and each.name not in restarting and _must_restart(each, old):
                restarting[each.name] = Restarting(running[each.name], old)
        if not restarting:
            return None
        return Resize(resources_of(spec), restarting=restarting, begun=self.begun if self.restarting else now)

    def observed(self, containers: Sequence[ContainerView]) -> "Resize | None":
        """What is left to do. None: nothing."""
        if not self.restarting:
            return self
        attempts = {view.name: view.attempt for view in containers}
        restarting = {name: each for name, each in self.restarting.items() if attempts.get(name) == each.attempt}
        if len(restarting) == len(self.restarting):
            return self
        return self._replace(restarting=restarting) if restarting or self.reason else None

    def counted(self) -> Resources:
        """The larger of the allocated and the actual amounts."""
        old = {name: largest(self.allocated[name], each.resources) for name, each in self.restarting.items()}
        return {**self.allocated, **old}

    def show(self, status: PodStatus, generation: int) -> None:
        """Adds the conditions, and the actual resources of the containers that are restarted."""
        for type_, holds, since in (
            (RESIZE_PENDING, bool(self.reason), self.since),
            (RESIZE_IN_PROGRESS, bool(self.restarting), self.begun),
        ):
            if holds:
                stamp = to_time(int(since))
                status.conditions.add(type=type_, status="True", lastTransitionTime=stamp, observedGeneration=generation)
                if type_ == RESIZE_PENDING:
                    status.conditions[-1].reason, status.conditions[-1].message = self.reason, self.message
        for each in (*status.initContainerStatuses, *status.containerStatuses):
            if (restarting := self.restarting.get(each.name)) is not None:
                each.resources.CopyFrom(restarting.resources)


def resources_of(spec: PodSpec) -> Resources:
    return {each.name: each.resources for each in resizable(spec)}


def with_resources(pod: Pod, resources: Resources) -> Pod:
    """A copy of the pod whose containers have these resources."""
    found = Pod()
    found.CopyFrom(pod)
    for each in resizable(found.spec):
        if each.name in resources:
            each.resources.CopyFrom(resources[each.name])
    return found


def adopted(pod: Pod) -> Resize | None:
    """What an earlier kubelet process has left to do, by the status that it reported. None: nothing."""
    if not is_resizing(pod):
        return None
    statuses = {each.name: each for each in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)}
    allocated: dict[str, ResourceRequirements] = {}
    restarting: dict[str, Restarting] = {}
    for each in resizable(pod.spec):
        status = statuses.get(each.name)
        if status is None or not status.HasField("resources") or status.allocatedResources == each.resources.requests:
            allocated[each.name] = each.resources
        else:
            allocated[each.name] = ResourceRequirements(requests=status.allocatedResources, limits=status.resources.limits)
        if status is not None and status.HasField("resources") and status.resources.requests != status.allocatedResources:
            restarting[each.name] = Restarting(status.restartCount, status.resources)
    pending = conditions.find(pod.status.conditions, RESIZE_PENDING)
    if pending is None and not restarting and allocated == resources_of(pod.spec):
        return None  # something else of the spec has changed
    progress = conditions.find(pod.status.conditions, RESIZE_IN_PROGRESS)
    return Resize(
        allocated,
        pending.reason if pending is not None else "",
        pending.message if pending is not None else "",
        to_seconds(pending.lastTransitionTime) if pending is not None else 0.0,
        restarting,
        to_seconds(progress.lastTransitionTime) if progress is not None else 0.0,
        unseen=True,
    )


def _must_restart(container: Container, old: ResourceRequirements) -> bool:
    """Whether a resource whose resizePolicy is RestartContainer has changed."""
    new = container.resources
    return any(
        policy.restartPolicy == "RestartContainer"
        and (
            old.requests.get(policy.resourceName) != new.requests.get(policy.resourceName)
            or old.limits.get(policy.resourceName) != new.limits.get(policy.resourceName)
        )
        for policy in container.resizePolicy
    )
