"""Validation of updates of pods: spec, in-place resize, and status.

An update of the spec can change images, add tolerations, remove scheduling gates, and shorten activeDeadlineSeconds. Other
fields are immutable, and a binding sets the node. While a pod has scheduling gates, updates can restrict its node affinity.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/#mutable-pod-scheduling-directives

A resize changes cpu and memory of containers and sidecars, and their resizePolicy. Other changes in the request are dropped, as
in Kubernetes. A change of the pod-level resources is refused.
Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ and, for the messages,
ValidatePodResize of Kubernetes.

A status update can change the phase only in this order, and a terminated container stays terminated:

    Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed
       '<-----> Unknown <-----'                         Succeeded and Failed are final

Unknown is not part of the order: a pod without a reachable node becomes Unknown, and returns to any phase.
"""

from collections.abc import Sequence

from google.protobuf.message import Message

from pinnace.api import names
from pinnace.api.core_v1_pb2 import (
    Container,
    ContainerStatus,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodCondition,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from pinnace.api.pods import qos_class
from pinnace.api.status import Violation
from pinnace.apiserver.registry.validation.fields import IMMUTABLE, forbidden, invalid, unsupported, validate_ip, validate_key

_UPDATABLE = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
))  # fmt: skip

_RESIZABLE_RESOURCES = ("cpu", "memory")
_CONTAINER_LISTS = ("containers", "initContainers")

_NEXT_PHASES = {
    "": ("Pending", "Running", "Succeeded", "Failed", "Unknown"),
    "Pending": ("Running", "Succeeded", "Failed", "Unknown"),
    "Running": ("Succeeded", "Failed", "Unknown"),
    "Unknown": ("Pending", "Running", "Succeeded", "Failed"),
    "Succeeded": (),
    "Failed": (),
}
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_CONDITION_STATUSES = ("True", "False", "Unknown")
_SYSTEM_CONDITIONS = frozenset({"PodScheduled", "Initialized", "ContainersReady", "Ready"})


def validate_spec_update(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    """Validate the change, but not the new spec."""
    if new == old:
        return
    for field in ("containers", "initContainers"):
        if len(getattr(new, field)) != len(getattr(old, field)):
            out.append(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return
    _validate_deadline(new, old, out)
    _validate_tolerations(new.tolerations, old.tolerations, out)
    _validate_gates(new.schedulingGates, old.schedulingGates, out)
    fixed = _with_old_mutable_fields(new, old, out)
    if fixed != old:
        changed = _changed_paths(fixed, old)
        detail = f"pod updates may not change fields other than {_UPDATABLE}; changed: {', '.join(changed)}"
        if any(item.endswith((".resources", ".resizePolicy")) for item in changed):
            detail += "; cpu and memory of containers change through the subresource resize"
        out.append(forbidden("spec", detail))


def _with_old_mutable_fields(new: PodSpec, old: PodSpec, out: list[Violation]) -> PodSpec:
    """Return the new spec with its mutable fields reset to the old values. It must equal the old spec."""
    fixed = PodSpec()
    fixed.CopyFrom(new)
    _restore_images(fixed.containers, old.containers)
    _restore_images(fixed.initContainers, old.initContainers)
    for field in ("tolerations", "schedulingGates"):
        fixed.ClearField(field)
        getattr(fixed, field).extend(getattr(old, field))
    fixed.ClearField("activeDeadlineSeconds")
    if old.HasField("activeDeadlineSeconds"):
        fixed.activeDeadlineSeconds = old.activeDeadlineSeconds
    if old.terminationGracePeriodSeconds < 0 and fixed.terminationGracePeriodSeconds == 1:
        fixed.terminationGracePeriodSeconds = old.terminationGracePeriodSeconds
    if old.schedulingGates and fixed.nodeSelector != old.nodeSelector:
        if any(fixed.nodeSelector.get(key) != value for key, value in old.nodeSelector.items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            out.append(invalid("spec.nodeSelector", ",".join(sorted(new.nodeSelector)), detail))
        fixed.nodeSelector.clear()
        fixed.nodeSelector.update(old.nodeSelector)
    if old.schedulingGates and fixed.affinity != old.affinity:
        _validate_node_affinity(new.affinity.nodeAffinity, old.affinity.nodeAffinity, out)
        _restore_node_affinity(fixed, old)
    return fixed


def _restore_node_affinity(fixed: PodSpec, old: PodSpec) -> None:
    fixed.affinity.ClearField("nodeAffinity")
    if old.affinity.HasField("nodeAffinity"):
        fixed.affinity.nodeAffinity.CopyFrom(old.affinity.nodeAffinity)
    elif not old.HasField("affinity") and not fixed.affinity.ListFields():
        fixed.ClearField("affinity")


def _validate_node_affinity(new: NodeAffinity, old: NodeAffinity, out: list[Violation]) -> None:
    """Validate the change. Required terms may gain requirements, if there are any terms. Preferred terms may change freely."""
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms, before = (
        node_affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms for node_affinity in (new, old)
    )
    if before and len(terms) != len(before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        out.append(invalid(path, f"{len(terms)} terms", detail))
        return
    for index, (term, was) in enumerate(zip(terms, before, strict=False)):
        if not _only_adds_requirements(term, was):
            keys = [requirement.key for requirement in (*term.matchExpressions, *term.matchFields)]
            detail = "only additions are allowed (no mutations or deletions)"
            out.append(invalid(f"{path}[{index}]", keys, detail))


def _only_adds_requirements(term: NodeSelectorTerm, before: NodeSelectorTerm) -> bool:
    """Return whether the term only gains requirements. An empty term matches no node, so it must not gain any."""
    if not before.matchExpressions and not before.matchFields:
        return term == before
    return all(
        now[: len(was)] == was[:]
        for now, was in ((term.matchExpressions, before.matchExpressions), (term.matchFields, before.matchFields))
    )


def _restore_images(new: Sequence[Container], old: Sequence[Container]) -> None:
    for container, before in zip(new, old, strict=True):
        container.image = before.image


def _changed_paths(new: PodSpec, old: PodSpec) -> list[str]:
    """Return the paths of the fields that differ, with the fields of each container."""
    changed = []
    for name in _differing_fields(new, old):
        if name in ("containers", "initContainers"):
            for index, (container, was) in enumerate(zip(getattr(new, name), getattr(old, name), strict=True)):
                changed += [f"spec.{name}[{index}].{field}" for field in _differing_fields(container, was)]
        else:
            changed.append(f"spec.{name}")
    return changed or ["fields that this version does not model"]


def _differing_fields(new: Message, old: Message) -> list[str]:
    """Return the names of the fields that differ in value or presence."""
    now, then = ({field.name: value for field, value in message.ListFields()} for message in (new, old))
    return [field.name for field in new.DESCRIPTOR.fields if now.get(field.name) != then.get(field.name)]


def _validate_deadline(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    path = "spec.activeDeadlineSeconds"
    if not old.HasField("activeDeadlineSeconds"):
        return
    if not new.HasField("activeDeadlineSeconds"):
        out.append(forbidden(path, "must not update from a positive integer to nil value"))
    elif new.activeDeadlineSeconds > old.activeDeadlineSeconds:
        out.append(invalid(path, new.activeDeadlineSeconds, "must be less than or equal to previous value"))


def _validate_tolerations(new: Sequence[Toleration], old: Sequence[Toleration], out: list[Violation]) -> None:
    def identity(toleration: Toleration) -> tuple[str, str, str, str]:
        return (toleration.key, toleration.operator, toleration.value, toleration.effect)

    kept = {identity(toleration) for toleration in new}
    if any(identity(toleration) not in kept for toleration in old):
        out.append(forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"))


def _validate_gates(new: Sequence[PodSchedulingGate], old: Sequence[PodSchedulingGate], out: list[Violation]) -> None:
    known = {gate.name for gate in old}
    for index, gate in enumerate(new):
        if gate.name not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.name}'"
            out.append(forbidden(f"spec.schedulingGates[{index}].name", detail))


def carry_over_resources(new: PodSpec, old: PodSpec) -> PodSpec:
    """Return the old spec with the resources and the resizePolicy of the new one. Containers keep their names from the new
    spec, so that `validate_resize` can refuse another order."""
    resized = PodSpec()
    resized.CopyFrom(old)
    for field in _CONTAINER_LISTS:
        wanted, kept = getattr(new, field), getattr(resized, field)
        if len(wanted) != len(kept):
            del kept[:]
            kept.extend(wanted)
            continue
        for container, source in zip(kept, wanted, strict=True):
            container.name = source.name
            _copy_resources(container, source)
    if new.resources != old.resources:
        resized.resources.CopyFrom(new.resources)
    return resized


def _copy_resources(container: Container, source: Container) -> None:
    container.ClearField("resources")
    if source.HasField("resources"):
        container.resources.CopyFrom(source.resources)
    del container.resizePolicy[:]
    container.resizePolicy.extend(source.resizePolicy)


def validate_ephemeral_update(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    """Check that no ephemeral container was removed or changed."""
    path = "spec.ephemeralContainers"
    after = {ephemeral.ephemeralContainerCommon.name: ephemeral for ephemeral in new.ephemeralContainers}
    for ephemeral in old.ephemeralContainers:
        name = ephemeral.ephemeralContainerCommon.name
        if name not in after:
            out.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed'))
        elif after[name] != ephemeral:
            out.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed'))


def validate_resize(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    """Validate the change, but not the new spec."""
    if new.resources != old.resources:
        out.append(forbidden("spec.resources", "pod-level resources cannot be resized"))
    if (quality := qos_class(new)) != qos_class(old):
        out.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))
    for field in _CONTAINER_LISTS:
        containers, before = getattr(new, field), getattr(old, field)
        if len(containers) != len(before):
            out.append(forbidden(f"spec.{field}", "containers may not be added or removed on resize"))
            continue
        for index, (container, was) in enumerate(zip(containers, before, strict=True)):
            path = f"spec.{field}[{index}]"
            if container.name != was.name:
                out.append(forbidden(f"{path}.name", "containers may not be renamed or reordered on resize"))
            elif field == "initContainers" and was.restartPolicy != "Always":
                if container.resources != was.resources or container.resizePolicy != was.resizePolicy:
                    detail = "resources for non-sidecar init containers are immutable"
                    out.append(forbidden(f"{path}.resources", detail))
            else:
                _validate_resource_change(container.resources, was.resources, f"{path}.resources", out)


def _validate_resource_change(new: ResourceRequirements, old: ResourceRequirements, path: str, out: list[Violation]) -> None:
    removed = False
    for field, noun in (("requests", "resource requests"), ("limits", "resource limits")):
        now, then = getattr(new, field), getattr(old, field)
        if any(name in then and name not in now for name in _RESIZABLE_RESOURCES):
            out.append(forbidden(f"{path}.{field}", f"{noun} cannot be removed"))
            removed = True
    if not removed and _immutable_resources(new) != _immutable_resources(old):
        out.append(forbidden("spec", f"only cpu and memory resources are mutable; changed: {path}"))


def _immutable_resources(resources: ResourceRequirements) -> ResourceRequirements:
    """Return the resources without those that a resize may change."""
    rest = ResourceRequirements()
    rest.CopyFrom(resources)
    for name in _RESIZABLE_RESOURCES:
        rest.requests.pop(name, None)
        rest.limits.pop(name, None)
    return rest


def validate_pod_status(status: PodStatus, out: list[Violation]) -> None:
    """Validate the status by itself."""
    if nominated := status.nominatedNodeName:
        out.extend(invalid("status.nominatedNodeName", nominated, problem) for problem in names.dns_subdomain(nominated))
    _validate_conditions(status.conditions, out)
    _validate_addresses(status, out)


def validate_pod_status_update(new: Pod, old: Pod, out: list[Violation]) -> None:
    """Validate the change of the status. Of the spec, only the restart policy of the old one is read."""
    status, before = new.status, old.status
    _validate_phase(status.phase, before.phase, out)
    if status.qosClass != before.qosClass:
        out.append(invalid("status.qosClass", status.qosClass, IMMUTABLE))
    if had := before.containerStatuses:
        _validate_containers(status.containerStatuses, had, old.spec.restartPolicy, "status.containerStatuses", out)
    if had := before.initContainerStatuses:
        sidecars = {container.name for container in old.spec.initContainers if container.restartPolicy == "Always"}
        had_init = [container_status for container_status in had if container_status.name not in sidecars]
        _validate_containers(
            status.initContainerStatuses, had_init, old.spec.restartPolicy, "status.initContainerStatuses", out
        )


def _validate_phase(new: str, old: str, out: list[Violation]) -> None:
    if new == old:
        return
    if new not in PHASES:
        out.append(unsupported("status.phase", new, PHASES))
    elif new not in _NEXT_PHASES.get(old, PHASES):
        out.append(invalid("status.phase", new, f'may not change from "{old}"'))


def _validate_conditions(conditions: Sequence[PodCondition], out: list[Violation]) -> None:
    for index, condition in enumerate(conditions):
        kind, status = condition.type, condition.status
        if kind not in _SYSTEM_CONDITIONS:
            validate_key(kind, f"status.conditions[{index}].type", out)
        if status not in _CONDITION_STATUSES:
            out.append(unsupported(f"status.conditions[{index}].status", status, _CONDITION_STATUSES))


def _validate_addresses(status: PodStatus, out: list[Violation]) -> None:
    if address := status.podIP:
        validate_ip(address, "status.podIP", out)
    if address := status.hostIP:
        validate_ip(address, "status.hostIP", out)
    for index, each in enumerate(status.podIPs):
        validate_ip(each.ip, f"status.podIPs[{index}]", out)
    for index, host in enumerate(status.hostIPs):
        validate_ip(host.ip, f"status.hostIPs[{index}]", out)


def _validate_containers(
    new: Sequence[ContainerStatus], old: Sequence[ContainerStatus], restart: str, path: str, out: list[Violation]
) -> None:
    now = {status.name: (index, status) for index, status in enumerate(new)}
    for before in old:
        index, status = now.get(before.name, (0, None))
        if status is None:
            continue
        if status.restartCount < before.restartCount:
            out.append(
                invalid(f"{path}[{index}].restartCount", status.restartCount, f"may not decrease (it is {before.restartCount})")
            )
        if restart == "Always" or not before.state.HasField("terminated") or status.state.HasField("terminated"):
            continue
        if restart == "Never" or before.state.terminated.exitCode == 0:
            out.append(forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state"))
