"""The metrics of an autoscaler: the replicas that each asks for, its status, and the errors.

    Resource, ContainerResource    the usage that `kubectl top` shows: one list of metrics.k8s.io for each sync
    Pods, Object, External         no API serves them: they fail as in a Kubernetes cluster without an adapter

Source: pkg/controller/podautoscaler/horizontal.go of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api.autoscaling import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE
from pinnace.api.autoscaling_v2_pb2 import (
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
)
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.metrics_v1beta1_pb2 import PodMetrics
from pinnace.api.quantity import QuantityError, canonicalize_quantity, parse
from pinnace.client.client import Client
from pinnace.client.errors import ApiError
from pinnace.controllers.replicacalculator import (
    MetricError,
    PodUsage,
    ReplicaProposal,
    StartupDelays,
    Tolerances,
    group_pods,
    milli_value,
    propose_for_average,
    propose_for_utilization,
    requests_by_pod,
    usage_by_pod,
)

_NO_CUSTOM_METRICS = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
_REASONS: Mapping[str, str] = {
    RESOURCE: "FailedGetResourceMetric",
    CONTAINER_RESOURCE: "FailedGetContainerResourceMetric",
    PODS: "FailedGetPodsMetric",
    OBJECT: "FailedGetObjectMetric",
    EXTERNAL: "FailedGetExternalMetric",
}


class MetricResult(NamedTuple):
    """What one metric asks for. `error`: why it could not be computed, with the text of the event."""

    status: MetricStatus
    replicas: int = 0
    name: str = ""
    error: str = ""
    event: str = ""
    reason: str = ""
    """Of the event, and of the condition ScalingActive."""


def tolerances_of(autoscaler: HorizontalPodAutoscaler, default: float) -> Tolerances:
    behavior = autoscaler.spec.behavior
    down, up = (
        float(parse(rules.tolerance.string)) if rules.HasField("tolerance") else default
        for rules in (behavior.scaleDown, behavior.scaleUp)
    )
    return Tolerances(down, up)


class PodUsageReader:
    """Reads the usage of the pods of one sync, at most once."""

    def __init__(self, client: Client, namespace: str, labels: str) -> None:
        self._client = client
        self._namespace = namespace
        self._labels = labels
        self._items: Sequence[PodMetrics] | None = None

    async def read(self, resource: str, container: str) -> Mapping[str, PodUsage]:
        """Return the usage by name of the pod. `container`: of this container only. Raise MetricError."""
        prefix = f"unable to get metrics for resource {resource}"
        if self._items is None:
            try:
                self._items = (await self._client.usage.pods(self._namespace, labels=self._labels)).items
            except ApiError as error:
                text = f"unable to fetch metrics from resource metrics API: {error.message}"
                raise MetricError(f"{prefix}: {text}") from None
        if not self._items:
            raise MetricError(f"{prefix}: no metrics returned from resource metrics API")
        try:
            return usage_by_pod(self._items, resource, container)
        except MetricError as error:
            raise MetricError(f"{prefix}: failed to get container metrics: {error}") from None


class MetricContext(NamedTuple):
    """What the metrics of one sync have in common. `pods`: those of the target. `now`: Unix time."""

    namespace: str
    replicas: int
    """The present replicas of the target."""
    pods: Sequence[Pod]
    usage: PodUsageReader
    tolerances: Tolerances
    delays: StartupDelays
    now: float


async def compute_metric(metric: MetricSpec, context: MetricContext) -> MetricResult:
    """Compute one metric."""
    source: Any
    match metric.type:
        case "Resource":
            source, container = metric.resource, ""
            prefix = f"failed to get {source.name} resource metric value"
        case "ContainerResource":
            source, container = metric.containerResource, metric.containerResource.container
            prefix = f"failed to get {container} container metric value"
        case _:
            problem, text = describe_unserved_metric(metric, context.namespace)
            reason = _REASONS.get(metric.type, "InvalidMetricSourceType")
            return MetricResult(MetricStatus(), error=problem, event=text, reason=reason)
    try:
        proposal = await _propose_for_resource(source.name, container, source.target, context)
    except (MetricError, QuantityError) as error:
        text = str(error)
        return MetricResult(MetricStatus(), error=f"{prefix}: {text}", event=text, reason=_REASONS[metric.type])
    name = f"{source.name} resource"
    if proposal.utilization is not None:
        of_container = "container " if container else ""
        name = f"{source.name} {of_container}resource utilization (percentage of request)"
    return MetricResult(_metric_status(metric, proposal), proposal.replicas, name)


async def _propose_for_resource(resource: str, container: str, target: MetricTarget, context: MetricContext) -> ReplicaProposal:
    """Raise MetricError or QuantityError."""
    by_value = target.HasField("averageValue")
    if not by_value and not target.HasField("averageUtilization"):
        missing = "neither an average utilization target nor an average value (usage) target was set"
        raise MetricError(f"invalid resource metric source: {missing}")
    try:
        used = await context.usage.read(resource, container)
        if not context.pods:
            raise MetricError("no pods returned by selector while calculating replica count")
        groups = group_pods(context.pods, used, resource, context.delays, context.now)
        if by_value:
            value = milli_value(target.averageValue)
            return propose_for_average(context.replicas, value, used, groups, context.tolerances)
        if not used.keys() - groups.ignored - groups.unready:
            raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
        requests = requests_by_pod(context.pods, resource, container)
        utilization = target.averageUtilization
        return propose_for_utilization(context.replicas, utilization, used, groups, requests, context.tolerances)
    except MetricError as error:
        raise MetricError(f"failed to get {resource} {'usage' if by_value else 'utilization'}: {error}") from None


def describe_unserved_metric(metric: MetricSpec, namespace: str) -> tuple[str, str]:
    """Return the error of a metric that no API serves, and the text of its event."""
    match metric.type:
        case "Pods":
            text = f"unable to get metric {metric.pods.metric.name}: {_NO_CUSTOM_METRICS}"
            return f"failed to get pods metric value: {text}", text
        case "Object":
            source, about = metric.object, metric.object.describedObject
            text = f"unable to get metric {source.metric.name} on {about.kind} {namespace}/{about.name}: {_NO_CUSTOM_METRICS}"
            by_average = not source.target.HasField("value")
            failed = f"failed to get {source.metric.name} object metric: {text}" if by_average else text
            return f"failed to get object metric value: {failed}", text
        case "External":
            name = metric.external.metric.name
            selector = "nil" if not metric.external.metric.HasField("selector") else _format_selector_as_go(metric)
            missing = f"the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
            where = f"{namespace}/{name}/{selector}"
            text = f"unable to get external metric {where}: unable to fetch metrics from external metrics API: {missing}"
            if metric.external.target.HasField("averageValue"):
                return f"failed to get {name} external metric value: failed to get {name} external metric: {text}", text
            return f"failed to get {name} external metric value: failed to get external metric {name}: {text}", text
        case unknown:
            text = f'unknown metric source type "{unknown}"'
            return text, text


def _format_selector_as_go(metric: MetricSpec) -> str:
    """Return a label selector as Kubernetes prints it."""
    selector = metric.external.metric.selector
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.matchLabels.items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{item.key},Operator:{item.operator},Values:[{' '.join(item.values)}],}},"
        for item in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _metric_status(metric: MetricSpec, proposal: ReplicaProposal) -> MetricStatus:
    value = MetricValueStatus()
    value.averageValue.string = canonicalize_quantity(f"{proposal.average}m")
    if proposal.utilization is not None:
        value.averageUtilization = proposal.utilization
    status = MetricStatus(type=metric.type)
    if metric.type == CONTAINER_RESOURCE:
        status.containerResource.name = metric.containerResource.name
        status.containerResource.container = metric.containerResource.container
        status.containerResource.current.CopyFrom(value)
    else:
        status.resource.name = metric.resource.name
        status.resource.current.CopyFrom(value)
    return status
