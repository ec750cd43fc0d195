"""All about a pod."""

from pinnace.api import conditions, wellknown
from pinnace.api.core_v1_pb2 import (
    Pod,
    Toleration,
    TopologySpreadConstraint,
)
from pinnace.api.selectors import from_message
from pinnace.cli.describe.common import annotations, controlled_by
from pinnace.cli.describe.containers import containers, quantities_of
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows, Value, instant, pairs
from pinnace.cli.describe.volumes import volumes
from pinnace.printers.columns import is_set
from pinnace.printers.workloads import pod_status


def waits_for_scheduler(pod: Pod) -> bool:
    """Whether it has no node, and it is for the cluster's own schedulers to give it one."""
    return waits_for_a_node(pod) and pod.spec.schedulerName in ("", wellknown.DEFAULT_SCHEDULER)


def waits_for_a_node(pod: Pod) -> bool:
    """Whether it has no node, and some scheduler is to give it one."""
    waits = not pod.spec.nodeName and pod.status.phase in ("", "Pending") and not pod.spec.schedulingGates
    return waits and not is_set(pod.metadata.deletionTimestamp)


def describe(pod: Pod, *, leaderless: str | NotShown = "", unknown: str = "") -> Fields:
    """`leaderless`: the election that its scheduler must win first, and nobody has. `unknown`: that no scheduler has its
    profile, as a sentence."""
    meta, spec = pod.metadata, pod.spec
    fields: dict[str, Value] = {
        "Name": meta.name,
        "Namespace": meta.namespace,
        "UID": meta.uid,
        "Priority": str(spec.priority),
    }
    if spec.priorityClassName:
        fields["Priority Class Name"] = spec.priorityClassName
    if spec.serviceAccountName:
        fields["Service Account"] = spec.serviceAccountName
    fields |= {
        "Scheduler": spec.schedulerName or wellknown.DEFAULT_SCHEDULER,
        "Node": "/".join(filter(None, (spec.nodeName, pod.status.hostIP))) or NONE,
        "Start Time": instant(pod.status.startTime) or NONE,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "Status": _status(pod),
    }
    if leaderless:
        told = leaderless if isinstance(leaderless, NotShown) else f'waits: nobody leads election "{leaderless}"'
        fields["Scheduling"] = told
    elif unknown:
        fields["Scheduling"] = f"waits: {unknown}"
    if is_set(meta.deletionTimestamp):
        fields["Termination Grace Period"] = f"{meta.deletionGracePeriodSeconds}s"
    fields |= {label: text for label, text in (("Reason", pod.status.reason), ("Message", pod.status.message)) if text}
    fields |= {"IP": pod.status.podIP or NONE, **controlled_by(meta)}
    if pod.status.nominatedNodeName:
        fields["Nominated Node"] = pod.status.nominatedNodeName
    if spec.initContainers:
        fields["Init Containers"] = containers(spec.initContainers, pod.status.initContainerStatuses)
    for label, quantities in (("Limits", spec.resources.limits), ("Requests", spec.resources.requests)):
        if quantities:
            fields[label] = quantities_of(quantities)
    fields["Containers"] = containers(spec.containers, pod.status.containerStatuses)
    if spec.readinessGates:
        fields["Readiness Gates"] = Rows(("Type", "Status"), [_gate(pod, gate.conditionType) for gate in spec.readinessGates])
    fields |= {
        "Conditions": Rows(
            ("Type", "Status", "Reason", "Message"),
            [(c.type, c.status, c.reason, c.message) for c in pod.status.conditions],
        ),
        "Volumes": volumes(spec.volumes),
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
    word, phase = pod_status(pod), pod.status.phase
    return phase if word == phase else f"{phase} ({word})"


def _gate(pod: Pod, type_: str) -> tuple[str, str]:
    said = conditions.find(pod.status.conditions, type_)
    return type_, said.status if said else NONE


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
    """ "zone:DoNotSchedule when max skew 1 is exceeded for selector app=web"; without a selector it counts no pods."""
    text = f"{constraint.topologyKey}:{constraint.whenUnsatisfiable} when max skew {constraint.maxSkew} is exceeded"
    if not constraint.HasField("labelSelector"):
        return text
    return f"{text} for selector {str(from_message(constraint.labelSelector)) or NONE}"
