"""The status of a pod as a message, from its state and its containers. Built once per report, not once per step.

What the kubelet does not own in a status (the condition PodScheduled, the QoS class, fields that this project does not model)
is carried over, and so is the startTime of whoever accepted the pod first. lastTransitionTime of a condition moves only when
its `status` does.
"""

from collections.abc import Sequence
from functools import lru_cache

from kubelet.addresses import Addresses
from kubelet.lifecycle import Phase, PodState, restarts
from kubelet.runtime import ContainerState, ContainerView, Exit
from kubelet.template import Template
from pinnace.api.core_v1_pb2 import ContainerState as ContainerStateMessage
from pinnace.api.core_v1_pb2 import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodStatus,
)
from pinnace.api.times import to_time

OWN_CONDITIONS = frozenset({"Initialized", "Ready", "ContainersReady"})


def render(
    pod: Pod,
    revision: str,
    template: Template,
    state: PodState,
    containers: Sequence[ContainerView],
    addresses: Addresses,
) -> Pod:
    """The pod to send to UpdateStatus: its identity, the resourceVersion that it must have there, and the new status."""
    report = Pod()
    source, target = pod.metadata, report.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, revision
    status = report.status
    status.CopyFrom(pod.status)
    status.phase, status.reason, status.message = state.phase, state.reason, state.message
    if not status.HasField("startTime"):  # otherwise another process of this fleet has accepted it before us
        status.startTime.seconds = int(state.accepted.unix)
    if state.reason:  # refused: there is nothing else to say
        return report
    if not status.podIP:
        status.hostIP, status.podIP = addresses.host, addresses.pod
        status.hostIPs.add(ip=addresses.host)
        status.podIPs.add(ip=addresses.pod)
    _clear(status)
    status.MergeFromString(_conditions(state, template, containers) + _containers(state, template, containers))
    return report


def _clear(status: PodStatus) -> None:
    """Takes out what is going to be added anew."""
    conditions = status.conditions
    for index in reversed(range(len(conditions))):
        if conditions[index].type in OWN_CONDITIONS:
            del conditions[index]
    del status.containerStatuses[:]


def _conditions(state: PodState, template: Template, containers: Sequence[ContainerView]) -> bytes:
    reason = message = ""
    if state.phase.final:
        reason = "PodCompleted" if state.phase is Phase.SUCCEEDED else "PodFailed"
    elif not state.ready:
        running = {view.name for view in containers if view.state is ContainerState.RUNNING}
        unready = " ".join(name for name in template.containers if name not in running)
        reason, message = "ContainersNotReady", f"containers with unready status: [{unready}]"
    return _encoded_conditions(reason, message, int(state.accepted.unix), int(state.ready_changed.unix))


@lru_cache(maxsize=1024)
def _encoded_conditions(reason: str, message: str, accepted: int, changed: int) -> bytes:
    """The conditions of a pod that is unready for `reason`, or else ready; encoded as a PodStatus. The bytes are the same for
    all pods that changed in the same second."""
    status = PodStatus()
    status.conditions.add(type="Initialized", status="True", lastTransitionTime=to_time(accepted))
    for kind in ("Ready", "ContainersReady"):
        status.conditions.add(
            type=kind,
            status="False" if reason else "True",
            lastTransitionTime=to_time(changed),
            reason=reason,
            message=message,
        )
    return status.SerializeToString()


def _containers(state: PodState, template: Template, containers: Sequence[ContainerView]) -> bytes:
    """containerStatuses, in the order of the spec; encoded as a PodStatus."""
    views = {view.name: view for view in containers}
    return b"".join(
        _container(name, image, views.get(name), state.phase.final, template.restart_policy)
        for name, image in zip(template.containers, template.images, strict=True)
    )


def _container(name: str, image: str, view: ContainerView | None, final: bool, policy: str) -> bytes:
    if view is not None and view.started is not None and view.last_exit is None and view.exit is None:
        return _encoded_running(name, image, view.attempt, int(view.started.unix))
    status = PodStatus()
    target = status.containerStatuses.add(name=name, image=image)
    if view is None:
        target.state.CopyFrom(_LOST if final else _CREATING)
    else:
        _set_state(target, view, waits=not final and view.exit is not None and restarts(policy, view.exit))
    return status.SerializeToString()


@lru_cache(maxsize=1024)
def _encoded_running(name: str, image: str, attempt: int, started: int) -> bytes:
    """A container that runs and has not ended before: nearly all of them."""
    status = PodStatus()
    target = status.containerStatuses.add(name=name, image=image, ready=True, started=True, restartCount=attempt)
    target.state.running.startedAt.seconds = started
    return status.SerializeToString()


def _set_state(target: ContainerStatus, view: ContainerView, waits: bool) -> None:
    """`waits`: the container has ended and is going to be started again."""
    target.restartCount = view.attempt
    last_exit = view.last_exit
    if view.exit is None:
        if view.started is not None:
            target.ready = target.started = True
            target.state.running.startedAt.seconds = int(view.started.unix)
        else:
            target.state.CopyFrom(_CREATING)
    elif waits:
        target.state.waiting.reason = "CrashLoopBackOff"
        target.state.waiting.message = "waiting before the container is started again"
        last_exit = view.exit
    else:
        target.state.terminated.CopyFrom(_terminated(view.exit))
    if last_exit is not None:
        target.lastState.terminated.CopyFrom(_terminated(last_exit))


def _terminated(exit_: Exit) -> ContainerStateTerminated:
    return ContainerStateTerminated(
        exitCode=exit_.code,
        reason="Error" if exit_.code else "Completed",
        startedAt=to_time(exit_.started.unix),
        finishedAt=to_time(exit_.finished.unix),
    )


_CREATING = ContainerStateMessage(waiting=ContainerStateWaiting(reason="ContainerCreating"))
_LOST = ContainerStateMessage(
    terminated=ContainerStateTerminated(
        exitCode=137, reason="ContainerStatusUnknown", message="the pod ended before the container was started"
    )
)
