"""The strategy of daemon sets.

The annotation deprecated.daemonset.template.generation counts the templates. Clients may set it when they create a daemon set;
later only the server changes it.

Source: pkg/apis/apps/validation, pkg/apis/apps/v1/defaults.go and conversion.go, and pkg/registry/apps/daemonset of Kubernetes
1.36.
"""

from collections.abc import Iterable

from pinnace.api.apps_v1_pb2 import DaemonSet, DaemonSetUpdateStrategy
from pinnace.api.integers import parse_integer
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.scalars import int_or_string
from pinnace.api.status import Violation
from pinnace.api.wellknown import TEMPLATE_GENERATION_ANNOTATION
from pinnace.apiserver.registry.strategies.pods import set_template_defaults
from pinnace.apiserver.registry.strategies.workloads import (
    DEFAULT_REVISION_HISTORY,
    validate_selection,
    validate_selector_update,
    validate_template,
    workload_warnings,
)
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.fields import (
    FULL_PERCENT,
    forbidden,
    invalid,
    is_zero_bound,
    not_negative,
    required,
    unsupported,
    validate_bound,
)

DEFAULT_MAX_UNAVAILABLE, DEFAULT_MAX_SURGE = 1, 0
_UPDATE_STRATEGIES = ("RollingUpdate", "OnDelete")
_STATUS_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
    "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip
_TEMPLATE_PATH = "spec.template.spec"


class DaemonSetStrategy(StatusStrategy[DaemonSet]):
    has_generation = True

    def set_defaults(self, obj: DaemonSet) -> None:
        spec = obj.spec
        set_template_defaults(spec.template.spec)
        strategy = spec.updateStrategy
        strategy.type = strategy.type or "RollingUpdate"
        if strategy.type == "RollingUpdate":
            for field, number in (("maxUnavailable", DEFAULT_MAX_UNAVAILABLE), ("maxSurge", DEFAULT_MAX_SURGE)):
                if not strategy.rollingUpdate.HasField(field):
                    getattr(strategy.rollingUpdate, field).CopyFrom(IntOrString(intVal=number))
        if not spec.HasField("revisionHistoryLimit"):
            spec.revisionHistoryLimit = DEFAULT_REVISION_HISTORY

    def prepare_create(self, obj: DaemonSet) -> None:
        super().prepare_create(obj)
        _set_template_generation(obj, max(1, template_generation(obj)))

    def prepare_update(self, obj: DaemonSet, old: DaemonSet) -> None:
        super().prepare_update(obj, old)
        _set_template_generation(obj, template_generation(old) + (obj.spec.template != old.spec.template))

    def check_fields(self, obj: DaemonSet, out: list[Violation]) -> None:
        spec = obj.spec
        validate_selection(spec, out, missing=None, unusable=None)
        if spec.HasField("selector") and not (spec.selector.matchLabels or spec.selector.matchExpressions):
            out.append(invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
        validate_template(spec.template, out)
        if spec.template.spec.restartPolicy != "Always":
            out.append(unsupported(f"{_TEMPLATE_PATH}.restartPolicy", spec.template.spec.restartPolicy, ("Always",)))
        if spec.template.spec.HasField("activeDeadlineSeconds"):
            detail = "activeDeadlineSeconds in DaemonSet is not Supported"
            out.append(forbidden(f"{_TEMPLATE_PATH}.activeDeadlineSeconds", detail))
        not_negative(spec, "spec", ("minReadySeconds",), out)
        _validate_update_strategy(spec.updateStrategy, out)
        not_negative(spec, "spec", ("revisionHistoryLimit",), out)

    def warnings(self, obj: DaemonSet) -> Iterable[str]:
        return workload_warnings(obj.metadata.name, obj.spec.template)

    def check_change(self, new: DaemonSet, old: DaemonSet, out: list[Violation]) -> None:
        validate_selector_update(new.spec, old.spec, out)

    def check_status(self, obj: DaemonSet, out: list[Violation]) -> None:
        not_negative(obj.status, "status", _STATUS_COUNTS, out)

    def check_status_change(self, new: DaemonSet, old: DaemonSet, out: list[Violation]) -> None:
        if new.status.collisionCount < old.status.collisionCount:
            out.append(invalid("status.collisionCount", new.status.collisionCount, "cannot be decremented"))


def template_generation(daemon_set: DaemonSet) -> int:
    """Return the number of the template, or 0 if the annotation is missing or invalid."""
    return parse_integer(daemon_set.metadata.annotations.get(TEMPLATE_GENERATION_ANNOTATION, "")) or 0


def _set_template_generation(daemon_set: DaemonSet, number: int) -> None:
    daemon_set.metadata.annotations[TEMPLATE_GENERATION_ANNOTATION] = str(number)


def _validate_update_strategy(strategy: DaemonSetUpdateStrategy, out: list[Violation]) -> None:
    path = "spec.updateStrategy"
    if strategy.type not in _UPDATE_STRATEGIES:
        rolling = strategy.rollingUpdate
        bounds = {"MaxUnavailable": int_or_string(rolling.maxUnavailable), "MaxSurge": int_or_string(rolling.maxSurge)}
        shown = bounds if strategy.HasField("rollingUpdate") else None  # Kubernetes shows the fields of its Go structures
        out.append(unsupported(path, {"Type": strategy.type, "RollingUpdate": shown}, _UPDATE_STRATEGIES))
    elif strategy.type == "RollingUpdate":
        rolling, path = strategy.rollingUpdate, f"{path}.rollingUpdate"
        validate_bound(rolling.maxUnavailable, f"{path}.maxUnavailable", out, most=FULL_PERCENT)
        validate_bound(rolling.maxSurge, f"{path}.maxSurge", out, most=FULL_PERCENT)
        has_unavailable, has_surge = not is_zero_bound(rolling.maxUnavailable), not is_zero_bound(rolling.maxSurge)
        if has_unavailable and has_surge:
            detail = "may not be set when maxUnavailable is non-zero"
            out.append(invalid(f"{path}.maxSurge", int_or_string(rolling.maxSurge), detail))
        elif not has_unavailable and not has_surge:
            out.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
