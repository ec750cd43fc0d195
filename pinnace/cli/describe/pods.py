"""All about a pod."""

from collections.abc import Mapping, Sequence

from pinnace.api import defaults
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    Toleration,
    TopologySpreadConstraint,
)
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.cli.describe.common import annotations
from pinnace.cli.describe.text import NONE, Detailed, Fields, NotShown, Rows, Value, instant, pairs
from pinnace.printers.ages import is_set
from pinnace.printers.pods import status


def waits_for_scheduler(pod: Pod) -> bool:
    """Whether it has no node, and it is for the cluster's own schedulers to give it one."""
    waits = not pod.spec.nodeName and pod.status.phase in ("", "Pending") and not pod.spec.schedulingGates
    return waits and pod.spec.schedulerName in ("", defaults.SCHEDULER) and not is_set(pod.metadata.deletionTimestamp)


def describe(pod: Pod, *, leaderless: str | NotShown = "") -> Fields:
    """`leaderless`: the election that its scheduler must win first, and nobody has."""
    meta, spec = pod.metadata, pod.spec
    fields: dict[str, Value] = {
        "Name": meta.name,
        "Namespace": meta.namespace,
        "UID": meta.uid,
        "Priority": str(spec.priority),
    }
    if spec.priorityClassName:
        fields["Priority Class Name"] = spec.priorityClassName
    fields |= {
        "Scheduler": spec.schedulerName or defaults.SCHEDULER,
        "Node": "/".join(filter(None, (spec.nodeName, pod.status.hostIP))) or NONE,
        "Start Time": instant(pod.status.startTime) or NONE,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "Status": _status(pod),
    }
    if leaderless:
        told = leaderless if isinstance(leaderless, NotShown) else f'waits: nobody leads election "{leaderless}"'
        fields["Scheduling"] = told
    if is_set(meta.deletionTimestamp):
        fields["Termination Grace Period"] = f"{meta.deletionGracePeriodSeconds}s"
    fields |= {label: text for label, text in (("Reason", pod.status.reason), ("Message", pod.status.message)) if text}
    fields["IP"] = pod.status.podIP or NONE
    if pod.status.nominatedNodeName:
        fields["Nominated Node"] = pod.status.nominatedNodeName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers, pod.status.initContainerStatuses)
    fields |= {
        "Containers": containers(spec.containers, pod.status.containerStatuses),
        "Conditions": Rows(
            ("Type", "Status", "Reason", "Message"),
            [(c.type, c.status, c.reason, c.message) for c in pod.status.conditions],
        ),
        "QoS Class": pod.status.qosClass or NONE,
        "Node-Selectors": pairs(spec.nodeSelector),
        "Tolerations": [toleration(t) for t in spec.tolerations],
    }
    if spec.topologySpreadConstraints:
        fields["Topology Spread Constraints"] = [_spread(constraint) for constraint in spec.topologySpreadConstraints]
    if spec.schedulingGates:
        fields["Scheduling Gates"] = [gate.name for gate in spec.schedulingGates]
    return fields


def _status(pod: Pod) -> str:
    if is_set(pod.metadata.deletionTimestamp):
        return f"Terminating (until {instant(pod.metadata.deletionTimestamp)})"
    word, phase = status(pod), pod.status.phase
    return phase if word == phase else f"{phase} ({word})"


def containers(described: Sequence[Container], statuses: Sequence[ContainerStatus] = ()) -> Fields:
    found = {status.name: status for status in statuses}
    return {container.name: _container(container, found.get(container.name)) for container in described}


def _container(container: Container, status: ContainerStatus | None) -> Fields:
    fields: dict[str, Value] = {"Image": container.image or NONE}
    if container.ports:
        fields["Ports"] = ", ".join(f"{p.containerPort}/{p.protocol or 'TCP'}" for p in container.ports)
        fields["Host Ports"] = ", ".join(f"{p.hostPort}/{p.protocol or 'TCP'}" for p in container.ports)
    spoken = (("Command", container.command), ("Args", container.args))
    fields |= {label: [line for word in words for line in word.split("\n")] for label, words in spoken if words}
    if status is not None:
        fields["State"] = _state(status.state)
        if status.HasField("lastState"):
            fields["Last State"] = _state(status.lastState)
        fields["Ready"] = str(status.ready)
        fields["Restart Count"] = str(status.restartCount)
    for label, quantities in (("Limits", container.resources.limits), ("Requests", container.resources.requests)):
        if quantities:
            fields[label] = _quantities(quantities)
    return fields


def _state(state: ContainerState) -> Detailed:
    if state.HasField("running"):
        return Detailed("Running", {"Started": instant(state.running.startedAt)})
    if not state.HasField("terminated"):
        return Detailed("Waiting", _without_empty({"Reason": state.waiting.reason, "Message": state.waiting.message}))
    end = state.terminated
    details = {
        "Reason": end.reason,
        "Message": end.message,
        "Exit Code": str(end.exitCode),
        "Signal": str(end.signal or ""),
        "Started": instant(end.startedAt),
        "Finished": instant(end.finishedAt),
    }
    return Detailed("Terminated", _without_empty(details))


def _without_empty(fields: Mapping[str, str]) -> dict[str, str]:
    return {label: text for label, text in fields.items() if text}


def _quantities(quantities: Mapping[str, Quantity]) -> list[str]:
    return [f"{name}: {quantity.string}" for name, quantity in sorted(quantities.items())]


def toleration(toleration: Toleration) -> str:
    """ "key=value:NoExecute for 300s", "key:NoSchedule op=Exists", "op=Exists" (of everything)."""
    text = toleration.key
    if toleration.value:
        text += f"={toleration.value}"
    if toleration.effect:
        text += f":{toleration.effect}"
    if toleration.operator == "Exists":
        text = f"{text} op=Exists".strip()
    if toleration.HasField("tolerationSeconds"):
        text += f" for {toleration.tolerationSeconds}s"
    return text


def _spread(constraint: TopologySpreadConstraint) -> str:
    return f"{constraint.topologyKey}:{constraint.whenUnsatisfiable} when max skew {constraint.maxSkew} is exceeded"
