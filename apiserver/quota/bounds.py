"""What a quota says: what it counts, how much of it there may be, and what becomes of its status. Pure.

Source: pkg/admission/plugin/resourcequota of k8s.io/apiserver and pkg/quota/v1 of Kubernetes 1.36, for the messages too.
"""

from collections.abc import Mapping

from apiserver.quota.usage import Use, stated
from apiserver.registry.validation.resource_names import HUGE_PAGES
from pinnace.api.core_v1_pb2 import Pod, ResourceQuota, ScopedResourceSelectorRequirement
from pinnace.api.quantity import MAX, amount, format_amount
from pinnace.api.resource_v1_pb2 import Quantity

_REQUIRED = frozenset(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))
"""What every container must state where it is bounded; a request of anything else that is missing counts as nothing."""
_BYTES = ("memory", "ephemeral-storage", "storage")


class Bounds:
    """One version of a quota. `hard`: the bounds, by name."""

    def __init__(self, quota: ResourceQuota) -> None:
        self.hard = _amounts(quota.spec.hard)
        self._quota = quota
        self._requirements = _requirements(quota)
        used = _amounts(quota.status.used)
        self.used: Mapping[str, int] | None = used if used.keys() >= self.hard.keys() else None
        """As the status says; None: it does not say all of it, because nobody has counted yet."""

    def share(self, use: Use) -> dict[str, int]:
        """What an object counts here, by name; empty: it does not."""
        share = {name: value for name, value in use.amounts if value and name in self.hard}
        return share if share and self._covers(use) else {}

    def growth(self, use: Use, before: Use | None) -> dict[str, int]:
        """What it counts here more than before; None: it was not there. All of it, if only now it is in the scopes."""
        return self.share(use if before is None or not self._covers(before) else use.beyond(before))

    def total(self, uses: Mapping[Use, int]) -> dict[str, int]:
        """What objects count together: `uses` with the number of objects that have each."""
        total = dict.fromkeys(self.hard, 0)
        for use, number in uses.items():
            for name, each in self.share(use).items():
                total[name] += number * each
        return total

    def unstated(self, pod: Pod, use: Use) -> str:
        """What containers must say of themselves here and do not, in words; empty: nothing."""
        required = _REQUIRED & self.hard.keys()
        if not required or not self._covers(use):
            return ""
        missing: dict[str, set[str]] = {}
        for container, said in stated(pod).items():
            for name in required - said:
                missing.setdefault(name, set()).add(container)
        if not missing:
            return ""
        found = "; ".join(f"{name} for: {','.join(sorted(containers))}" for name, containers in sorted(missing.items()))
        return f"failed quota: {self._quota.metadata.name}: must specify {found}"

    def excess(self, used: Mapping[str, int], share: Mapping[str, int]) -> str:
        """How the share would exceed the quota, beside what is used already, in words; empty: it fits."""
        over = sorted(name for name, value in share.items() if used[name] + value > self.hard[name])
        if not over:
            return ""
        hard = self._quota.spec.hard
        requested = ",".join(f"{name}={_text(name, share[name])}" for name in over)
        taken = ",".join(f"{name}={_text(name, used[name])}" for name in over)
        limited = ",".join(f"{name}={hard[name].string}" for name in over)
        return f"exceeded quota: {self._quota.metadata.name}, requested: {requested}, used: {taken}, limited: {limited}"

    def says(self, used: Mapping[str, int]) -> bool:
        """Is this what its status says? More than it can say is there as what it can: it would never agree, and be written for
        ever."""
        sayable = {name: _cut(name, value) for name, value in used.items()}
        return self.used == sayable and dict(self._quota.status.hard) == dict(self._quota.spec.hard)

    def with_used(self, used: Mapping[str, int]) -> ResourceQuota:
        """The quota to store, with this in its status."""
        quota = ResourceQuota()
        quota.CopyFrom(self._quota)
        quota.metadata.resourceVersion = ""
        quota.ClearField("status")
        for name, value in used.items():
            quota.status.hard[name].CopyFrom(quota.spec.hard[name])
            quota.status.used[name].string = _text(name, value)
        return quota

    def _covers(self, use: Use) -> bool:
        """Is an object in its scopes? In none that is not about the object's kind."""
        if not self._requirements:
            return True
        scopes = dict(use.scopes)
        return all(_is_in(scopes.get(each.scopeName), each) for each in self._requirements)


def _requirements(quota: ResourceQuota) -> list[ScopedResourceSelectorRequirement]:
    scopes = (ScopedResourceSelectorRequirement(scopeName=scope, operator="Exists") for scope in quota.spec.scopes)
    return [*scopes, *quota.spec.scopeSelector.matchExpressions]


def _is_in(values: frozenset[str] | None, requirement: ScopedResourceSelectorRequirement) -> bool:
    if values is None:
        return False
    match requirement.operator:
        case "In":
            return not values.isdisjoint(requirement.values)
        case "NotIn":
            return values.isdisjoint(requirement.values)
        case "DoesNotExist":
            return not values
    return bool(values)


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount(_unit(name), quantity.string) for name, quantity in quantities.items()}


def _cut(name: str, value: int) -> int:
    """To the largest quantity: no bound is above it, so that nothing has room beside it."""
    return min(value, amount(_unit(name), str(MAX)))


def _text(name: str, value: int) -> str:
    unit = _unit(name)
    return format_amount("memory" if unit in _BYTES or unit.startswith(HUGE_PAGES) else unit, _cut(name, value))


def _unit(name: str) -> str:
    """The resource whose unit the amounts of a name have."""
    if name.endswith("/requests.storage"):
        return "storage"
    return name.removeprefix("requests.").removeprefix("limits.")
