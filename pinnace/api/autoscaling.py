"""Conversion of autoscalers between autoscaling/v2, in which they are stored, and autoscaling/v1.

    v2                                          v1
    spec.metrics: cpu in percent         <-->   spec.targetCPUUtilizationPercentage
    spec.metrics: others                 <-->   annotation autoscaling.alpha.kubernetes.io/metrics
    spec.behavior                        <-->   annotation .../behavior
    status.currentMetrics                <-->   annotation .../current-metrics
    status.conditions                    <-->   annotation .../conditions

The annotations exist in v1 only, and contain JSON in the forms that Kubernetes writes: metrics as in v2beta1, and the behavior
with the field names of Go. An annotation that cannot be read is dropped.

Source: pkg/apis/autoscaling/v1/conversion.go of Kubernetes 1.36.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from pinnace.api import autoscaling_v1_pb2 as v1
from pinnace.api import autoscaling_v2_pb2 as v2
from pinnace.api.codec import from_dict, to_dict

METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS = (
    f"autoscaling.alpha.kubernetes.io/{name}" for name in ("metrics", "behavior", "current-metrics", "conditions")
)
_ANNOTATIONS = (METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS)
RESOURCE, CONTAINER_RESOURCE, PODS, OBJECT, EXTERNAL = METRIC_TYPES = (
    "Resource", "ContainerResource", "Pods", "Object", "External",
)  # fmt: skip
"""The values of MetricSpec.type."""
CPU = "cpu"
DEFAULT_CPU_UTILIZATION = 80
_SPEC_PATHS: Mapping[str, Mapping[str, str]] = {
    "object": {
        "target": "describedObject",
        "metricName": "metric.name",
        "targetValue": "target.value",
        "selector": "metric.selector",
        "averageValue": "target.averageValue",
    },
    "pods": {"metricName": "metric.name", "targetAverageValue": "target.averageValue", "selector": "metric.selector"},
    "resource": {
        "name": "name",
        "targetAverageUtilization": "target.averageUtilization",
        "targetAverageValue": "target.averageValue",
    },
    "containerResource": {
        "name": "name",
        "targetAverageUtilization": "target.averageUtilization",
        "targetAverageValue": "target.averageValue",
        "container": "container",
    },
    "external": {
        "metricName": "metric.name",
        "metricSelector": "metric.selector",
        "targetValue": "target.value",
        "targetAverageValue": "target.averageValue",
    },
}
"""The fields of a metric in v2beta1, with their paths in v2, by the field of MetricSpec."""
_STATUS_PATHS: Mapping[str, Mapping[str, str]] = {
    "object": {
        "target": "describedObject",
        "metricName": "metric.name",
        "currentValue": "current.value",
        "selector": "metric.selector",
        "averageValue": "current.averageValue",
    },
    "pods": {"metricName": "metric.name", "currentAverageValue": "current.averageValue", "selector": "metric.selector"},
    "resource": {
        "name": "name",
        "currentAverageUtilization": "current.averageUtilization",
        "currentAverageValue": "current.averageValue",
    },
    "containerResource": {
        "name": "name",
        "currentAverageUtilization": "current.averageUtilization",
        "currentAverageValue": "current.averageValue",
        "container": "container",
    },
    "external": {
        "metricName": "metric.name",
        "metricSelector": "metric.selector",
        "currentValue": "current.value",
        "currentAverageValue": "current.averageValue",
    },
}
"""The same for MetricStatus."""
_ALWAYS = frozenset({"targetValue", "currentValue", "currentAverageValue"})
"""Quantities that v2beta1 writes even if they are absent, as 0."""
_GO_NAMES = {
    name: f"{name[0].upper()}{name[1:]}"
    for name in (
        "scaleUp", "scaleDown", "stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance", "type", "value",
        "periodSeconds",
    )
}  # fmt: skip
_JSON_NAMES = {name: key for key, name in _GO_NAMES.items()}


def to_v1(obj: v2.HorizontalPodAutoscaler) -> v1.HorizontalPodAutoscaler:
    """Return the form of autoscaling/v1."""
    result = v1.HorizontalPodAutoscaler(metadata=obj.metadata)
    spec, status = obj.spec, obj.status
    result.spec.scaleTargetRef.MergeFromString(spec.scaleTargetRef.SerializeToString())
    if spec.HasField("minReplicas"):
        result.spec.minReplicas = spec.minReplicas
    result.spec.maxReplicas = spec.maxReplicas
    cpu = next((metric for metric in spec.metrics if _is_cpu(metric)), None)
    if cpu is not None and _is_cpu_utilization(cpu):
        result.spec.targetCPUUtilizationPercentage = cpu.resource.target.averageUtilization
    others = [metric for metric in spec.metrics if not _is_cpu_utilization(metric)]
    parts: Mapping[str, Any] = {
        METRICS: [_old_metric(metric, _SPEC_PATHS) for metric in others],
        CURRENT_METRICS: [_old_metric(metric, _STATUS_PATHS) for metric in status.currentMetrics],
        CONDITIONS: [_condition(condition) for condition in status.conditions],
        BEHAVIOR: _renamed(to_dict(spec.behavior), _GO_NAMES) if spec.HasField("behavior") else None,
    }
    _drop_annotations(result)
    for name, part in parts.items():
        if part:
            result.metadata.annotations[name] = json.dumps(part, separators=(",", ":"))
    if obj.HasField("status"):
        _write_status(status, result.status)
    return result


def to_v2(obj: v1.HorizontalPodAutoscaler) -> v2.HorizontalPodAutoscaler:
    """Return the form of autoscaling/v2. Without any metric, the metric is cpu at 80 %."""
    result = v2.HorizontalPodAutoscaler(metadata=obj.metadata)
    spec, annotations = obj.spec, dict(obj.metadata.annotations)
    _drop_annotations(result)
    result.spec.scaleTargetRef.MergeFromString(spec.scaleTargetRef.SerializeToString())
    if spec.HasField("minReplicas"):
        result.spec.minReplicas = spec.minReplicas
    result.spec.maxReplicas = spec.maxReplicas
    others = _read_annotation(annotations.get(METRICS), lambda item: _new_metric(item, _SPEC_PATHS, v2.MetricSpec))
    result.spec.metrics.extend(others)
    if spec.HasField("targetCPUUtilizationPercentage"):
        result.spec.metrics.append(cpu_metric(spec.targetCPUUtilizationPercentage))
    if not result.spec.metrics:
        result.spec.metrics.append(cpu_metric(DEFAULT_CPU_UTILIZATION))
    behaviors = _read_annotation(
        f"[{annotations[BEHAVIOR]}]" if BEHAVIOR in annotations else None,
        lambda item: from_dict(v2.HorizontalPodAutoscalerBehavior, _renamed(item, _JSON_NAMES)),
    )
    if behaviors:
        result.spec.behavior.CopyFrom(behaviors[0])
    if obj.HasField("status"):
        _read_status(obj.status, annotations, result.status)
    return result


def cpu_metric(utilization: int) -> v2.MetricSpec:
    """Return the metric of cpu in percent of the requests."""
    target = v2.MetricTarget(type="Utilization", averageUtilization=utilization)
    return v2.MetricSpec(type=RESOURCE, resource=v2.ResourceMetricSource(name=CPU, target=target))


def _write_status(status: v2.HorizontalPodAutoscalerStatus, result: v1.HorizontalPodAutoscalerStatus) -> None:
    result.SetInParent()
    if status.HasField("observedGeneration"):
        result.observedGeneration = status.observedGeneration
    if status.HasField("lastScaleTime"):
        result.lastScaleTime.CopyFrom(status.lastScaleTime)
    result.currentReplicas, result.desiredReplicas = status.currentReplicas, status.desiredReplicas
    for metric in status.currentMetrics:
        if _is_cpu(metric) and metric.resource.current.HasField("averageUtilization"):
            result.currentCPUUtilizationPercentage = metric.resource.current.averageUtilization


def _read_status(
    status: v1.HorizontalPodAutoscalerStatus, annotations: Mapping[str, str], result: v2.HorizontalPodAutoscalerStatus
) -> None:
    result.SetInParent()
    if status.HasField("observedGeneration"):
        result.observedGeneration = status.observedGeneration
    if status.HasField("lastScaleTime"):
        result.lastScaleTime.CopyFrom(status.lastScaleTime)
    result.currentReplicas, result.desiredReplicas = status.currentReplicas, status.desiredReplicas
    current = _read_annotation(annotations.get(CURRENT_METRICS), lambda item: _new_metric(item, _STATUS_PATHS, v2.MetricStatus))
    if not current and status.HasField("currentCPUUtilizationPercentage"):
        value = v2.MetricValueStatus(averageUtilization=status.currentCPUUtilizationPercentage)
        current = [v2.MetricStatus(type=RESOURCE, resource=v2.ResourceMetricStatus(name=CPU, current=value))]
    result.currentMetrics.extend(current)
    result.conditions.extend(
        _read_annotation(annotations.get(CONDITIONS), lambda item: from_dict(v2.HorizontalPodAutoscalerCondition, item))
    )


def _is_cpu(metric: v2.MetricSpec | v2.MetricStatus) -> bool:
    return metric.type == RESOURCE and metric.HasField("resource") and metric.resource.name == CPU


def _is_cpu_utilization(metric: v2.MetricSpec) -> bool:
    return _is_cpu(metric) and metric.resource.target.HasField("averageUtilization")


def _drop_annotations(obj: Any) -> None:
    for name in _ANNOTATIONS:
        obj.metadata.annotations.pop(name, None)


def drop_status_annotations(obj: v1.HorizontalPodAutoscaler) -> None:
    for name in (CURRENT_METRICS, CONDITIONS):
        obj.metadata.annotations.pop(name, None)


def _condition(condition: v2.HorizontalPodAutoscalerCondition) -> dict[str, Any]:
    form = to_dict(condition)
    names = ("type", "status", "lastTransitionTime", "reason", "message")
    return {name: form.get(name) for name in names if name in form or name == "lastTransitionTime"}


def _old_metric(metric: Message, paths: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return a metric in the form of v2beta1."""
    form = to_dict(metric)
    result: dict[str, Any] = {"type": form.get("type", "")}
    for source, names in paths.items():
        if source in form:
            values = {name: _value_at(form[source], path) for name, path in names.items()}
            result[source] = {
                name: "0" if value is None else value for name, value in values.items() if value is not None or name in _ALWAYS
            }
            if source == "external" and "currentValue" not in names and values["targetValue"] is None:
                del result[source]["targetValue"]
    return result


def _value_at(form: Any, path: str) -> Any:
    for step in path.split("."):
        form = form.get(step) if isinstance(form, dict) else None
    return form


def _new_metric(old: Any, paths: Mapping[str, Mapping[str, str]], message: Callable[[], Any]) -> Any:
    """Decode a metric in the form of v2beta1. Raises CodecError, or AttributeError if it is no object."""
    form: dict[str, Any] = {"type": old.get("type", "")}
    for source, names in paths.items():
        if not isinstance(fields := old.get(source), dict):
            continue
        part: dict[str, Any] = {}
        for name, path in names.items():
            if fields.get(name) is not None and not (name == "targetValue" and "averageValue" in fields):
                first, _, last = path.partition(".")
                if last:
                    part.setdefault(first, {})[last] = fields[name]
                else:
                    part[first] = fields[name]
        if "target" in part:
            part["target"]["type"] = _target_type(part["target"])
        form[source] = part
    return from_dict(type(message()), form)


def _target_type(target: Mapping[str, Any]) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    return "AverageValue" if "averageValue" in target else "Value"


def _read_annotation(text: str | None, read: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a list in JSON; none if the text is not valid."""
    try:
        items = json.loads(text) if text else []
        return [read(item) for item in items] if isinstance(items, list) else []
    except (ValueError, AttributeError, TypeError):  # CodecError is a ValueError
        return []


def _renamed(form: Any, names: Mapping[str, str]) -> Any:
    """Return a copy with other names of fields. A null field is dropped."""
    if isinstance(form, dict):
        return {names.get(key, key): _renamed(value, names) for key, value in form.items() if value is not None}
    return [_renamed(item, names) for item in form] if isinstance(form, list) else form
