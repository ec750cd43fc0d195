"""The plugins once more, about one node at a time and as plainly as can be: what the native form must agree with."""

from collections.abc import Sequence
from statistics import pstdev

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration


def reasons(pod: Pod, node: Node, pods: Sequence[Pod]) -> list[str]:
    """Why the node refuses the pod, in the words of the first plugin that does. Empty: it does not."""
    unschedulable = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not any(tolerates(each, unschedulable) for each in pod.spec.tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(each, taint) for each in pod.spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not affine(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    refusals = fit.check(pod, node, pods)
    ports = [refusal.reason for refusal in refusals if not refusal.resource]
    return ports or [refusal.reason for refusal in refusals]


def least_allocated(pod: Pod, node: Node, pods: Sequence[Pod]) -> float:
    left = _left(pod, node, pods)
    return sum(left) / len(left) if left else 0


def balanced(pod: Pod, node: Node, pods: Sequence[Pod]) -> float:
    return 75 + 50 * (_deviation(node, pods) - _deviation(node, [pod, *pods]))


def _deviation(node: Node, pods: Sequence[Pod]) -> float:
    """Of the used shares of cpu and memory."""
    has = fit.allocatable(node)
    used = [sum(dict(fit.pod_requests(each).amounts).get(name, 0) for each in pods) for name in ("cpu", "memory")]
    shares = [min(1.0, amount / has[name]) for amount, name in zip(used, ("cpu", "memory"), strict=True) if has.get(name)]
    return pstdev(shares) if shares else 0.0


def _left(pod: Pod, node: Node, pods: Sequence[Pod]) -> list[int]:
    """In percent, without fractions."""
    has = fit.allocatable(node)
    used = [sum(amounts) for amounts in zip(*(fit.pod_requests(each).scored for each in (pod, *pods)), strict=True)]
    return [max(0, has[name] - used[i]) * 100 // has[name] for i, name in enumerate(("cpu", "memory")) if has.get(name)]


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def affine(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.nodeSelector.items()):
        return False
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    terms = required.nodeSelectorTerms
    if not pod.spec.affinity.nodeAffinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
        return True
    return any(term_matches(term, node) for term in terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    return (
        bool(term.matchExpressions or term.matchFields)
        and all(_matches(each, node.metadata.labels.get(each.key)) for each in term.matchExpressions)
        and all(_matches(each, node.metadata.name) for each in term.matchFields)
    )


def _matches(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.isdigit():
        return False
    return int(value) > int(requirement.values[0]) if requirement.operator == "Gt" else int(value) < int(requirement.values[0])
