"""The status of a pod as a message, from its state and its containers. Built once per report, not once per step.

What the kubelet does not own in a status (the QoS class, conditions of others, fields that this project does not model) is
carried over, and so is the startTime of whoever accepted the pod first. lastTransitionTime of a condition moves only when its
`status` does. Reasons and messages are Kubernetes'.

The status and the kubelet's conditions name the metadata.generation of the spec that the kubelet has seen (observedGeneration).
"""

from collections.abc import Sequence
from functools import lru_cache

from kubelet import containerstatus
from kubelet.addresses import Addresses
from kubelet.containerstatus import Shown, show
from kubelet.lifecycle import Phase, PodState
from kubelet.resize import Resize
from kubelet.runtime import ContainerView, Instant
from kubelet.template import Template
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod, PodStatus
from pinnace.api.scalars import to_time
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.fit.requests import RESIZE_CONDITIONS

OWN_CONDITIONS = frozenset({"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", *RESIZE_CONDITIONS})


def render(
    pod: Pod,
    revision: str,
    template: Template,
    state: PodState,
    containers: Sequence[ContainerView],
    addresses: Addresses,
    resize: Resize | None = None,
) -> Pod:
    """The pod to send to UpdateStatus: its identity, the resourceVersion that it must have there, and the new status."""
    report = Pod()
    source, target = pod.metadata, report.metadata
    target.name, target.namespace = source.name, source.namespace
    target.uid, target.resourceVersion = source.uid, revision
    status = report.status
    status.CopyFrom(pod.status)
    status.phase, status.reason, status.message = state.phase, state.reason, state.message
    generation = status.observedGeneration = source.generation
    if not status.HasField("startTime"):  # otherwise another process of this fleet has accepted it before us
        status.startTime.seconds = int(state.accepted.unix)
    if state.refused:  # there is nothing else to say
        return report
    if addresses.host and status.hostIP != addresses.host:
        status.hostIP = addresses.host
        del status.hostIPs[:]
        status.hostIPs.add(ip=addresses.host)
    if addresses.pod and status.podIP != addresses.pod:  # the server refuses an empty one, and with it the whole report
        status.podIP = addresses.pod
        del status.podIPs[:]
        status.podIPs.add(ip=addresses.pod)
    _clear(status, state.accepted)
    if state.phase.final and state.ending is not None and state.ending.disrupts:
        message, since = state.ending.message, state.ending.since.unix
        conditions.say(status.conditions, DISRUPTION_TARGET, "True", "TerminationByKubelet", message, since)
    if state.ready.holds and (running := containerstatus.plainly(template.plan, state, containers)) is not None:
        status.MergeFromString(
            _all_true(
                int(state.accepted.unix),
                int(state.initialized.since.unix),
                int(state.containers_ready.since.unix),
                int(state.ready.since.unix),
                generation,
            )
            + running
        )
    else:
        shown = show(template.plan, state, containers)
        status.MergeFromString(
            _conditions(state, shown, generation) + containerstatus.encode(pod.metadata, template.plan, state, shown)
        )
    if resize is not None:
        resize.show(status, generation)
    return report


def alike(one: PodStatus, other: PodStatus) -> bool:
    """Do they say the same? In whatever order conditions are, and since whenever they are as they are."""
    return _unordered(one) == _unordered(other)


def _unordered(status: PodStatus) -> PodStatus:
    found = PodStatus()
    found.CopyFrom(status)
    found.conditions.sort(key=lambda each: each.type)
    for each in found.conditions:
        each.ClearField("lastTransitionTime")
    return found


def _clear(status: PodStatus, accepted: Instant) -> None:
    """Takes out what is going to be added anew. A pod that no scheduler has bound is scheduled all the same."""
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


@lru_cache(maxsize=1024)
def _all_true(accepted: int, initialized: int, containers_ready: int, ready: int, generation: int) -> bytes:
    """The conditions of a pod that is ready."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    stamps = (accepted, initialized, ready, containers_ready)
    return b"".join(_condition(kind, True, stamp, "", "", generation) for kind, stamp in zip(kinds, stamps, strict=True))


def _conditions(state: PodState, shown: Sequence[Shown], generation: int) -> bytes:
    """Encoded as a PodStatus."""
    sandbox = state.accepted if state.ended is None else state.ended
    return (
        _condition("PodReadyToStartContainers", state.ended is None, int(sandbox.unix), "", "", generation)
        + _initialized(state, shown, generation)
        + _ready("Ready", state, shown, generation)
        + _ready("ContainersReady", state, shown, generation)
    )


def _initialized(state: PodState, shown: Sequence[Shown], generation: int) -> bytes:
    holds, since = state.initialized
    reason = message = ""
    if state.phase is Phase.SUCCEEDED:
        reason = "PodCompleted"
    elif not holds:
        reason = "ContainersNotInitialized"
        message = f"containers with incomplete status: [{' '.join(each.plan.name for each in shown if each.holds_up)}]"
    return _condition("Initialized", holds, int(since.unix), reason, message, generation)


def _ready(kind: str, state: PodState, shown: Sequence[Shown], generation: int) -> bytes:
    holds, since = state.ready if kind == "Ready" else state.containers_ready
    reason = message = ""
    if state.phase.final:
        reason = "PodCompleted" if state.phase is Phase.SUCCEEDED else "PodFailed"
    elif not state.containers_ready.holds:
        unready = " ".join(each.plan.name for each in shown if each.matters and not each.ready)
        reason, message = "ContainersNotReady", f"containers with unready status: [{unready}]"
    elif not holds:
        reason, message = "ReadinessGatesNotReady", state.gated
    return _condition(kind, holds, int(since.unix), reason, message, generation)


@lru_cache(maxsize=4096)
def _condition(kind: str, holds: bool, since: int, reason: str, message: str, generation: int) -> bytes:
    """Encoded as a PodStatus. The bytes are the same for all pods that changed in the same second."""
    status = PodStatus()
    stamp = to_time(since)
    condition = status.conditions.add(type=kind, status="True" if holds else "False", lastTransitionTime=stamp)
    condition.reason, condition.message, condition.observedGeneration = reason, message, generation
    return status.SerializeToString()
