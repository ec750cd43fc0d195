"""The table of horizontal pod autoscalers.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from typing import Any

from pinnace.api import autoscaling_v1_pb2 as v1
from pinnace.api.autoscaling import to_v2
from pinnace.api.autoscaling_v2_pb2 import HorizontalPodAutoscaler, MetricSpec, MetricStatus
from pinnace.printers.columns import NONE, Columns, format_age

_SHOWN = 2
UNKNOWN = "<unknown>"
_SOURCES = ("external", "pods", "object", "resource", "containerResource")


def autoscaler_row(autoscaler: HorizontalPodAutoscaler | v1.HorizontalPodAutoscaler, now: float) -> tuple[str, ...]:
    if isinstance(autoscaler, v1.HorizontalPodAutoscaler):
        autoscaler = to_v2(autoscaler)
    spec = autoscaler.spec
    return (
        autoscaler.metadata.name,
        f"{spec.scaleTargetRef.kind}/{spec.scaleTargetRef.name}",
        format_metrics(autoscaler),
        str(spec.minReplicas) if spec.HasField("minReplicas") else "<unset>",
        str(spec.maxReplicas),
        str(autoscaler.status.currentReplicas),
        format_age(autoscaler.metadata.creationTimestamp, now),
    )


HORIZONTAL_POD_AUTOSCALERS = Columns(
    headers=("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"), wide=(), row=autoscaler_row
)


def format_metrics(autoscaler: HorizontalPodAutoscaler) -> str:
    """ "cpu: 42%/80%, memory: 1Gi/2Gi + 1 more..."."""
    statuses = autoscaler.status.currentMetrics
    texts = [
        _format_metric(metric, statuses[index] if index < len(statuses) else MetricStatus())
        for index, metric in enumerate(autoscaler.spec.metrics)
    ]
    shown = ", ".join(texts[:_SHOWN]) or NONE
    return f"{shown} + {len(texts) - _SHOWN} more..." if len(texts) > _SHOWN else shown


def _format_metric(metric: MetricSpec, status: MetricStatus) -> str:
    name = next((source for source in _SOURCES if f"{metric.type[:1].lower()}{metric.type[1:]}" == source), "")
    if not name:
        return "<unknown type>"
    source: Any = getattr(metric, name)
    current: Any = getattr(status, name).current
    target = source.target
    prefix = f"{source.name}: " if name in ("resource", "containerResource") else ""
    if target.HasField("averageValue"):
        shown = current.averageValue.string if current.HasField("averageValue") else UNKNOWN
        suffix = " (avg)" if name in ("external", "object") else ""
        return f"{prefix}{shown}/{target.averageValue.string}{suffix}"
    if prefix:
        shown = f"{current.averageUtilization}%" if current.HasField("averageUtilization") else UNKNOWN
        return f"{prefix}{shown}/{f'{target.averageUtilization}%' if target.HasField('averageUtilization') else '<auto>'}"
    return f"{current.value.string if current.HasField('value') else UNKNOWN}/{target.value.string}"
