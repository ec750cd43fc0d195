"""The status of a pod: container statuses, conditions, and in-place resize.

    the spec changes --the node has room--> allocated --no container must restart--> done
            |                                   '--resizePolicy RestartContainer--> in progress --restarted--> done
            '--the node has no room--> pending: Deferred, or Infeasible if it exceeds the node

A pending resize is tried again when pods of the node release resources, and when the node or the spec changes.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from pinnace.api.core_v1_pb2 import ContainerState as ContainerStateMessage
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.fit.requests import (
    RESIZE_CONDITIONS,
    RESIZE_IN_PROGRESS,
    RESIZE_PENDING,
    is_resizing,
    max_requirements,
    resizable_containers,
)
from pinnace.kubelet.addresses import PodAddresses
from pinnace.kubelet.lifecycle import (
    ContainerPlan,
    ContainerRecord,
    PodPhase,
    PodPlan,
    PodState,
    format_duration,
    restart_backoff,
    should_restart,
)
from pinnace.kubelet.lifecycle.plan import PodTemplateFacts
from pinnace.kubelet.runtime.interface import ContainerExit, ContainerState, ContainerView, Moment

Resources: TypeAlias = Mapping[str, ResourceRequirements]
"""By container."""
_NOT_CREATED = ("ContainerCreating", "PodInitializing")
_CREATING = ContainerStateMessage(waiting=ContainerStateWaiting(reason="ContainerCreating"))
_INITIALIZING = ContainerStateMessage(waiting=ContainerStateWaiting(reason="PodInitializing"))
_LOST = ContainerStateMessage(
    terminated=ContainerStateTerminated(
        exitCode=137, reason="ContainerStatusUnknown", message="the pod ended before the container was started"
    )
)
OWN_CONDITIONS = frozenset({"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", *RESIZE_CONDITIONS})


class RestartingContainer(NamedTuple):
    """A container that is restarted for new resources."""

    attempt: int
    """The attempt with the previous resources."""
    resources: ResourceRequirements
    """The previous resources."""


class PendingResize(NamedTuple):
    """An unfinished resize. Times are Unix seconds."""

    allocated: Resources
    reason: str = ""
    """The reason DEFERRED or INFEASIBLE; empty: not pending."""
    message: str = ""
    since: float = 0.0
    """Start of the state pending."""
    restarting: Mapping[str, RestartingContainer] = MappingProxyType({})
    begun: float = 0.0
    """Start of the state in progress."""
    unseen: bool = False
    """An earlier kubelet process left it, and the node has not been checked again."""

    def after_grant(self, spec: PodSpec, containers: Sequence[ContainerView], now: float) -> "PendingResize | None":
        """The remaining work after the node has allocated the resources of `spec`. None: nothing."""
        running = {view.name: view.attempt for view in containers if view.exit is None}
        restarting = {name: each for name, each in self.restarting.items() if running.get(name) == each.attempt}
        for container in resizable_containers(spec):
            old = self.allocated.get(container.name, container.resources)
            if container.name in running and container.name not in restarting and _must_restart(container, old):
                restarting[container.name] = RestartingContainer(running[container.name], old)
        if not restarting:
            return None
        return PendingResize(resources_of(spec), restarting=restarting, begun=self.begun if self.restarting else now)

    def after_observation(self, containers: Sequence[ContainerView]) -> "PendingResize | None":
        """The remaining work. None: nothing."""
        if not self.restarting:
            return self
        attempts = {view.name: view.attempt for view in containers}
        restarting = {name: each for name, each in self.restarting.items() if attempts.get(name) == each.attempt}
        if len(restarting) == len(self.restarting):
            return self
        return self._replace(restarting=restarting) if restarting or self.reason else None

    def counted_amounts(self) -> Resources:
        """The larger of the allocated and the actual amounts."""
        old = {name: max_requirements(self.allocated[name], each.resources) for name, each in self.restarting.items()}
        return {**self.allocated, **old}

    def add_to_status(self, status: PodStatus, generation: int) -> None:
        """Add the conditions, and the actual resources of restarted containers."""
        for type_, holds, since in (
            (RESIZE_PENDING, bool(self.reason), self.since),
            (RESIZE_IN_PROGRESS, bool(self.restarting), self.begun),
        ):
            if holds:
                stamp = to_time(int(since))
                status.conditions.add(type=type_, status="True", lastTransitionTime=stamp, observedGeneration=generation)
                if type_ == RESIZE_PENDING:
                    status.conditions[-1].reason, status.conditions[-1].message = self.reason, self.message
        for container_status in (*status.initContainerStatuses, *status.containerStatuses):
            if (restarting := self.restarting.get(container_status.name)) is not None:
                container_status.resources.CopyFrom(restarting.resources)


def resources_of(spec: PodSpec) -> Resources:
    return {container.name: container.resources for container in resizable_containers(spec)}


def with_resources(pod: Pod, resources: Resources) -> Pod:
    """A copy of the pod whose containers have these resources."""
    result = Pod()
    result.CopyFrom(pod)
    for container in resizable_containers(result.spec):
        if container.name in resources:
            container.resources.CopyFrom(resources[container.name])
    return result


def adopt_resize(pod: Pod) -> PendingResize | None:
    """The resize that an earlier kubelet process left, from the reported status. None: nothing."""
    if not is_resizing(pod):
        return None
    statuses = {
        container_status.name: container_status
        for container_status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    }
    allocated: dict[str, ResourceRequirements] = {}
    restarting: dict[str, RestartingContainer] = {}
    for container in resizable_containers(pod.spec):
        status = statuses.get(container.name)
        if status is None or not status.HasField("resources") or status.allocatedResources == container.resources.requests:
            allocated[container.name] = container.resources
        else:
            allocated[container.name] = ResourceRequirements(requests=status.allocatedResources, limits=status.resources.limits)
        if status is not None and status.HasField("resources") and status.resources.requests != status.allocatedResources:
            restarting[container.name] = RestartingContainer(status.restartCount, status.resources)
    pending = conditions.find_condition(pod.status.conditions, RESIZE_PENDING)
    if pending is None and not restarting and allocated == resources_of(pod.spec):
        return None  # another part of the spec has changed
    progress = conditions.find_condition(pod.status.conditions, RESIZE_IN_PROGRESS)
    return PendingResize(
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


class ContainerStatusInput(NamedTuple):
    """One container, prepared for the status."""

    plan: ContainerPlan
    init: bool
    view: ContainerView | None
    care: ContainerRecord | None
    running: bool
    started: bool
    ready: bool

    @property
    def counts_for_readiness(self) -> bool:
        """Whether the readiness of the pod depends on it."""
        return not self.init or self.plan.sidecar

    @property
    def blocks_init_containers(self) -> bool:
        """Whether other init containers wait for this one."""
        return self.init and not (self.started if self.plan.sidecar else self.ready)


def encode_plain_pod(plan: PodPlan, state: PodState, containers: Sequence[ContainerView]) -> bytes | None:
    """A fast path of `encode_status` for plain pods with running containers that were never restarted. None: not such a pod."""
    if not plan.plain or len(containers) != len(plan.main) or state.images is not plan.images:
        return None
    views, out = {view.name: view for view in containers}, b""
    for item in plan.main:
        view = views.get(item.name)
        if view is None or view.started is None or view.attempt or view.exit is not None:
            return None
        out += _encoded_running(item.name, item.image, False, 0, int(view.started.unix), item.resources)
    return out


def prepare_containers(plan: PodPlan, state: PodState, containers: Sequence[ContainerView]) -> list[ContainerStatusInput]:
    """All containers, in the order of the spec, init containers first."""
    views = {view.name: view for view in containers}
    shown = [_prepare_container(item, True, views.get(item.name), state) for item in plan.init] if plan.init else []
    return shown + [_prepare_container(item, False, views.get(item.name), state) for item in plan.main]


def _prepare_container(plan: ContainerPlan, init: bool, view: ContainerView | None, state: PodState) -> ContainerStatusInput:
    care = state.records.get(plan.name) if state.records else None
    running = view is not None and view.state is ContainerState.RUNNING
    if init and not plan.sidecar:  # a finished init container is ready
        done = view is not None and view.exit is not None and view.exit.code == 0
        return ContainerStatusInput(plan, init, view, care, running, running, done)
    if not plan.attended:
        return ContainerStatusInput(plan, init, view, care, running, running, running)
    if not running or view is None or care is None or care.attempt != view.attempt:
        return ContainerStatusInput(plan, init, view, care, False, False, False)
    return ContainerStatusInput(plan, init, view, care, care.hooked, care.started, care.ready)


def encode_status(metadata: ObjectMeta, plan: PodPlan, state: PodState, shown: Sequence[ContainerStatusInput]) -> bytes:
    """Encoded as a PodStatus. `metadata`: of the pod."""
    return b"".join(_encode_container(item, metadata, plan, state) for item in shown)


def encode_ephemeral_containers(plan: PodPlan, state: PodState, containers: Sequence[ContainerView]) -> bytes:
    """Encoded as a PodStatus. An ephemeral container is never ready, as in Kubernetes: the pod does not depend on it."""
    status, views = PodStatus(), {view.name: view for view in containers}
    for item in plan.ephemeral:
        target, view = status.ephemeralContainerStatuses.add(name=item.name, image=item.image), views.get(item.name)
        if view is None or (view.exit is None and view.state is not ContainerState.RUNNING):
            target.state.CopyFrom(_LOST if state.phase.final else _waiting_reason(plan))
        elif view.exit is not None:
            target.state.terminated.CopyFrom(_terminated_state(view.exit))
        elif view.started is not None:
            target.state.running.startedAt.seconds = int(view.started.unix)
    return status.SerializeToString()


def _encode_container(shown: ContainerStatusInput, metadata: ObjectMeta, plan: PodPlan, state: PodState) -> bytes:
    view, name = shown.view, shown.plan.name
    image = state.images.get(name, shown.plan.image)
    if view is not None and view.started is not None and view.last_exit is None and shown.ready and shown.running:
        return _encoded_running(name, image, shown.init, view.attempt, int(view.started.unix), shown.plan.resources)
    status = PodStatus()
    target = (status.initContainerStatuses if shown.init else status.containerStatuses).add(
        name=name, image=image, ready=shown.ready, started=shown.started
    )
    target.MergeFromString(shown.plan.resources)
    if view is None:
        due = state.initialized.holds or shown.plan in plan.init[:1]
        target.state.CopyFrom(_LOST if state.phase.final and due else _waiting_reason(plan))
    else:
        _set_state(target, view, shown, metadata, plan, over=state.phase.final or state.ending is not None)
    return status.SerializeToString()


@lru_cache(maxsize=1024)
def _encoded_running(name: str, image: str, init: bool, attempt: int, started: int, resources: bytes) -> bytes:
    """A container that is ready and was never restarted: the most frequent case."""
    status = PodStatus()
    target = (status.initContainerStatuses if init else status.containerStatuses).add(
        name=name, image=image, ready=True, started=True, restartCount=attempt
    )
    target.state.running.startedAt.seconds = started
    target.MergeFromString(resources)
    return status.SerializeToString()


def _set_state(
    target: ContainerStatus,
    view: ContainerView,
    shown: ContainerStatusInput,
    metadata: ObjectMeta,
    plan: PodPlan,
    *,
    over: bool,
) -> None:
    """`over`: no container of the pod will be restarted."""
    target.restartCount = view.attempt
    last_exit = view.last_exit
    if view.exit is None:
        if shown.running and view.started is not None:
            target.state.running.startedAt.seconds = int(view.started.unix)
        else:
            target.state.CopyFrom(_waiting_reason(plan))
    elif not over and should_restart(shown.plan, view, shown.care):
        wait, pod = format_duration(restart_backoff(view, shown.care)), f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        target.state.waiting.reason = "CrashLoopBackOff"
        target.state.waiting.message = f"back-off {wait} restarting failed container={view.name} pod={pod}"
        last_exit = view.exit
    else:
        target.state.terminated.CopyFrom(_terminated_state(view.exit))
    if last_exit is not None:
        target.lastState.terminated.CopyFrom(_terminated_state(last_exit))


def _terminated_state(exit_: ContainerExit) -> ContainerStateTerminated:
    return ContainerStateTerminated(
        exitCode=exit_.code,
        reason=exit_.reason or ("Error" if exit_.code else "Completed"),
        message=exit_.message,
        startedAt=to_time(exit_.started.unix),
        finishedAt=to_time(exit_.finished.unix),
    )


def _waiting_reason(plan: PodPlan) -> ContainerStateMessage:
    return _INITIALIZING if plan.init else _CREATING


def build_status_update(
    pod: Pod,
    revision: str,
    template: PodTemplateFacts,
    state: PodState,
    containers: Sequence[ContainerView],
    addresses: PodAddresses,
    resize: PendingResize | None = None,
) -> Pod:
    """The pod for UpdateStatus: its identity, the expected resourceVersion, and the new status."""
    report = Pod()
    source, target = pod.metadata, report.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, revision
    status = report.status
    status.CopyFrom(pod.status)
    status.phase, status.reason, status.message = state.phase, state.reason, state.message
    generation = status.observedGeneration = source.generation
    if not status.HasField("startTime"):  # otherwise another process of this fleet accepted it first
        status.startTime.seconds = int(state.accepted.unix)
    if state.refused:  # there is nothing else to report
        return report
    if addresses.host and status.hostIP != addresses.host:
        status.hostIP = addresses.host
        del status.hostIPs[:]
        status.hostIPs.add(ip=addresses.host)
    if addresses.pod and status.podIP != addresses.pod:  # the server rejects an empty value, and with it the whole report
        status.podIP = addresses.pod
        del status.podIPs[:]
        status.podIPs.add(ip=addresses.pod)
    _clear_owned_fields(status, state.accepted)
    if state.phase.final and state.ending is not None and state.ending.disrupts:
        message, since = state.ending.message, state.ending.since.unix
        disrupted = conditions.set_condition(
            status.conditions, DISRUPTION_TARGET, "True", "TerminationByKubelet", message, since
        )
        disrupted.observedGeneration = generation
    if state.ready.holds and (running := encode_plain_pod(template.plan, state, containers)) is not None:
        status.MergeFromString(
            _encode_ready_pod_conditions(
                int(state.accepted.unix),
                int(state.initialized.since.unix),
                int(state.containers_ready.since.unix),
                int(state.ready.since.unix),
                generation,
            )
            + running
        )
    else:
        shown = prepare_containers(template.plan, state, containers)
        status.MergeFromString(
            _encode_conditions(state, shown, generation) + encode_status(pod.metadata, template.plan, state, shown)
        )
        if template.plan.ephemeral:
            status.MergeFromString(encode_ephemeral_containers(template.plan, state, containers))
    if resize is not None:
        resize.add_to_status(status, generation)
    return report


def set_held_reasons(status: PodStatus, held: Mapping[str, str], *, initialized: bool) -> None:
    """Say why containers that have never been created wait, if it is their turn. `held`: messages by container."""
    turn = [
        container_status
        for container_status in status.initContainerStatuses
        if container_status.state.waiting.reason in _NOT_CREATED
    ][:1]
    for item in (*turn, *(status.containerStatuses if initialized else ())):
        if item.name in held and item.state.waiting.reason in _NOT_CREATED:
            item.state.waiting.reason, item.state.waiting.message = "CreateContainerConfigError", held[item.name]


def statuses_equal(one: PodStatus, other: PodStatus) -> bool:
    """Whether both have the same content, ignoring the order and times of conditions."""
    return _without_condition_times(one) == _without_condition_times(other)


def _without_condition_times(status: PodStatus) -> PodStatus:
    pod_status = PodStatus()
    pod_status.CopyFrom(status)
    pod_status.conditions.sort(key=lambda pod_condition: pod_condition.type)
    for condition in pod_status.conditions:
        condition.ClearField("lastTransitionTime")
    return pod_status


def _clear_owned_fields(status: PodStatus, accepted: Moment) -> None:
    """Remove fields that are set again. A pod that no scheduler has bound is PodScheduled, too."""
    scheduled = False
    told = status.conditions
    for index in reversed(range(len(told))):
        kind = told[index].type
        if kind in OWN_CONDITIONS:
            del told[index]
        elif kind == "PodScheduled":
            scheduled = True
    if not scheduled:
        told.add(type="PodScheduled", status="True", lastTransitionTime=to_time(accepted.unix))
    del status.containerStatuses[:]
    del status.initContainerStatuses[:]
    del status.ephemeralContainerStatuses[:]


@lru_cache(maxsize=1024)
def _encode_ready_pod_conditions(accepted: int, initialized: int, containers_ready: int, ready: int, generation: int) -> bytes:
    """The conditions of a ready pod."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    stamps = (accepted, initialized, ready, containers_ready)
    return b"".join(_encode_condition(kind, True, stamp, "", "", generation) for kind, stamp in zip(kinds, stamps, strict=True))


def _encode_conditions(state: PodState, shown: Sequence[ContainerStatusInput], generation: int) -> bytes:
    """Encoded as a PodStatus."""
    sandbox = state.accepted if state.ended is None else state.ended
    return (
        _encode_condition("PodReadyToStartContainers", state.ended is None, int(sandbox.unix), "", "", generation)
        + _initialized_condition(state, shown, generation)
        + _ready_condition("Ready", state, shown, generation)
        + _ready_condition("ContainersReady", state, shown, generation)
    )


def _initialized_condition(state: PodState, shown: Sequence[ContainerStatusInput], generation: int) -> bytes:
    holds, since = state.initialized
    reason = message = ""
    if state.phase is PodPhase.SUCCEEDED:
        reason = "PodCompleted"
    elif not holds:
        reason = "ContainersNotInitialized"
        message = (
            f"containers with incomplete status: [{' '.join(item.plan.name for item in shown if item.blocks_init_containers)}]"
        )
    return _encode_condition("Initialized", holds, int(since.unix), reason, message, generation)


def _ready_condition(kind: str, state: PodState, shown: Sequence[ContainerStatusInput], generation: int) -> bytes:
    holds, since = state.ready if kind == "Ready" else state.containers_ready
    reason = message = ""
    if state.phase.final:
        reason = "PodCompleted" if state.phase is PodPhase.SUCCEEDED else "PodFailed"
    elif not state.containers_ready.holds:
        unready = " ".join(item.plan.name for item in shown if item.counts_for_readiness and not item.ready)
        reason, message = "ContainersNotReady", f"containers with unready status: [{unready}]"
    elif not holds:
        reason, message = "ReadinessGatesNotReady", state.gated
    return _encode_condition(kind, holds, int(since.unix), reason, message, generation)


@lru_cache(maxsize=4096)
def _encode_condition(kind: str, holds: bool, since: int, reason: str, message: str, generation: int) -> bytes:
    """Encoded as a PodStatus. The bytes are the same for all pods that changed in the same second."""
    status = PodStatus()
    stamp = to_time(since)
    condition = status.conditions.add(type=kind, status="True" if holds else "False", lastTransitionTime=stamp)
    condition.reason, condition.message, condition.observedGeneration = reason, message, generation
    return status.SerializeToString()
