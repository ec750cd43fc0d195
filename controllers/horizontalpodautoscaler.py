"""The autoscaler: sets the replicas of objects with a scale from the usage of their pods.

    every `sync_period`: Scale of the target, usage of its pods --> proposal of each metric --> the largest --> limits --> Scale

The usage is that of `kubectl top`: one list of metrics.k8s.io for each autoscaler, for which the API server asks each kubelet
once. The decisions are in autoscalermetrics.py, replicacalculator.py and scalingrules.py.

Unlike in Kubernetes, a new autoscaler and a changed spec are synced at once, and not after `sync_period`.

Source: pkg/controller/podautoscaler/horizontal.go of Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pinnace.api import conditions
from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.autoscaling_v2_pb2 import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
)
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import ALL, HORIZONTAL_POD_AUTOSCALERS, Resource, store_key
from pinnace.api.resources import PODS as POD_RESOURCE
from pinnace.api.scalars import to_time
from pinnace.api.selectors import NOTHING, LabelSelector, SelectorError, parse_labels
from pinnace.api.verbs_pb2 import DELETED, MODIFIED
from pinnace.client.errors import ApiError, Conflict, NotFound
from pinnace.client.informer import Delta
from pinnace.client.workqueue import MAX_BACKOFF
from pinnace.controllers.autoscalermetrics import MetricContext, PodUsageReader, compute_metric, tolerances_of
from pinnace.controllers.informers import SelectorIndex
from pinnace.controllers.replicacalculator import MetricError, StartupDelays
from pinnace.controllers.runtime import ControllerContext, WatchedResource
from pinnace.controllers.scalingrules import (
    Bounds,
    Limited,
    Recommendation,
    ScalingHistory,
    limit_by_behavior,
    limit_by_default,
)
from pinnace.controllers.writes import Expectations

ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED = "AbleToScale", "ScalingActive", "ScalingLimited"
UPDATE_ATTEMPTS = 5
"""Maximum number of attempts to change a Scale that others change at the same time."""


@dataclass(frozen=True, slots=True)
class AutoscalerOptions:
    """Times are in seconds. The defaults are Kubernetes'."""

    sync_period: float = 15.0
    downscale_stabilization: float = 300.0
    tolerance: float = 0.1
    delays: StartupDelays = field(default_factory=StartupDelays)


class ScaleDecision(NamedTuple):
    """The replicas that the metrics ask for; None if they cannot be computed. `reason`: of a change."""

    statuses: Sequence[MetricStatus]
    replicas: int | None = None
    reason: str = ""


def find_scaled_resource(kind: str, group: str) -> Resource[Any] | None:
    """Return the built-in resource of a kind; None if it does not exist."""
    return next((resource for resource in ALL if (resource.kind, resource.group) == (kind, group)), None)


class HorizontalPodAutoscalerController:
    name = "horizontalpodautoscaler"
    workers = 5
    max_backoff = MAX_BACKOFF

    def __init__(self, shared: ControllerContext, options: AutoscalerOptions) -> None:
        informers = shared.informers
        self._options = options
        self._client = shared.client
        self._autoscalers = informers.store(HORIZONTAL_POD_AUTOSCALERS)
        self._pods = informers.labelled(POD_RESOURCE)
        self._custom = informers.custom
        self._clock = shared.clock
        self._events = shared.events
        self._expectations = Expectations(informers)
        self._histories: dict[str, ScalingHistory] = {}
        self._selectors: dict[str, LabelSelector] = {}
        """The selectors of targets by UID of the autoscaler."""
        self._selecting = SelectorIndex(self._selector_of)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (WatchedResource(HORIZONTAL_POD_AUTOSCALERS, _keys_of_spec),)

    async def sync(self, key: str) -> float | None:
        await self._expectations.wait_until_met(key)
        stored = self._autoscalers.get(key)
        if stored is None:
            self._forget_autoscaler(key)
            return None
        if stored.metadata.HasField("deletionTimestamp"):
            return None
        autoscaler = HorizontalPodAutoscaler()
        autoscaler.CopyFrom(stored)
        await self._reconcile_scale(key, autoscaler)
        await self._write_status(key, autoscaler, stored.status)
        return self._options.sync_period

    async def _reconcile_scale(self, key: str, autoscaler: HorizontalPodAutoscaler) -> None:
        """Scale the target, and set the status in place."""
        try:
            resource, scale = await self._get_scale(autoscaler)
        except MetricError as error:
            self._events.event(autoscaler, "Warning", "FailedGetScale", str(error))
            message = f"the HPA controller was unable to get the target's current scale: {error}"
            self._set_condition(autoscaler, ABLE_TO_SCALE, "False", "FailedGetScale", message)
            return
        self._set_condition(
            autoscaler,
            ABLE_TO_SCALE,
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        )
        spec, current = autoscaler.spec, scale.spec.replicas
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = ScalingHistory()
            history.recommendations.append(Recommendation(current, self._clock.time()))
        least = spec.minReplicas if spec.HasField("minReplicas") else 1
        if current == 0 and least:
            message = "scaling is disabled since the replica count of the target is zero"
            self._set_condition(autoscaler, SCALING_ACTIVE, "False", "ScalingDisabled", message)
            decision = ScaleDecision((), current)
        elif current > spec.maxReplicas:
            decision = ScaleDecision((), spec.maxReplicas, "Current number of replicas above Spec.MaxReplicas")
        elif current < least:
            decision = ScaleDecision((), least, "Current number of replicas below Spec.MinReplicas")
        else:
            decision = await self._compute_replicas(autoscaler, scale, history, least)
        if decision.replicas is None:
            _set_status(autoscaler, current, autoscaler.status.desiredReplicas, decision.statuses)
            return
        if decision.replicas != current and not await self._rescale(autoscaler, resource, scale, decision):
            _set_status(autoscaler, current, autoscaler.status.desiredReplicas, decision.statuses)
            return
        _set_status(autoscaler, current, decision.replicas, decision.statuses)
        if decision.replicas != current:
            now = self._clock.time()
            autoscaler.status.lastScaleTime.CopyFrom(to_time(int(now)))
            if spec.HasField("behavior"):
                rules = (spec.behavior.scaleUp, spec.behavior.scaleDown)
                history.record_change(current, decision.replicas, rules, now)

    async def _get_scale(self, autoscaler: HorizontalPodAutoscaler) -> tuple[Resource[Any], Scale]:
        """Raise MetricError with Kubernetes' message."""
        target = autoscaler.spec.scaleTargetRef
        if target.apiVersion.count("/") > 1:
            raise MetricError(f"unexpected GroupVersion string: {target.apiVersion}")
        group = target.apiVersion.rpartition("/")[0]
        resource = find_scaled_resource(target.kind, group) or self._custom.by_kind(target.kind, target.apiVersion)
        if resource is None:
            raise MetricError(f'no matches for kind "{target.kind}" in group "{group}"')
        try:
            return resource, await self._client.of(resource).get_scale(target.name, autoscaler.metadata.namespace)
        except NotFound:
            scaled = f"{resource.plural}/scale.{group}" if group else f"{resource.plural}/scale"
            raise MetricError(f'{scaled} "{target.name}" not found') from None
        except ApiError as error:
            message = error.message if error.reason else "the server could not find the requested resource"
            raise MetricError(message) from None

    async def _compute_replicas(
        self, autoscaler: HorizontalPodAutoscaler, scale: Scale, history: ScalingHistory, least: int
    ) -> ScaleDecision:
        """Compute the replicas from the metrics, within the limits."""
        spec, current = autoscaler.spec, scale.spec.replicas
        try:
            selector, pods = self._select_pods(autoscaler, scale.status.selector)
        except MetricError as error:
            self._events.event(autoscaler, "Warning", "FailedComputeMetricsReplicas", str(error))
            return ScaleDecision(())
        namespace = autoscaler.metadata.namespace
        context = MetricContext(
            namespace,
            current,
            pods,
            PodUsageReader(self._client, namespace, str(selector)),
            tolerances_of(autoscaler, self._options.tolerance),
            self._options.delays,
            self._clock.time(),
        )
        results = [await compute_metric(metric, context) for metric in spec.metrics]
        failed = [result for result in results if result.error]
        for result in failed:
            self._events.event(autoscaler, "Warning", result.reason, result.event)
        best = max((result for result in results if not result.error), key=lambda result: result.replicas, default=None)
        statuses = [result.status for result in results]
        if best is None or (failed and best.replicas < current):
            first = failed[0]
            message = f"the HPA was unable to compute the replica count: {first.event}"
            self._set_condition(autoscaler, SCALING_ACTIVE, "False", first.reason, message)
            count = f"{len(failed)} invalid out of {len(results)}"
            text = f"invalid metrics ({count}), first error is: {first.error}"
            self._events.event(autoscaler, "Warning", "FailedComputeMetricsReplicas", text)
            return ScaleDecision(statuses)
        message = f"the HPA was able to successfully calculate a replica count from {best.name}"
        self._set_condition(autoscaler, SCALING_ACTIVE, "True", "ValidMetricFound", message)
        limited = self._limit_replicas(autoscaler, best.replicas, Bounds(current, least, spec.maxReplicas), history)
        self._set_condition(autoscaler, ABLE_TO_SCALE, "True", *limited.able)
        self._set_condition(autoscaler, SCALING_LIMITED, "True" if limited.is_limited else "False", *limited.limited)
        reason = f"{best.name} above target" if best.replicas > current else "All metrics below target"
        return ScaleDecision(statuses, limited.replicas, reason)

    def _limit_replicas(
        self, autoscaler: HorizontalPodAutoscaler, replicas: int, bounds: Bounds, history: ScalingHistory
    ) -> Limited:
        window, now = self._options.downscale_stabilization, self._clock.time()
        if not autoscaler.spec.HasField("behavior"):
            return limit_by_default(history, replicas, bounds, window, now)
        behavior = autoscaler.spec.behavior
        return limit_by_behavior(history, replicas, bounds, behavior.scaleUp, behavior.scaleDown, window, now)

    def _select_pods(self, autoscaler: HorizontalPodAutoscaler, text: str) -> tuple[LabelSelector, list[Pod]]:
        """Return the pods of the target. Raise MetricError, with the condition, if the selector is missing or invalid, or if
        another autoscaler has the same pods."""
        if not text:
            self._events.event(autoscaler, "Warning", "SelectorRequired", "selector is required")
            message = "the HPA target's scale is missing a selector"
            self._set_condition(autoscaler, SCALING_ACTIVE, "False", "InvalidSelector", message)
            raise MetricError("selector is required")
        try:
            selector = parse_labels(text)
        except SelectorError as error:
            raise self._selector_error(
                autoscaler,
                "InvalidSelector",
                f"couldn't convert selector into a corresponding internal selector object: {error}",
            ) from None
        namespace = autoscaler.metadata.namespace
        self._update_selector(autoscaler, selector)
        pods = self._pods.select(namespace, selector.matches)
        names = {
            store_key(other)
            for labels in {frozenset(pod.metadata.labels.items()) for pod in pods}
            for other in self._selecting.objects_selecting(namespace, dict(labels))
        }
        if len(names) > 1:
            message = f"pods by selector {text} are controlled by multiple HPAs: [{' '.join(sorted(names))}]"
            raise self._selector_error(autoscaler, "AmbiguousSelector", message)
        return selector, pods

    def _selector_error(self, autoscaler: HorizontalPodAutoscaler, reason: str, message: str) -> MetricError:
        self._events.event(autoscaler, "Warning", reason, message)
        self._set_condition(autoscaler, SCALING_ACTIVE, "False", reason, message)
        return MetricError(message)

    async def _rescale(
        self, autoscaler: HorizontalPodAutoscaler, resource: Resource[Any], scale: Scale, decision: ScaleDecision
    ) -> bool:
        """Change the scale of the target. Return whether it succeeded; if not, the condition says why."""
        assert decision.replicas is not None
        client = self._client.of(resource)
        try:
            for attempt in range(1, UPDATE_ATTEMPTS + 1):
                scale.spec.replicas = decision.replicas
                try:
                    await client.update_scale(scale)
                    break
                except Conflict:
                    if attempt == UPDATE_ATTEMPTS:
                        raise
                    scale = await client.get_scale(scale.metadata.name, scale.metadata.namespace)
        except ApiError as error:
            text = f"New size: {decision.replicas}; reason: {decision.reason}; error: {error.message}"
            self._events.event(autoscaler, "Warning", "FailedRescale", text)
            message = f"the HPA controller was unable to update the target scale: {error.message}"
            self._set_condition(autoscaler, ABLE_TO_SCALE, "False", "FailedUpdateScale", message)
            return False
        message = f"the HPA controller was able to update the target scale to {decision.replicas}"
        self._set_condition(autoscaler, ABLE_TO_SCALE, "True", "SucceededRescale", message)
        text = f"New size: {decision.replicas}; reason: {decision.reason}"
        self._events.event(autoscaler, "Normal", "SuccessfulRescale", text)
        return True

    async def _write_status(self, key: str, autoscaler: HorizontalPodAutoscaler, before: HorizontalPodAutoscalerStatus) -> None:
        if autoscaler.status == before:
            return
        try:
            stored = await self._client.of(HORIZONTAL_POD_AUTOSCALERS).update_status(autoscaler)
        except NotFound:
            return
        self._expectations.expect_version(key, HORIZONTAL_POD_AUTOSCALERS, stored.metadata.resourceVersion)

    def _set_condition(self, autoscaler: HorizontalPodAutoscaler, type_: str, status: str, reason: str, message: str) -> None:
        conditions.set_condition(autoscaler.status.conditions, type_, status, reason, message, self._clock.time())

    def _selector_of(self, autoscaler: HorizontalPodAutoscaler) -> LabelSelector:
        return self._selectors.get(autoscaler.metadata.uid, NOTHING)

    def _update_selector(self, autoscaler: HorizontalPodAutoscaler, selector: LabelSelector) -> None:
        if self._selectors.get(autoscaler.metadata.uid) != selector:
            self._selectors[autoscaler.metadata.uid] = selector
            named = HorizontalPodAutoscaler(metadata=autoscaler.metadata)
            self._selecting.apply_deltas((Delta(MODIFIED, named, named),))

    def _forget_autoscaler(self, key: str) -> None:
        self._histories.pop(key, None)
        present = {autoscaler.metadata.uid for autoscaler in self._autoscalers.values()}
        for uid in self._selectors.keys() - present:
            del self._selectors[uid]
            gone = HorizontalPodAutoscaler()
            gone.metadata.uid = uid
            self._selecting.apply_deltas((Delta(DELETED, gone, gone),))


def _set_status(autoscaler: HorizontalPodAutoscaler, current: int, desired: int, statuses: Sequence[MetricStatus]) -> None:
    status = autoscaler.status
    status.currentReplicas, status.desiredReplicas = current, desired
    del status.currentMetrics[:]
    status.currentMetrics.extend(statuses)


def _keys_of_spec(delta: Delta[HorizontalPodAutoscaler]) -> Iterable[str]:
    """Return the autoscaler, unless only its metadata or status has changed: it is synced again after the period."""
    if delta.old is not None and delta.kind != DELETED and delta.old.spec == delta.obj.spec:
        return ()
    return (store_key(delta.obj),)
