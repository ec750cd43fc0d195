"""What an update may change in a pod: images, tolerations that are added, gates that go, a deadline that comes nearer.

Everything else of the spec is fixed when the pod is created; the node is set by a binding. As long as it has gates, a pod may
also become choosier about its node.
Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/#mutable-pod-scheduling-directives
"""

from collections.abc import Sequence

from google.protobuf.message import Message

from apiserver.registry.validation.violations import forbidden, invalid
from pinnace.api.core_v1_pb2 import Container, NodeAffinity, NodeSelectorTerm, PodSchedulingGate, PodSpec, Toleration
from pinnace.api.status import Violation

_UPDATABLE = ",".join((
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
))  # fmt: skip


def validate_spec_update(new: PodSpec, old: PodSpec, out: list[Violation]) -> None:
    """The change alone; not the spec as it would be."""
    if new == old:
        return
    for field in ("containers", "initContainers"):
        if len(getattr(new, field)) != len(getattr(old, field)):
            out.append(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return
    _validate_deadline(new, old, out)
    _validate_tolerations(new.tolerations, old.tolerations, out)
    _validate_gates(new.schedulingGates, old.schedulingGates, out)
    fixed = _as_before(new, old, out)
    if fixed != old:
        changed = _changed(fixed, old)
        detail = f"pod updates may not change fields other than {_UPDATABLE}; changed: {', '.join(changed)}"
        if any(each.endswith((".resources", ".resizePolicy")) for each in changed):
            detail += "; cpu and memory of containers change through the subresource resize"
        out.append(forbidden("spec", detail))


def _as_before(new: PodSpec, old: PodSpec, out: list[Violation]) -> PodSpec:
    """The new spec with everything put back that may change: it must be the old one."""
    fixed = PodSpec()
    fixed.CopyFrom(new)
    _put_back_images(fixed.containers, old.containers)
    _put_back_images(fixed.initContainers, old.initContainers)
    for field in ("tolerations", "schedulingGates"):
        fixed.ClearField(field)
        getattr(fixed, field).extend(getattr(old, field))
    fixed.ClearField("activeDeadlineSeconds")
    if old.HasField("activeDeadlineSeconds"):
        fixed.activeDeadlineSeconds = old.activeDeadlineSeconds
    if old.schedulingGates and fixed.nodeSelector != old.nodeSelector:
        if any(fixed.nodeSelector.get(key) != value for key, value in old.nodeSelector.items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            out.append(invalid("spec.nodeSelector", ",".join(sorted(new.nodeSelector)), detail))
        fixed.nodeSelector.clear()
        fixed.nodeSelector.update(old.nodeSelector)
    if old.schedulingGates and fixed.affinity != old.affinity:
        _validate_node_affinity(new.affinity.nodeAffinity, old.affinity.nodeAffinity, out)
        _put_back_node_affinity(fixed, old)
    return fixed


def _put_back_node_affinity(fixed: PodSpec, old: PodSpec) -> None:
    fixed.affinity.ClearField("nodeAffinity")
    if old.affinity.HasField("nodeAffinity"):
        fixed.affinity.nodeAffinity.CopyFrom(old.affinity.nodeAffinity)
    elif not old.HasField("affinity") and not fixed.affinity.ListFields():
        fixed.ClearField("affinity")


def _validate_node_affinity(new: NodeAffinity, old: NodeAffinity, out: list[Violation]) -> None:
    """What is required may gain requirements, where there are any; what is preferred may be anything."""
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    terms, before = (each.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms for each in (new, old))
    if before and len(terms) != len(before):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        out.append(invalid(path, f"{len(terms)} terms", detail))
        return
    for index, (term, was) in enumerate(zip(terms, before, strict=False)):
        if not _only_gains(term, was):
            keys = [requirement.key for requirement in (*term.matchExpressions, *term.matchFields)]
            detail = "only additions are allowed (no mutations or deletions)"
            out.append(invalid(f"{path}[{index}]", keys, detail))


def _only_gains(term: NodeSelectorTerm, before: NodeSelectorTerm) -> bool:
    """A term without requirements matches no node: with one it would match more."""
    if not before.matchExpressions and not before.matchFields:
        return term == before
    return all(
        now[: len(was)] == was[:]
        for now, was in ((term.matchExpressions, before.matchExpressions), (term.matchFields, before.matchFields))
    )


def _put_back_images(new: Sequence[Container], old: Sequence[Container]) -> None:
    for container, before in zip(new, old, strict=True):
        container.image = before.image


def _changed(new: PodSpec, old: PodSpec) -> list[str]:
    """The fields that differ, one level below containers."""
    changed = []
    for name in _differing(new, old):
        if name in ("containers", "initContainers"):
            for index, (container, was) in enumerate(zip(getattr(new, name), getattr(old, name), strict=True)):
                changed += [f"spec.{name}[{index}].{field}" for field in _differing(container, was)]
        else:
            changed.append(f"spec.{name}")
    return changed or ["fields that this version does not model"]


def _differing(new: Message, old: Message) -> list[str]:
    """Names of the fields of which one has another value, or has one where the other has none."""
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
