"""One sync of an autoscaler: what it writes, and what it tells."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.autoscaling import cpu_metric
from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.autoscaling_v2_pb2 import HorizontalPodAutoscaler, MetricSpec
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.metrics_v1beta1_pb2 import PodMetrics, PodMetricsList
from pinnace.api.resources import DEPLOYMENTS, HORIZONTAL_POD_AUTOSCALERS, Resource
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import ADDED, MODIFIED
from pinnace.client.errors import ApiError, Conflict, NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.autoscalermetrics import describe_unserved_metric
from pinnace.controllers.horizontalpodautoscaler import AutoscalerOptions, HorizontalPodAutoscalerController
from pinnace.controllers.informers import LabelIndex, select_all
from tests.clock import FakeClock

KEY = "default/web"
OPTIONS = AutoscalerOptions()
UNAVAILABLE = ApiError(Refusal(Code.UNAVAILABLE, "Unavailable", "no API server responded"))


class World:
    """A deployment with two pods that request one core each, and the API server."""

    def __init__(self, **spec: Any) -> None:
        self.clock = FakeClock()
        self.autoscaler = self.new_autoscaler("web")
        for name, value in spec.items():
            setattr(self.autoscaler.spec, name, value)
        self.scale = Scale()
        self.scale.metadata.name, self.scale.metadata.namespace = "web", "default"
        self.scale.spec.replicas, self.scale.status.selector = 2, "app=web"
        self.usage: dict[str, str] = {"a": "100m", "b": "100m"}
        self.errors: list[ApiError] = []
        """Of the next changes of the scale."""
        self.events: list[tuple[str, str, str]] = []
        self.lists = 0
        self.stored: dict[str, HorizontalPodAutoscaler] = {KEY: self.autoscaler}
        index = LabelIndex(select_all, [self._pod(name) for name in self.usage])
        informers = SimpleNamespace(
            store=lambda resource: self.stored,
            labelled=lambda resource: index,
            wait_for=self.wait_for,
            custom=SimpleNamespace(by_kind=lambda kind, api_version: None),
        )
        client = SimpleNamespace(of=self._of, usage=SimpleNamespace(pods=self._usage))
        shared: Any = SimpleNamespace(clock=self.clock, informers=informers, client=client, events=self)
        self.controller = HorizontalPodAutoscalerController(shared, OPTIONS)

    def new_autoscaler(self, name: str) -> HorizontalPodAutoscaler:
        made = HorizontalPodAutoscaler()
        made.metadata.name, made.metadata.namespace, made.metadata.uid = name, "default", f"uid-{name}"
        target = made.spec.scaleTargetRef
        target.kind, target.name, target.apiVersion = "Deployment", "web", "apps/v1"
        made.spec.minReplicas, made.spec.maxReplicas = 1, 10
        made.spec.metrics.append(cpu_metric(50))
        return made

    def _pod(self, name: str) -> Pod:
        pod = Pod()
        pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, "default", name
        pod.metadata.labels["app"] = "web"
        pod.spec.containers.add(name="main").resources.requests["cpu"].string = "1"
        pod.status.phase = "Running"
        pod.status.startTime.seconds = 1
        pod.status.conditions.add(type="Ready", status="True").lastTransitionTime.seconds = 1
        return pod

    def _of(self, resource: Resource[Any]) -> Any:
        if resource is HORIZONTAL_POD_AUTOSCALERS:
            return SimpleNamespace(update_status=self._update_status)
        assert resource is DEPLOYMENTS
        return SimpleNamespace(get_scale=self._get_scale, update_scale=self._update_scale)

    async def _get_scale(self, name: str, namespace: str) -> Scale:
        if (name, namespace) != ("web", "default"):
            raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", "no such deployment"))
        scale = Scale()
        scale.CopyFrom(self.scale)
        return scale

    async def _update_scale(self, scale: Scale) -> Scale:
        if self.errors:
            raise self.errors.pop(0)
        self.scale.CopyFrom(scale)
        return scale

    async def wait_for(self, revision: int, timeout: float, among: object) -> None:
        """The stores have every write at once."""

    async def _update_status(self, obj: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
        self.stored[f"default/{obj.metadata.name}"] = self.autoscaler = obj
        return obj

    async def _usage(self, namespace: str, *, labels: str) -> PodMetricsList:
        assert (namespace, labels) == ("default", "app=web")
        self.lists += 1
        result = PodMetricsList()
        for name, cpu in self.usage.items():
            metrics: PodMetrics = result.items.add()
            metrics.metadata.name = name
            metrics.timestamp.seconds = int(self.clock.time())
            metrics.containers.add(name="main").usage["cpu"].string = cpu
        return result

    def event(self, obj: Any, *details: str) -> None:
        self.events.append(details)  # type: ignore[arg-type]

    async def sync(self) -> dict[str, tuple[str, str, str]]:
        """Return the conditions."""
        assert await self.controller.sync(KEY) == OPTIONS.sync_period
        conditions = self.stored[KEY].status.conditions
        return {condition.type: (condition.status, condition.reason, condition.message) for condition in conditions}


async def test_usage_above_the_target_adds_replicas() -> None:
    world = World()
    world.usage = {"a": "900m", "b": "900m"}
    conditions = await world.sync()
    assert world.scale.spec.replicas == 4
    reason = "cpu resource utilization (percentage of request)"
    assert world.events == [("Normal", "SuccessfulRescale", f"New size: 4; reason: {reason} above target")]
    assert conditions == {
        "AbleToScale": ("True", "SucceededRescale", "the HPA controller was able to update the target scale to 4"),
        "ScalingActive": (
            "True", "ValidMetricFound", f"the HPA was able to successfully calculate a replica count from {reason}",
        ),
        "ScalingLimited": ("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
    }  # fmt: skip
    status = world.stored[KEY].status
    assert (status.currentReplicas, status.desiredReplicas) == (2, 4)
    current = status.currentMetrics[0].resource.current
    assert (current.averageUtilization, current.averageValue.string) == (90, "900m")
    assert status.lastScaleTime.seconds == int(world.clock.time())


async def test_unchanged_state_is_not_written_again() -> None:
    world = World()
    world.usage = {"a": "500m", "b": "500m"}
    await world.sync()
    written = world.autoscaler
    await world.sync()
    assert world.autoscaler is written and world.events == []


async def test_fewer_replicas_wait_for_the_window() -> None:
    world = World()
    conditions = await world.sync()
    assert (world.scale.spec.replicas, conditions["AbleToScale"][1]) == (2, "ScaleDownStabilized")
    await world.clock.advance(OPTIONS.downscale_stabilization + 1)
    await world.sync()
    assert world.scale.spec.replicas == 1
    assert world.events[-1][2] == "New size: 1; reason: All metrics below target"


@pytest.mark.parametrize(
    ("replicas", "expected", "reason"),
    [
        (12, 10, "Current number of replicas above Spec.MaxReplicas"),
        (1, 3, "Current number of replicas below Spec.MinReplicas"),
    ],
)
async def test_bounds_need_no_metrics(replicas: int, expected: int, reason: str) -> None:
    world = World(minReplicas=3)
    world.scale.spec.replicas = replicas
    await world.sync()
    assert (world.scale.spec.replicas, world.lists) == (expected, 0)
    assert world.events == [("Normal", "SuccessfulRescale", f"New size: {expected}; reason: {reason}")]


async def test_target_without_replicas_is_left_alone() -> None:
    world = World()
    world.scale.spec.replicas = 0
    conditions = await world.sync()
    message = "scaling is disabled since the replica count of the target is zero"
    assert conditions["ScalingActive"] == ("False", "ScalingDisabled", message)
    assert world.scale.spec.replicas == 0


async def test_missing_usage_is_told() -> None:
    world = World()
    world.usage = {}
    conditions = await world.sync()
    text = (
        "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API"
    )
    message = f"the HPA was unable to compute the replica count: {text}"
    assert conditions["ScalingActive"] == ("False", "FailedGetResourceMetric", message)
    first = f"failed to get cpu resource metric value: {text}"
    assert world.events == [
        ("Warning", "FailedGetResourceMetric", text),
        ("Warning", "FailedComputeMetricsReplicas", f"invalid metrics (1 invalid out of 1), first error is: {first}"),
    ]
    assert world.scale.spec.replicas == 2


async def test_failed_metric_prevents_fewer_replicas_but_not_more() -> None:
    world = World()
    queue = MetricSpec(type="External")
    queue.external.metric.name = "queue"
    queue.external.target.value.string = "5"
    world.autoscaler.spec.metrics.append(queue)
    conditions = await world.sync()
    assert conditions["ScalingActive"][:2] == ("False", "FailedGetExternalMetric")
    assert world.scale.spec.replicas == 2
    world.usage = {"a": "900m", "b": "900m"}
    conditions = await world.sync()
    assert (world.scale.spec.replicas, conditions["ScalingActive"][1]) == (4, "ValidMetricFound")
    assert world.lists == 2  # one for each sync


async def test_target_that_does_not_exist_is_told() -> None:
    world = World()
    world.autoscaler.spec.scaleTargetRef.name = "other"
    conditions = await world.sync()
    prefix = "the HPA controller was unable to get the target's current scale"
    assert conditions == {"AbleToScale": ("False", "FailedGetScale", f'{prefix}: deployments/scale.apps "other" not found')}
    world.stored[KEY].spec.scaleTargetRef.kind = "Unknown"
    conditions = await world.sync()
    assert conditions["AbleToScale"][2] == f'{prefix}: no matches for kind "Unknown" in group "apps"'


async def test_conflicts_are_retried_and_other_errors_are_told() -> None:
    world = World()
    world.usage = {"a": "900m", "b": "900m"}
    world.errors = [Conflict(Refusal(Code.ABORTED, "Conflict", "stale"))] * 2
    await world.sync()
    assert world.scale.spec.replicas == 4
    world = World()
    world.usage = {"a": "900m", "b": "900m"}
    world.errors = [UNAVAILABLE]
    conditions = await world.sync()
    assert conditions["AbleToScale"][:2] == ("False", "FailedUpdateScale")
    assert world.events[-1][1] == "FailedRescale" and world.stored[KEY].status.desiredReplicas == 0


async def test_two_autoscalers_of_the_same_pods_both_stop() -> None:
    world = World()
    other = world.new_autoscaler("other")
    world.stored["default/other"] = other
    await world.controller.sync("default/other")
    world.usage = {"a": "900m", "b": "900m"}
    conditions = await world.sync()
    message = "pods by selector app=web are controlled by multiple HPAs: [default/other default/web]"
    assert conditions["ScalingActive"] == ("False", "AmbiguousSelector", message)
    assert world.scale.spec.replicas == 2
    del world.stored["default/other"]
    await world.controller.sync("default/other")
    await world.sync()
    assert world.scale.spec.replicas == 4


async def test_scale_without_a_selector_is_told() -> None:
    world = World()
    world.scale.status.selector = ""
    conditions = await world.sync()
    message = "the HPA target's scale is missing a selector"
    assert conditions["ScalingActive"] == ("False", "InvalidSelector", message)
    assert [event[1] for event in world.events] == ["SelectorRequired", "FailedComputeMetricsReplicas"]


def test_only_a_changed_spec_is_synced_at_once() -> None:
    world = World()
    (watch,) = world.controller.watches
    changed = world.new_autoscaler("web")
    assert list(watch.keys(Delta(ADDED, world.autoscaler, None))) == [KEY]
    changed.status.currentReplicas = 3
    assert list(watch.keys(Delta(MODIFIED, changed, world.autoscaler))) == []
    changed.spec.maxReplicas = 3
    assert list(watch.keys(Delta(MODIFIED, changed, world.autoscaler))) == [KEY]


def test_metrics_without_a_server_fail_as_in_a_cluster_without_an_adapter() -> None:
    metric = MetricSpec(type="External")
    metric.external.metric.name = "queue"
    metric.external.metric.selector.matchLabels["name"] = "jobs"
    metric.external.target.averageValue.string = "5"
    error, text = describe_unserved_metric(metric, "n")
    selector = "&LabelSelector{MatchLabels:map[string]string{name: jobs,},MatchExpressions:[]LabelSelectorRequirement{},}"
    missing = "the server could not find the requested resource (get queue.external.metrics.k8s.io)"
    assert text == (
        f"unable to get external metric n/queue/{selector}: unable to fetch metrics from external metrics API: {missing}"
    )
    assert error == f"failed to get queue external metric value: failed to get queue external metric: {text}"
