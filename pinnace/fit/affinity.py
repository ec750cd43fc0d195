"""Does a node have the labels that a pod insists on? For one pod and one node; the scheduler's plugin asks all nodes at once.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from pinnace.api.core_v1_pb2 import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from pinnace.api.scalars import integer

AFFINITY_REASON = "node(s) didn't match Pod's node affinity/selector"


def insists(spec: PodSpec) -> bool:
    """Does the pod ask for labels at all? Most do not."""
    return bool(spec.nodeSelector) or spec.affinity.nodeAffinity.HasField("requiredDuringSchedulingIgnoredDuringExecution")


def matches(spec: PodSpec, node: Node) -> bool:
    """The nodeSelector, and one term of the required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.nodeSelector.items()):
        return False
    affinity = spec.affinity.nodeAffinity
    if not affinity.HasField("requiredDuringSchedulingIgnoredDuringExecution"):
        return True
    return selects(affinity.requiredDuringSchedulingIgnoredDuringExecution, node)


def selects(selector: NodeSelector, node: Node) -> bool:
    """One of the terms matches."""
    return any(_term(term, node) for term in selector.nodeSelectorTerms)


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    """All requirements hold; a term without any matches nothing."""
    if not (term.matchExpressions or term.matchFields):
        return False
    labels = node.metadata.labels
    fields = {"metadata.name": node.metadata.name}
    return all(_holds(each, labels.get(each.key)) for each in term.matchExpressions) and all(
        each.key in fields and each.operator in ("In", "NotIn") and _holds(each, fields[each.key]) for each in term.matchFields
    )


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Gt" | "Lt":
            return _compared(requirement, value)
        case _:
            return False


def _compared(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Gt and Lt are about whole numbers; what is none does not match."""
    bound = integer(requirement.values[0]) if len(requirement.values) == 1 else None
    number = integer(value or "")
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
