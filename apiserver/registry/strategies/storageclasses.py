"""Storage classes: who makes the volumes, when and where; and that this does not change.

Source: pkg/apis/storage/validation of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence

from apiserver.registry.strategy import Strategy
from apiserver.registry.validation.labels import validate_key
from apiserver.registry.validation.violations import (
    IMMUTABLE,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from pinnace.api import names
from pinnace.api.core_v1_pb2 import TopologySelectorTerm
from pinnace.api.status import Violation
from pinnace.api.storage_v1_pb2 import StorageClass

MAX_PARAMETERS = 512
MAX_PARAMETERS_SIZE = 256 << 10
_POLICIES = ("Delete", "Retain")
_MODES = ("Immediate", "WaitForFirstConsumer")


class StorageClassStrategy(Strategy[StorageClass]):
    def set_defaults(self, obj: StorageClass) -> None:
        if not obj.HasField("reclaimPolicy"):
            obj.reclaimPolicy = "Delete"
        if not obj.HasField("volumeBindingMode"):
            obj.volumeBindingMode = "Immediate"

    def check(self, obj: StorageClass, out: list[Violation]) -> None:
        _validate_topologies(obj.allowedTopologies, out)

    def check_new(self, obj: StorageClass, out: list[Violation]) -> None:
        if not obj.provisioner:
            out.append(required("provisioner"))
        else:
            problems = names.label_key(obj.provisioner.lower())
            out.extend(invalid("provisioner", obj.provisioner, problem) for problem in problems)
        _validate_parameters(obj.parameters, out)
        if obj.reclaimPolicy not in _POLICIES:
            out.append(unsupported("reclaimPolicy", obj.reclaimPolicy, _POLICIES))
        if obj.volumeBindingMode not in _MODES:
            out.append(unsupported("volumeBindingMode", obj.volumeBindingMode, _MODES))
        self.check(obj, out)

    def check_change(self, new: StorageClass, old: StorageClass, out: list[Violation]) -> None:
        fixed = ("parameters", "provisioner", "reclaimPolicy")
        changed = [field for field in fixed if getattr(new, field) != getattr(old, field)]
        out.extend(forbidden(field, f"updates to {field} are forbidden.") for field in changed)
        if new.volumeBindingMode != old.volumeBindingMode:
            out.append(invalid("volumeBindingMode", new.volumeBindingMode, IMMUTABLE))


def _validate_parameters(parameters: Mapping[str, str], out: list[Violation]) -> None:
    if len(parameters) > MAX_PARAMETERS:
        out.append(too_long("parameters", MAX_PARAMETERS))
        return
    if "" in parameters:
        out.append(invalid("parameters", "", "field can not be empty."))
    if sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items()) > MAX_PARAMETERS_SIZE:
        out.append(too_long("parameters", MAX_PARAMETERS_SIZE))


def _validate_topologies(terms: Sequence[TopologySelectorTerm], out: list[Violation]) -> None:
    seen: set[frozenset[tuple[str, frozenset[str]]]] = set()
    for index, term in enumerate(terms):
        path = f"allowedTopologies[{index}].matchLabelExpressions"
        found: dict[str, frozenset[str]] = {}
        for number, requirement in enumerate(term.matchLabelExpressions):
            _validate_values(requirement.values, f"{path}[{number}].values", out)
            validate_key(requirement.key, f"{path}[{number}].key", out)
            if requirement.key in found:
                out.append(duplicate(f"{path}[{number}].key", requirement.key))
            found[requirement.key] = frozenset(requirement.values)
        meaning = frozenset(found.items())
        if meaning in seen:
            out.append(duplicate(path, ""))
        seen.add(meaning)


def _validate_values(values: Sequence[str], path: str, out: list[Violation]) -> None:
    if not values:
        out.append(required(path))
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            out.append(duplicate(f"{path}[{index}]", value))
        seen.add(value)
