"""The plugins once more, about one node at a time and as plainly as can be: what the native form must agree with."""

from collections.abc import Sequence
from math import sqrt

from pinnace import fit
from pinnace.api.core_v1_pb2 import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration


def reasons(pod: Pod, node: Node, pods: Sequence[Pod]) -> list[str]:
    """Why the node refuses the pod, in the words of the first plugin that does. Empty: it does not."""
    unschedulable = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if node.spec.unschedulable and not any(tolerates(toleration, unschedulable) for toleration in pod.spec.tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations):
            return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not affine(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    refusals = fit.check_fit(pod, node, pods)
    ports = [refusal.reason for refusal in refusals if not refusal.resource]
    return ports or [refusal.reason for refusal in refusals]


def least_allocated(pod: Pod, node: Node, pods: Sequence[Pod]) -> float:
    left = _left(pod, node, pods)
    return sum(left) / len(left) if left else 0


def balanced(pod: Pod, node: Node, pods: Sequence[Pod], resources: Sequence[str] = ("cpu", "memory")) -> float:
    """The balance with the pod against the balance without it, each truncated."""
    with_pod, without = (int((1 - _deviation(node, item, resources, pod)) * 100) for item in ([*pods, pod], pods))
    return 50 + (50 + with_pod - without) // 2


def _deviation(node: Node, pods: Sequence[Pod], resources: Sequence[str], pod: Pod) -> float:
    """Of the used shares of cpu, memory and the extended resources that the pod requests."""
    has = fit.allocatable_amounts(node)
    counted = [name for name in resources if "/" not in name or name in dict(fit.pod_requests(pod).amounts)]
    used = [sum(dict(fit.pod_requests(item).amounts).get(name, 0) for item in pods) for name in counted]
    shares = [min(1.0, amount / has[name]) for amount, name in zip(used, counted, strict=True) if has.get(name)]
    if len(shares) == 2:
        return abs(shares[0] - shares[1]) / 2
    mean = sum(shares) / max(len(shares), 1)
    return sqrt(sum((share - mean) * (share - mean) for share in shares) / max(len(shares), 1))


def _left(pod: Pod, node: Node, pods: Sequence[Pod]) -> list[int]:
    """In percent, without fractions."""
    has = fit.allocatable_amounts(node)
    used = [sum(amounts) for amounts in zip(*(fit.pod_requests(item).scored for item in (pod, *pods)), strict=True)]
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
        and all(
            _matches(match_expression, node.metadata.labels.get(match_expression.key))
            for match_expression in term.matchExpressions
        )
        and all(_matches(match_field, node.metadata.name) for match_field in term.matchFields)
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
