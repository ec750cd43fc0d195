"""The strategy of horizontal pod autoscalers.

Source: pkg/apis/autoscaling/validation and pkg/apis/autoscaling/v2/defaults.go of Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.api import names, quantity
from pinnace.api.autoscaling import (
    CONTAINER_RESOURCE,
    DEFAULT_CPU_UTILIZATION,
    EXTERNAL,
    METRIC_TYPES,
    OBJECT,
    PODS,
    RESOURCE,
    cpu_metric,
)
from pinnace.api.autoscaling_v2_pb2 import (
    ContainerResourceMetricSource,
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    PodsMetricSource,
    ResourceMetricSource,
)
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.status import Violation
from pinnace.apiserver.registry.strategy import StatusStrategy
from pinnace.apiserver.registry.validation.fields import (
    NEGATIVE,
    NOT_POSITIVE,
    container_resource_problems,
    forbidden,
    invalid,
    required,
    unsupported,
    validate_selector,
)

MAX_WINDOW = 3600
"""Maximum stabilization window in seconds."""
MAX_PERIOD = 1800
"""Maximum period of a policy in seconds."""
MAX_PARTS = 100
"""Maximum number of metrics, and of policies of a direction. Kubernetes has no such limit; each metric is computed in each
sync."""
_SELECT_POLICIES = ("Disabled", "Max", "Min")
_POLICY_TYPES = ("Percent", "Pods")
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_SCALE_UP = HPAScalingRules(
    stabilizationWindowSeconds=0,
    selectPolicy="Max",
    policies=[
        HPAScalingPolicy(type="Pods", value=4, periodSeconds=15),
        HPAScalingPolicy(type="Percent", value=100, periodSeconds=15),
    ],
)
_SCALE_DOWN = HPAScalingRules(selectPolicy="Max", policies=[HPAScalingPolicy(type="Percent", value=100, periodSeconds=15)])
_FIELDS: Mapping[str, str] = {
    OBJECT: "object", PODS: "pods", RESOURCE: "resource", CONTAINER_RESOURCE: "containerResource", EXTERNAL: "external",
}  # fmt: skip
"""The field of MetricSpec by type."""
Violations = list[Violation]


class HorizontalPodAutoscalerStrategy(StatusStrategy[HorizontalPodAutoscaler]):
    check_name = staticmethod(names.dns_subdomain)

    def set_defaults(self, obj: HorizontalPodAutoscaler) -> None:
        spec = obj.spec
        if not spec.HasField("minReplicas"):
            spec.minReplicas = 1
        if not spec.metrics:
            spec.metrics.append(cpu_metric(DEFAULT_CPU_UTILIZATION))
        if spec.HasField("behavior"):
            _set_rules(spec.behavior.scaleUp, _SCALE_UP)
            _set_rules(spec.behavior.scaleDown, _SCALE_DOWN)

    def check_fields(self, obj: HorizontalPodAutoscaler, out: Violations) -> None:
        spec = obj.spec
        least = spec.minReplicas if spec.HasField("minReplicas") else 1
        if least < 1:
            out.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
        if spec.maxReplicas < 1:
            out.append(invalid("spec.maxReplicas", spec.maxReplicas, "must be greater than 0"))
        if spec.maxReplicas < least:
            out.append(invalid("spec.maxReplicas", spec.maxReplicas, "must be greater than or equal to `minReplicas`"))
        _validate_reference(spec.scaleTargetRef, "spec.scaleTargetRef", out)
        if len(spec.metrics) > MAX_PARTS:
            out.append(Violation("spec.metrics", f"Too many: {len(spec.metrics)}: must have at most {MAX_PARTS} items"))
            return
        for index, metric in enumerate(spec.metrics):
            _validate_metric(metric, f"spec.metrics[{index}]", out)
        if spec.HasField("behavior"):
            for name in ("scaleUp", "scaleDown"):
                if spec.behavior.HasField(name):
                    _validate_rules(getattr(spec.behavior, name), f"spec.behavior.{name}", out)

    def check_new(self, obj: HorizontalPodAutoscaler, out: Violations) -> None:
        super().check_new(obj, out)
        _validate_target_version(obj.spec.scaleTargetRef, out)

    def check_change(self, new: HorizontalPodAutoscaler, old: HorizontalPodAutoscaler, out: Violations) -> None:
        after, before = new.spec.scaleTargetRef, old.spec.scaleTargetRef
        if (after.apiVersion, after.kind) != (before.apiVersion, before.kind):
            _validate_target_version(after, out)

    def check_status(self, obj: HorizontalPodAutoscaler, out: Violations) -> None:
        status = obj.status
        if status.currentReplicas < 0:
            out.append(invalid("status.currentReplicas", status.currentReplicas, NEGATIVE))
        if status.desiredReplicas < 0:
            out.append(invalid("status.desiredReplicas", status.desiredReplicas, NEGATIVE))


def _set_rules(rules: HPAScalingRules, default: HPAScalingRules) -> None:
    """Set the defaults. The stabilization window of scaleDown has none: it is an option of the controllers."""
    if not rules.HasField("selectPolicy"):
        rules.selectPolicy = default.selectPolicy
    if not rules.policies:
        rules.policies.extend(default.policies)
    if not rules.HasField("stabilizationWindowSeconds") and default.HasField("stabilizationWindowSeconds"):
        rules.stabilizationWindowSeconds = default.stabilizationWindowSeconds


def _validate_reference(reference: CrossVersionObjectReference, path: str, out: Violations) -> None:
    for field, value in (("kind", reference.kind), ("name", reference.name)):
        if not value:
            out.append(required(f"{path}.{field}"))
        else:
            out.extend(invalid(f"{path}.{field}", value, problem) for problem in names.path_segment(value))


def _validate_target_version(reference: CrossVersionObjectReference, out: Violations) -> None:
    """Check the API version of a new target. Only ReplicationControllers are in the core group."""
    _validate_version(reference, "spec.scaleTargetRef", out, core=reference.kind == "ReplicationController")


def _validate_version(reference: CrossVersionObjectReference, path: str, out: Violations, *, core: bool) -> None:
    version, field = reference.apiVersion, f"{path}.apiVersion"
    group = version.rpartition("/")[0]
    if version.count("/") > 1:
        out.append(invalid(field, version, f"unexpected GroupVersion string: {version}"))
    elif not group and not core:
        out.append(invalid(field, version, "apiVersion must specify API group"))


def _validate_metric(metric: MetricSpec, path: str, out: Violations) -> None:
    """Check a metric. As in Kubernetes, a type that does not exist is reported twice."""
    known = metric.type in METRIC_TYPES
    if not metric.type:
        out.append(required(f"{path}.type", "must specify a metric source type"))
    if not known:
        out.append(unsupported(f"{path}.type", metric.type, sorted(METRIC_TYPES)))
    present = [field for field in _VALIDATORS if metric.HasField(field)]
    for field in present[:1]:
        _VALIDATORS[field](getattr(metric, field), f"{path}.{field}", out)
    wanted = _FIELDS.get(metric.type, "")
    if not known:
        out.append(unsupported(f"{path}.type", metric.type, sorted(METRIC_TYPES)))
    elif wanted not in present:
        out.append(required(f"{path}.{wanted}", "must populate information for the given metric source"))
    if len(present) != 1:
        others = [field for field in present if field != wanted]
        out.extend(forbidden(f"{path}.{field}", "must populate the given metric source only") for field in others)


def _validate_object(source: ObjectMetricSource, path: str, out: Violations) -> None:
    _validate_reference(source.describedObject, f"{path}.describedObject", out)
    _validate_version(source.describedObject, f"{path}.describedObject", out, core=True)
    _validate_identifier(source.metric, f"{path}.metric", out)
    _validate_target(source.target, f"{path}.target", out)
    if not source.target.HasField("value") and not source.target.HasField("averageValue"):
        out.append(required(f"{path}.target.averageValue", "must set either a target value or averageValue"))


def _validate_external(source: ExternalMetricSource, path: str, out: Violations) -> None:
    _validate_identifier(source.metric, f"{path}.metric", out)
    _validate_target(source.target, f"{path}.target", out)
    single, average = source.target.HasField("value"), source.target.HasField("averageValue")
    if not single and not average:
        detail = "must set either a target value for metric or a per-pod target"
        out.append(required(f"{path}.target.averageValue", detail))
    if single and average:
        detail = "may not set both a target value for metric and a per-pod target"
        out.append(forbidden(f"{path}.target.value", detail))


def _validate_pods(source: PodsMetricSource, path: str, out: Violations) -> None:
    _validate_identifier(source.metric, f"{path}.metric", out)
    _validate_target(source.target, f"{path}.target", out)
    if not source.target.HasField("averageValue"):
        out.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))


def _validate_resource(source: ResourceMetricSource, path: str, out: Violations) -> None:
    if not source.name:
        out.append(required(f"{path}.name", "must specify a resource name"))
    _validate_resource_target(source.target, f"{path}.target", out)


def _validate_container_resource(source: ContainerResourceMetricSource, path: str, out: Violations) -> None:
    if not source.name:
        out.append(required(f"{path}.name", "must specify a resource name"))
    else:
        problems = container_resource_problems(source.name)
        out.extend(invalid(f"{path}.name", source.name, problem) for problem in problems)
    if not source.container:
        out.append(required(f"{path}.container", "must specify a container"))
    else:
        problems = names.dns_label(source.container)
        out.extend(invalid(f"{path}.container", source.container, problem) for problem in problems)
    _validate_resource_target(source.target, f"{path}.target", out)


def _validate_resource_target(target: MetricTarget, path: str, out: Violations) -> None:
    _validate_target(target, path, out)
    utilization, value = target.HasField("averageUtilization"), target.HasField("averageValue")
    if not utilization and not value:
        detail = "must set either a target raw value or a target utilization"
        out.append(required(f"{path}.averageUtilization", detail))
    if utilization and value:
        detail = "may not set both a target raw value and a target utilization"
        out.append(forbidden(f"{path}.averageValue", detail))


_VALIDATORS: Mapping[str, Callable[[Any, str, Violations], None]] = {
    "object": _validate_object,
    "external": _validate_external,
    "pods": _validate_pods,
    "resource": _validate_resource,
    "containerResource": _validate_container_resource,
}
"""By field of MetricSpec, in Kubernetes' order: only the first source is checked."""


def _validate_target(target: MetricTarget, path: str, out: Violations) -> None:
    if not target.type:
        out.append(required(f"{path}.type", "must specify a metric target type"))
    if target.type not in _TARGET_TYPES:
        out.append(invalid(f"{path}.type", target.type, "must be either Utilization, Value, or AverageValue"))
    for field in ("value", "averageValue"):
        if target.HasField(field):
            _validate_positive(getattr(target, field), f"{path}.{field}", out)
    if target.HasField("averageUtilization") and target.averageUtilization < 1:
        out.append(invalid(f"{path}.averageUtilization", target.averageUtilization, "must be greater than 0"))


def _validate_positive(value: Quantity, path: str, out: Violations) -> None:
    try:
        positive = quantity.parse(value.string) > 0
    except quantity.QuantityError as error:
        out.append(invalid(path, value.string, str(error)))
        return
    if not positive:
        out.append(invalid(path, value.string, "must be positive"))


def _validate_identifier(metric: MetricIdentifier, path: str, out: Violations) -> None:
    if not metric.name:
        out.append(required(f"{path}.name", "must specify a metric name"))
    else:
        out.extend(invalid(f"{path}.name", metric.name, problem) for problem in names.path_segment(metric.name))
    if metric.HasField("selector"):
        validate_selector(metric.selector, f"{path}.selector", out)


def _validate_rules(rules: HPAScalingRules, path: str, out: Violations) -> None:
    window = rules.stabilizationWindowSeconds
    if window < 0:
        out.append(invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"))
    if window > MAX_WINDOW:
        detail = f"must be less than or equal to {MAX_WINDOW}"
        out.append(invalid(f"{path}.stabilizationWindowSeconds", window, detail))
    if rules.HasField("selectPolicy") and rules.selectPolicy not in _SELECT_POLICIES:
        out.append(unsupported(f"{path}.selectPolicy", rules.selectPolicy, _SELECT_POLICIES))
    if not rules.policies:
        out.append(required(f"{path}.policies", "must specify at least one Policy"))
    if len(rules.policies) > MAX_PARTS:
        out.append(Violation(f"{path}.policies", f"Too many: {len(rules.policies)}: must have at most {MAX_PARTS} items"))
        return
    for index, policy in enumerate(rules.policies):
        _validate_policy(policy, f"{path}.policies[{index}]", out)
    if rules.HasField("tolerance"):
        _validate_tolerance(rules.tolerance, f"{path}.tolerance", out)


def _validate_tolerance(tolerance: Quantity, path: str, out: Violations) -> None:
    try:
        if quantity.parse(tolerance.string) < 0:
            out.append(invalid(path, tolerance.string, NEGATIVE))
    except quantity.QuantityError as error:
        out.append(invalid(path, tolerance.string, str(error)))


def _validate_policy(policy: HPAScalingPolicy, path: str, out: Violations) -> None:
    if policy.type not in _POLICY_TYPES:
        out.append(unsupported(f"{path}.type", policy.type, _POLICY_TYPES))
    if policy.value <= 0:
        out.append(invalid(f"{path}.value", policy.value, NOT_POSITIVE))
    if policy.periodSeconds <= 0:
        out.append(invalid(f"{path}.periodSeconds", policy.periodSeconds, NOT_POSITIVE))
    if policy.periodSeconds > MAX_PERIOD:
        out.append(invalid(f"{path}.periodSeconds", policy.periodSeconds, f"must be less than or equal to {MAX_PERIOD}"))
