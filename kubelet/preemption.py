"""Whom a node ends so that a critical pod has room. Pure.

A critical pod that was put on a full node is not refused, as others are: pods of a lower priority end for it, with their own
grace. They are chosen as in Kubernetes: as few guaranteed ones as it takes if all others go, then as few burstable ones, then
best-effort ones; of each kind those first that come nearest to what is lacking, and of these the smallest.

Source: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/, and
pkg/kubelet/preemption of Kubernetes
"""

from collections.abc import Iterable, Mapping, Sequence

from kubelet.eviction import CRITICAL
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.pods import qos_class
from pinnace.fit import pod_requests

PREEMPTING = "Preempting"
PREEMPTED = "Preempted in order to admit critical pod"
_KINDS = ("BestEffort", "Burstable", "Guaranteed")

Amounts = Mapping[str, int]
"""By resource, as pinnace.fit counts them; "pods" is one of them."""


def is_critical(pod: Pod) -> bool:
    return pod.spec.priority >= CRITICAL


def preempted(pod: Pod, others: Iterable[Pod], lacking: Amounts) -> Sequence[Pod] | None:
    """Those of the `others` that are to end so that what is `lacking` for the critical pod is there. None: nobody, because all
    that may end would not be enough."""
    kinds: dict[str, list[Pod]] = {kind: [] for kind in _KINDS}
    for each in others:
        if each.spec.priority < pod.spec.priority:
            kinds[qos_class(each.spec)].append(each)
    chosen: list[Pod] = []
    while kinds:
        _, candidates = kinds.popitem()  # the most precious
        spared = [each for kind in kinds.values() for each in kind]
        nearest = _nearest(candidates, _left(lacking, [*chosen, *spared]))
        if nearest is None:
            return None
        chosen += nearest
    return chosen


def not_enough(lacking: Amounts) -> str:
    """In the kubelet's words."""
    resources = "".join(f"(res: {resource}, q: {amount}), " for resource, amount in lacking.items())
    return (
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to "
        f"preempt: no set of running pods found to reclaim resources: [{resources}]"
    )


def _nearest(pods: Iterable[Pod], lacking: Amounts) -> list[Pod] | None:
    left, chosen, candidates = lacking, list[Pod](), {each.metadata.uid: each for each in pods}
    while left:
        if not candidates:
            return None
        uid = min(candidates, key=lambda uid: (*_rank(_requests(candidates[uid]), left), uid))
        chosen.append(candidates.pop(uid))
        left = _left(left, chosen[-1:])
    return chosen


def _rank(requests: Amounts, lacking: Amounts) -> tuple[float, int, int]:
    """By how much it falls short, each resource weighing the same; then by its size."""
    shares = (max(0, amount - requests.get(resource, 0)) / amount for resource, amount in lacking.items())
    return sum(share**2 for share in shares), requests.get("memory", 0), requests.get("cpu", 0)


def _left(lacking: Amounts, pods: Sequence[Pod]) -> Amounts:
    freed = [_requests(each) for each in pods]
    left = {resource: amount - sum(each.get(resource, 0) for each in freed) for resource, amount in lacking.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _requests(pod: Pod) -> Amounts:
    return dict(pod_requests(pod).amounts)
