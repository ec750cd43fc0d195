"""Priority classes: preempt, unless they say otherwise; their values leave room for the system's own, and never change.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from collections.abc import Mapping

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.pods import PREEMPTION_POLICIES
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, unsupported
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Violation

MAX_VALUE = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""These always exist: made at start-up, never deleted."""

_FOR = {
    "system-cluster-critical": "For pods without which the cluster does not work; they may be moved to another node.",
    "system-node-critical": "For pods without which their node does not work.",
}


def system_classes() -> list[PriorityClass]:
    return [
        PriorityClass(metadata=ObjectMeta(name=name), value=value, description=_FOR[name])
        for name, value in SYSTEM_CLASSES.items()
    ]


class PriorityClassStrategy(Strategy[PriorityClass]):
    def prepare_create(self, obj: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = "PreemptLowerPriority"

    def prepare_update(self, obj: PriorityClass, old: PriorityClass) -> None:
        if not obj.HasField("preemptionPolicy"):
            obj.preemptionPolicy = old.preemptionPolicy

    def check(self, obj: PriorityClass, out: list[Violation]) -> None:
        if obj.preemptionPolicy not in PREEMPTION_POLICIES:
            out.append(unsupported("preemptionPolicy", obj.preemptionPolicy, PREEMPTION_POLICIES))

    def check_new(self, obj: PriorityClass, out: list[Violation]) -> None:
        if obj.metadata.name.startswith(SYSTEM_PREFIX):
            _validate_system(obj, out)
        elif obj.value > MAX_VALUE:
            out.append(forbidden("value", f"maximum allowed value of a user defined priority is {MAX_VALUE}"))
        self.check(obj, out)

    def check_change(self, new: PriorityClass, old: PriorityClass, out: list[Violation]) -> None:
        if new.value != old.value:
            out.append(forbidden("value", "may not be changed in an update."))
        if new.preemptionPolicy != old.preemptionPolicy:
            out.append(invalid("preemptionPolicy", new.preemptionPolicy, IMMUTABLE))


def _validate_system(obj: PriorityClass, out: list[Violation]) -> None:
    name = obj.metadata.name
    if name not in SYSTEM_CLASSES:
        error = f"{name} is not a known system priority class"
    elif obj.value != SYSTEM_CLASSES[name]:
        error = f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
    elif obj.globalDefault:
        error = f"globalDefault of {name} PriorityClass must be false"
    else:
        return
    detail = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {error}"
    out.append(forbidden("metadata.name", detail))
