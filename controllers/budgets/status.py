"""What a disruption budget says of its pods. Pure; times are Unix time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controllers.amounts import amount
from controllers.podfacts import Facts
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import Time
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget, PodDisruptionBudgetStatus
from pinnace.api.scalars import MAX_INT32, STRING
from pinnace.api.times import to_seconds, to_time

UNCONFIRMED = 120.0
"""Seconds for which a pod whose eviction was granted counts as gone; then the disruption is given back."""
_ALLOWED = "DisruptionAllowed"
_UNMANAGED = (
    "Some of the pods have no controller, and are not expected: the status cannot be calculated correctly. To account for them "
    "set .spec.minAvailable to an integer."
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Of all controllers of the pods together. `unknown`: why it is not known; empty: it is. `unmanaged`: a pod has none, and
    does not count."""

    total: int
    unknown: str = ""
    unmanaged: bool = False


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """A number of pods that must be available does not depend on how many there should be."""
    return budget.spec.HasField("maxUnavailable") or budget.spec.minAvailable.type == STRING


def status_of(
    budget: PodDisruptionBudget, pods: Sequence[Facts], scale: Scale, now: float
) -> tuple[PodDisruptionBudgetStatus, float | None]:
    """The status, and the seconds until a disruption is given back; None: none will be. `pods`: those that it selects."""
    status = PodDisruptionBudgetStatus()
    status.CopyFrom(budget.status)
    status.observedGeneration = budget.metadata.generation
    if needs_scale(budget) and scale.unknown:
        status.disruptionsAllowed = 0  # what cannot be counted is not given away
        _say(status, "False", "SyncFailed", scale.unknown, now)
        return status, None
    bounds = _bounds(budget, len(pods), scale.total)
    status.expectedPods, status.desiredHealthy = (min(MAX_INT32, each) for each in bounds)  # it cannot say more
    going, again = disrupted(budget.status.disruptedPods, pods, now)
    status.ClearField("disruptedPods")
    for name, since in going.items():
        status.disruptedPods[name].CopyFrom(to_time(since))
    status.currentHealthy = sum(each.ready and not each.deleting and each.pod.metadata.name not in going for each in pods)
    spare = status.currentHealthy - status.desiredHealthy
    status.disruptionsAllowed = max(0, spare) if status.expectedPods else 0
    enough = status.disruptionsAllowed > 0
    _say(status, "True" if enough else "False", "SufficientPods" if enough else "InsufficientPods", "", now)
    return status, again


def remark(pods: Sequence[Facts], scale: Scale) -> tuple[str, str, str] | None:
    """Why a budget may allow less than its author expects, as an event: type, reason, message."""
    if not pods:
        return "Normal", "NoPods", "No matching pods found"
    if scale.unknown:
        message = f"Failed to calculate the number of expected pods: {scale.unknown}"
        return "Warning", "CalculateExpectedPodCountFailed", message
    return ("Warning", "UnmanagedPods", _UNMANAGED) if scale.unmanaged else None


def spared(before: PodDisruptionBudgetStatus, now: PodDisruptionBudgetStatus, pods: Iterable[Facts]) -> list[Pod]:
    """Whose eviction is not believed in any more: it was granted, and they are still there."""
    given_back = before.disruptedPods.keys() - now.disruptedPods.keys()
    return [each.pod for each in pods if each.pod.metadata.name in given_back and not each.deleting]


def disrupted(granted: Mapping[str, Time], pods: Iterable[Facts], now: float) -> tuple[dict[str, float], float | None]:
    """Whose eviction was granted and is still to be seen, by name, since when; and the seconds until the first of them is not
    believed in any more."""
    if not granted:
        return {}, None
    there = {each.pod.metadata.name for each in pods if not each.deleting}
    since = {name: to_seconds(at) for name, at in granted.items() if name in there}
    going = {name: at for name, at in since.items() if at + UNCONFIRMED > now}
    return going, min((at + UNCONFIRMED - now for at in going.values()), default=None)


def _bounds(budget: PodDisruptionBudget, pods: int, scale: int) -> tuple[int, int]:
    """Expected pods, and how many of them must be healthy."""
    spec = budget.spec
    if spec.HasField("maxUnavailable"):
        return scale, max(0, scale - amount(spec.maxUnavailable, scale, up=True))
    if needs_scale(budget):
        return scale, amount(spec.minAvailable, scale, up=True)
    return pods, amount(spec.minAvailable, pods, up=True)


def _say(status: PodDisruptionBudgetStatus, value: str, reason: str, message: str, now: float) -> None:
    said = conditions.say(status.conditions, _ALLOWED, value, reason, message, now)
    said.observedGeneration = status.observedGeneration
