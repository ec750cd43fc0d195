"""Priority classes: values that leave room for the system's own, and never change.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
"""

from collections.abc import Mapping

from apiserver.registry.validation.metadata import validate_metadata, validate_metadata_update
from apiserver.registry.validation.pods import PREEMPTION_POLICIES
from apiserver.registry.validation.violations import IMMUTABLE, forbidden, invalid, unsupported
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.status import Violation

MAX_VALUE = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: Mapping[str, int] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def validate_priority_class(obj: PriorityClass) -> list[Violation]:
    """Everything that is wrong with a new class."""
    out: list[Violation] = []
    validate_metadata(obj.metadata, out, namespaced=False)
    name, value = obj.metadata.name, obj.value
    if name.startswith(SYSTEM_PREFIX):
        _validate_system(obj, out)
    elif value > MAX_VALUE:
        out.append(forbidden("value", f"maximum allowed value of a user defined priority is {MAX_VALUE}"))
    _validate_policy(obj, out)
    return out


def validate_priority_class_update(new: PriorityClass, old: PriorityClass) -> list[Violation]:
    """Everything that is wrong with the change, and with the class as it would be."""
    out: list[Violation] = []
    validate_metadata_update(new.metadata, old.metadata, out, namespaced=False)
    if new.value != old.value:
        out.append(forbidden("value", "may not be changed in an update."))
    _validate_policy(new, out)
    if new.preemptionPolicy != old.preemptionPolicy:
        out.append(invalid("preemptionPolicy", new.preemptionPolicy, IMMUTABLE))
    return out


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


def _validate_policy(obj: PriorityClass, out: list[Violation]) -> None:
    if obj.preemptionPolicy not in PREEMPTION_POLICIES:
        out.append(unsupported("preemptionPolicy", obj.preemptionPolicy, PREEMPTION_POLICIES))
