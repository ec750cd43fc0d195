"""Run the plugins of a profile. A plugin error fails one attempt. `Profiles` holds all profiles of a scheduler.

`BindingPlugins` and `BindingCycle` run the plugins from Reserve to PostBind:

    start:  Reserve --> Permit --> PreFlight          in the scheduling cycle
                |          |
                v          v         then, concurrently with later decisions:
             refused: Unreserve      [wait] --> PreBind --> Bind, or a batch --> PostBind

The caller (scheduler.binding_cycle) finally calls exactly one of `run_post_bind` and `run_unreserve`, or neither if the result
is unknown. `run_unreserve` calls Unreserve of all Reserve plugins in reverse order.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from pinnace.api.pods_pb2 import Fence
from pinnace.fit.table import BoolArray
from pinnace.runtime.logs import PluginFailed
from pinnace.scheduler.cache.cache import ANY, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import FloatArray, NodeTable
from pinnace.scheduler.framework.filtering import (
    BY_ROWS,
    CostLimit,
    RowFilters,
    SingleNodeFilter,
    is_small,
    read_dependency,
    run_filter,
    run_pre_filter,
)
from pinnace.scheduler.framework.interface import (
    BatchBindPlugin,
    BindPlugin,
    CostPlugin,
    Dependency,
    EnqueueHint,
    FilterPlugin,
    Gate,
    NormalizePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreFlightPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
)
from pinnace.scheduler.framework.plugin_errors import (
    PluginErrorLog,
    await_plugin,
    call_plugin,
    check_permit,
    check_post_filter,
    check_range,
    check_scores,
    check_skip,
    check_sort_key,
    check_status,
    check_truth,
    hint_changes,
    is_built_in,
    rejection_from_status,
)
from pinnace.scheduler.framework.profile import Enabled, Point, Profile, check_profile
from pinnace.scheduler.framework.results import (
    BIND_ANNOTATIONS,
    SKIP,
    CycleState,
    Diagnosis,
    FilterResult,
    Nominated,
    PluginError,
    PluginRejection,
    PluginTimeout,
    Proposed,
    Wait,
    floor_scores,
)

log = logging.getLogger(__name__)
_JUDGE, _JUDGE_NODE = 50e-6, 60e-9
"""Estimated seconds of all filters for an ordinary pod, per call and per node."""
_REFUSING = (Point.PRE_FILTER, Point.FILTER, Point.RESERVE, Point.PERMIT)
"""Extension points at which a plugin can make a pod unschedulable."""
P = TypeVar("P", bound=Plugin)
PRE_BIND = 600.0
"""Maximum seconds for PreBind of one plugin. Kubernetes has the same limit for binding volumes."""
OWN_PRE_BIND = 60.0
"""Default seconds for PreBind of an out-of-tree plugin."""


@dataclass(frozen=True, slots=True)
class Scorer:
    plugin: ScorePlugin
    weight: float
    pre_score: PreScorePlugin | None
    normalize: NormalizePlugin | None
    checked: bool
    """True if the scores are checked. Scores of built-in plugins are not."""
    faults: PluginErrorLog

    def run_pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> bool:
        """Run PreScore. Return True if the plugin skips the pod. Raise PluginError."""
        if self.pre_score is None:
            return False
        answer = call_plugin(self.plugin, "PreScore", self.pre_score.pre_score, state, pod, nodes, feasible)
        return answer is SKIP or (answer is not None and call_plugin(self.plugin, "PreScore", check_skip, answer) is SKIP)

    def weighted_scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores = self.score_nodes(state, pod, nodes, feasible)
        return scores if self.weight == 1 else self.weight * scores

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the unweighted scores of all nodes. Scores of built-in plugins are integers, as in kube-scheduler. Raise
        PluginError."""
        plugin, point = self.plugin, "Score"
        scores = call_plugin(plugin, point, plugin.score, state, pod, nodes, feasible)
        if self.normalize is not None:
            if self.checked:
                scores = call_plugin(plugin, point, check_scores, scores, feasible)
            point = "NormalizeScore"
            scores = call_plugin(plugin, point, self.normalize.normalize, state, scores, feasible)
        if not self.checked:
            return floor_scores(scores)
        scores = call_plugin(plugin, point, check_scores, scores, feasible)
        scores, clipped = call_plugin(plugin, point, check_range, scores, feasible)
        if clipped:
            self.faults.log_warning(f'plugin "{plugin.name}" in {point}', clipped)
        return scores


class Framework:
    """One profile. It schedules the pods whose spec.schedulerName is `scheduler_name`."""

    def __init__(self, scheduler_name: str, profile: Profile) -> None:
        """Raise ValueError if the plugins do not form a valid profile."""
        self.scheduler_name = scheduler_name
        self.profile = profile
        check_profile(profile)

        def at(point: Point) -> list[Any]:
            return [item.plugin for item in profile.get(point, ())]

        self._faults = PluginErrorLog()
        plugins = [item.plugin for enabled in profile.values() for item in enabled]
        self.foreign = frozenset(item.name for item in plugins if not is_built_in(type(item)))
        """The names of out-of-tree plugins, whose results are checked."""
        self._sorter = at(Point.QUEUE_SORT)[0]
        self._pre_enqueue = at(Point.PRE_ENQUEUE)
        self.pre_filters: list[PreFilterPlugin] = at(Point.PRE_FILTER)
        self.filters: list[FilterPlugin] = at(Point.FILTER)
        self._filtering = {plugin.name for plugin in self.filters}
        self._post_filters = at(Point.POST_FILTER)
        self.scorers = [_build_scorer(item, self._faults) for item in profile.get(Point.SCORE, ()) if item.weight]
        self._hints = {
            enqueue_hint.name: enqueue_hint
            for point in _REFUSING
            for enqueue_hint in at(point)
            if isinstance(enqueue_hint, EnqueueHint)
        }
        self._preempting_plugins = [
            post_filter
            for post_filter in self._post_filters
            if isinstance(post_filter, EnqueueHint) and post_filter.name not in self._hints
        ]
        deciding = dict.fromkeys([*self.pre_filters, *self.filters, *(scorer.plugin for scorer in self.scorers)])
        self._cost_bound = CostLimit([item for item in deciding if isinstance(item, CostPlugin)])
        self._hints[CostLimit.name] = self._cost_bound
        self._hints |= {
            enqueue_hint.name: enqueue_hint for enqueue_hint in self._pre_enqueue if isinstance(enqueue_hint, EnqueueHint)
        }
        self.binding = BindingPlugins(
            at(Point.RESERVE), at(Point.PERMIT), at(Point.PRE_BIND), at(Point.BIND), at(Point.POST_BIND)
        )
        """The plugins that run after a node is selected."""

    def find_gate(self, pod: PodInfo) -> Gate | None:
        """Return the plugin that gates the pod, or None. A plugin that fails does not gate it."""
        for plugin in self._pre_enqueue:
            try:
                answer = call_plugin(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
                held = answer is not True and call_plugin(plugin, "PreEnqueue", check_truth, answer) is False
            except PluginError as error:
                self._faults.log_error(error)
                return None
            if held:
                return Gate(plugin.name, self._changes_of_gate(plugin.name))
        return None

    def _changes_of_gate(self, plugin: str) -> Change:
        """Return the changes that may release a gated pod: all changes if `helped_by` is missing or invalid."""
        return self._changes_of_hint(self._hints.get(plugin, _ANYTHING))

    def _changes_of_hint(self, hint: EnqueueHint) -> Change:
        """Return `helped_by` of the hint, or all changes if it is invalid."""
        if hint.name not in self.foreign:
            return hint.helped_by
        try:
            return call_plugin(hint, "helped_by", hint_changes, hint)
        except PluginError as error:
            self._faults.log_error(error)
            return ANY

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        sorter = self._sorter
        try:
            key = call_plugin(sorter, "QueueSort", sorter.sort_key, pod, since)
            return (
                call_plugin(sorter, "QueueSort", check_sort_key, key) if sorter.name in self.foreign else tuple(map(float, key))
            )
        except PluginError as error:
            self._faults.log_error(error)
            return ()

    def awaited_changes(self, refused_by: frozenset[str], pod: PodInfo) -> Change:
        """Return the kinds of changes that may help a pod that these plugins refused: all changes if `refused_by` is empty."""
        awaited = Change.NONE
        for name in refused_by:
            for hint in self._hints_of(name):
                awaited |= self._changes_of_hint(hint)
        return awaited or ANY

    def event_helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """Return True if the event may help a pod that this plugin refused.

        For a large pod only the kind of the event is checked, because `helps` can be expensive and thousands of events may
        occur per second.
        """
        for hint in self._hints_of(plugin):
            if event.change & self._changes_of_hint(hint):
                if not is_small(pod) and hint is not self._cost_bound:
                    return True
                try:
                    answer = call_plugin(hint, "helps", hint.helps, event, pod, nodes)
                    if answer is True or (answer is not False and call_plugin(hint, "helps", check_truth, answer)):
                        return True
                except PluginError as error:
                    self._faults.log_error(error)
                    return True
        return False

    def _hints_of(self, plugin: str) -> Iterator[EnqueueHint]:
        """Yield the hints for a pod that the plugin refused.

        These are the plugin's own hint and, if removed pods may help, the hints of the plugins that preempt pods.
        """
        hint = self._hints.get(plugin, _ANYTHING)
        yield hint
        if plugin in self._filtering and Change.POD_FREED in self._changes_of_hint(hint):
            yield from self._preempting_plugins

    def awaited_plugins(self, pod: PodInfo, diagnosis: Diagnosis) -> frozenset[str]:
        """Return the plugins whose results must change before another attempt can succeed.

        For a pod that may not preempt, these are the first plugins that refuse each node. Otherwise
        `_plugins_not_helped_by_preemption` returns them.
        """
        may_preempt = bool(self._preempting_plugins) and pod.raw.spec.preemptionPolicy != "Never"
        result = diagnosis.awaited.get(may_preempt)
        if result is None:
            of_one = not may_preempt or diagnosis.pre_filter is not None
            result = diagnosis.awaited[may_preempt] = (
                diagnosis.plugins if of_one else self._plugins_not_helped_by_preemption(diagnosis)
            )
        return result

    def _plugins_not_helped_by_preemption(self, diagnosis: Diagnosis) -> frozenset[str]:
        """Return the plugins that preemption does not overcome.

        For a node that stays refused without its pods, this is the first plugin that refuses it. For other nodes, these are all
        plugins that refuse it, or may refuse it after pods are removed. A plugin that additional pods may satisfy counts on
        every node, because the search for victims may have failed on other nodes because of it.
        """
        awaited, left = set(), np.ones(diagnosis.nodes, np.bool_)
        for plugin, result in diagnosis.refusals:
            lasting = self._lasting_refusals(plugin, result)
            if lasting is not None and (left & lasting).any():
                awaited.add(plugin)
                left &= ~lasting
        for plugin, result in diagnosis.refusals:
            refused = ~result.passed if self._may_refuse_without_pods(plugin) else ~result.passed & left
            if refused.any() or (result.needs_pods and left.any()):
                awaited.add(plugin)
        return frozenset(awaited)

    def _may_refuse_without_pods(self, plugin: str) -> bool:
        """Return True if the plugin may refuse a node after pods are removed, so that additional pods may help."""
        hint = self._hints.get(plugin)
        return hint is None or Change.POD_PLACED in self._changes_of_hint(hint)

    def _lasting_refusals(self, plugin: str, result: FilterResult) -> BoolArray | None:
        """Return the nodes that the plugin refuses even without their pods, or None if there are none."""
        hint = self._hints.get(plugin)
        if hint is not None and Change.POD_FREED not in self._changes_of_hint(hint):
            return ~result.passed
        return result.unresolvable() if result.unresolvable is not None else None

    def reject_too_costly(self, pod: PodInfo, nodes: NodeTable) -> Diagnosis | None:
        """Return a diagnosis if the estimated cost of the decision exceeds the limit, else None. Raise PluginError."""
        if is_small(pod):
            return None
        reason = self._cost_bound.find_refusal(pod, nodes)
        return Diagnosis(len(nodes), pre_filter=(CostLimit.name, reason)) if reason else None

    def filter_cost_bound(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Return an upper estimate of the CPU seconds for the items of the pod. Raise PluginError."""
        return self._cost_bound.estimate_decision_cost(pod, nodes)

    def estimate_filter_cost(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Return an upper estimate of the CPU seconds of `run_filters`. Raise PluginError."""
        return self.filter_cost_bound(pod, nodes) + _JUDGE + len(nodes) * _JUDGE_NODE

    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Diagnosis:
        """Run all filters on all nodes. Raise PluginError."""
        rows = len(nodes)
        if not rows:
            return Diagnosis(0)
        skipped = set()
        for plugin in self.pre_filters:
            status = run_pre_filter(plugin, state, pod, nodes)
            if status is SKIP:
                skipped.add(plugin.name)
            elif status is not None:
                return Diagnosis(rows, pre_filter=(plugin.name, status.reason))
        refusals = []
        for filterer in self.filters:
            if filterer.name in skipped:
                continue
            result = run_filter(filterer, state, pod, nodes)
            refusals.append((filterer.name, result))
        return Diagnosis(rows, refusals)

    def run_single_filter(self, plugin: str, pod: PodInfo, nodes: NodeTable) -> FilterResult | None:
        """Run one filter without its PreFilter. Return None if the profile does not have it. Raise PluginError."""
        result = next((filter_plugin for filter_plugin in self.filters if filter_plugin.name == plugin), None)
        return run_filter(result, {}, pod, nodes) if result is not None else None

    def curable_nodes(self, diagnosis: Diagnosis) -> BoolArray:
        """Return the nodes that may fit the pod if other pods are removed, according to the plugins that refuse them."""
        curable = np.full(diagnosis.nodes, diagnosis.pre_filter is None)
        for plugin, result in diagnosis.refusals:
            if (lasting := self._lasting_refusals(plugin, result)) is not None:
                curable &= ~lasting
        if diagnosis.unresolvable is not None:
            curable &= ~diagnosis.unresolvable
        return curable

    def unresolvable_nodes(self, diagnosis: Diagnosis) -> BoolArray:
        """Return the nodes whose first refusal remains if pods are removed.

        kube-scheduler stops at the first filter that refuses a node, so its message counts only these nodes as "Preemption is
        not helpful for scheduling".
        """
        found = np.full(diagnosis.nodes, diagnosis.pre_filter is not None)
        left = np.ones(diagnosis.nodes, np.bool_)
        for plugin, result in diagnosis.refusals:
            if (lasting := self._lasting_refusals(plugin, result)) is not None:
                found |= left & lasting
            left &= result.passed
        return found if diagnosis.unresolvable is None else found | (left & diagnosis.unresolvable)

    def lasting_refusals(self, diagnosis: Diagnosis) -> Sequence[tuple[str, FilterResult]]:
        """Return the refusals that remain if pods are removed, by plugin."""
        found = [(plugin, result, self._lasting_refusals(plugin, result)) for plugin, result in diagnosis.refusals]
        return [(plugin, FilterResult(~lasting, result.explain)) for plugin, result, lasting in found if lasting is not None]

    def single_node_filter(self, diagnosis: Diagnosis) -> SingleNodeFilter | None:
        """Return the filters for single nodes, or None if a filter that did not skip the pod depends on more than one node."""
        said = dict(diagnosis.refusals)
        by_nodes: list[FilterResult] = []
        by_rows: list[FilterPlugin] = []
        for filterer in self.filters:
            seen, result = read_dependency(filterer, "filter_depends_on"), said.pop(filterer.name, None)
            if result is None:
                if seen is Dependency.EVERYTHING and read_dependency(filterer, "skip_depends_on") is not Dependency.NODES:
                    return None
            elif seen is Dependency.NODES:
                by_nodes.append(result)
            elif seen in BY_ROWS:
                by_rows.append(filterer)
            else:
                return None
        return None if said or diagnosis.pre_filter is not None else SingleNodeFilter(by_nodes, RowFilters(by_rows))

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> tuple[Nominated, bool] | Proposed:
        """Run PostFilter for a pod without a feasible node. Raise PluginError.

        Return the nominated node with a reason, both possibly empty, and True if the pod must be retried in any case. If a
        plugin proposes candidates, return its proposal.
        """
        said, unfinished = [], False
        for plugin in self._post_filters:
            answer = call_plugin(plugin, "PostFilter", plugin.post_filter, state, pod, nodes, diagnosis)
            if plugin.name in self.foreign:
                answer = call_plugin(plugin, "PostFilter", check_post_filter, plugin, answer, nodes)
            if isinstance(answer, Proposed):
                return answer
            if isinstance(answer, Nominated):
                return answer, False
            if answer is not None and answer.reason:
                said.append(answer.reason)
                unfinished |= answer.unfinished
        return Nominated("", " ".join(said)), unfinished

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Return the weighted sum of the scores of each node, or -inf for infeasible nodes. Raise PluginError."""
        total = np.zeros(len(nodes))
        for scorer in self.scorers:
            if not scorer.run_pre_score(state, pod, nodes, feasible):
                total += scorer.weighted_scores(state, pod, nodes, feasible)
        np.putmask(total, ~feasible, -np.inf)
        return total


class _AnyEventHint:
    """The hint of a plugin without EnqueueHint."""

    name = ""
    helped_by = ANY

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return True


_ANYTHING = _AnyEventHint()


def _build_scorer(enabled: Enabled, faults: PluginErrorLog) -> Scorer:
    plugin: Any = enabled.plugin
    return Scorer(
        plugin,
        enabled.weight,
        pre_score=plugin if isinstance(plugin, PreScorePlugin) else None,
        normalize=plugin if isinstance(plugin, NormalizePlugin) else None,
        checked=not is_built_in(type(plugin)),
        faults=faults,
    )


class Profiles:
    """Dispatches each pod to the profile of its spec.schedulerName, which must exist."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self._frameworks = frameworks

    def framework_of(self, pod: PodInfo) -> Framework:
        return self._frameworks[pod.raw.spec.schedulerName]

    def find_gate(self, pod: PodInfo) -> Gate | None:
        return self.framework_of(pod).find_gate(pod)

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        return self.framework_of(pod).sort_key(pod, since)

    def awaited_changes(self, refused_by: frozenset[str], pod: PodInfo) -> Change:
        return self.framework_of(pod).awaited_changes(refused_by, pod)

    def event_helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return self.framework_of(pod).event_helps(plugin, event, pod, nodes)


@dataclass(slots=True, eq=False)
class BindingCycle:
    """The binding cycle of one pod. `state` has the data that its plugins stored in the scheduling cycle."""

    plugins: "BindingPlugins"
    state: CycleState
    pod: PodInfo
    node: str
    reserved: bool = False
    """True if at least one Reserve plugin did not skip the pod."""
    waits: dict[str, float] = field(default_factory=dict)
    """The timeout in seconds by Permit plugin that returned Wait."""
    pre_binds: Sequence[PreBindPlugin] = ()
    binds: Sequence[BindPlugin] = ()
    """The Bind plugins to call before the pod is added to a batch."""
    sent: bool = False
    """True if a Bind plugin was called, so that the pod may be bound."""
    asked: tuple[str, str] = ("", "")
    """(plugin, extension point) of the coroutine that was awaited last."""

    @property
    def needs_no_plugins(self) -> bool:
        """True if no plugin remains, so that the pod can be added to a batch."""
        return not (self.waits or self.pre_binds or self.binds)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations that the bind adds to the pod."""
        annotations: Mapping[str, str] = self.state.get(BIND_ANNOTATIONS, {})
        return annotations

    @property
    def pre_bind_timeout(self) -> float:
        """The total seconds for PreBind of all plugins."""
        return sum(map(pre_bind_timeout, self.pre_binds))

    async def run_pre_bind(self) -> PluginRejection | None:
        """Run PreBind. Return the rejection or None. Raise PluginError."""
        for plugin in self.pre_binds:
            self.asked = plugin.name, "PreBind"
            seconds = pre_bind_timeout(plugin)
            try:
                async with asyncio.timeout(seconds) as deadline:
                    answer = await await_plugin(plugin, "PreBind", plugin.pre_bind, self.state, self.pod, self.node)
            except TimeoutError:
                assert deadline.expired()  # a TimeoutError of the plugin itself is a PluginError
                raise self.timeout_error(seconds) from None
            if refused := rejection_from_status(plugin, call_plugin(plugin, "PreBind", check_status, answer)):
                return refused
        return None

    async def run_bind(self, fence: Fence) -> PluginRejection | bool:
        """Run Bind. Return True if a plugin bound the pod, or False if it must be added to a batch. Raise PluginError."""
        for plugin in self.binds:
            self.asked = plugin.name, "Bind"
            answer = await await_plugin(plugin, "Bind", plugin.bind, self.state, self.pod, self.node, fence)
            if answer is None:
                return True
            if refused := rejection_from_status(plugin, call_plugin(plugin, "Bind", check_status, answer)):
                return refused
        self.plugins.require_batch_bind()
        return False

    def timeout_error(self, seconds: float) -> PluginError:
        """Return the timeout error of the coroutine that was awaited last."""
        plugin, point = self.asked
        return PluginError(plugin, point, PluginTimeout(f"it did not return within {seconds:g} s"))

    def run_post_bind(self) -> None:
        for plugin in self.plugins.post_binds:
            try:
                call_plugin(plugin, "PostBind", plugin.post_bind, self.state, self.pod, self.node)
            except PluginError as error:
                self._log_error(error)

    def run_unreserve(self) -> None:
        for plugin in reversed(self.plugins.reserves):
            try:
                call_plugin(plugin, "Unreserve", plugin.unreserve, self.state, self.pod, self.node)
            except PluginError as error:
                self._log_error(error)

    def _log_error(self, error: PluginError) -> None:
        """Log an error that has no effect on the pod and is not reported as an event."""
        failed = PluginFailed(error.plugin, error.point, type(error.problem).__name__, self.pod.key).extra
        log.error("pod %s: %s", self.pod.key, error, extra=failed)
        self.plugins.faults.log_error(error)


class BindingPlugins:
    """The plugins of one profile from Reserve to PostBind, in call order."""

    def __init__(
        self,
        reserves: Sequence[ReservePlugin],
        permits: Sequence[PermitPlugin],
        pre_binds: Sequence[PreBindPlugin],
        binds: Sequence[BindPlugin | BatchBindPlugin],
        post_binds: Sequence[PostBindPlugin],
    ) -> None:
        self.reserves = reserves
        self.post_binds = post_binds
        self._permits = permits
        self._pre_binds = [(plugin, _pre_flight(plugin)) for plugin in pre_binds]
        self._binds = [(plugin, _pre_flight(plugin)) for plugin in binds if isinstance(plugin, BindPlugin)]
        self._batches = any(isinstance(plugin, BatchBindPlugin) for plugin in binds)
        self.faults = PluginErrorLog()
        self.has_no_plugins = self._batches and not (reserves or permits or pre_binds or self._binds or post_binds)
        """True if no plugin takes part, so that every pod is added to a batch directly."""
        self._prefixes = tuple({f"{plugin.name}." for plugin in (*reserves, *permits, *pre_binds, *binds, *post_binds)})

    def run_reserve_and_permit(self, state: CycleState, pod: PodInfo, node: str) -> BindingCycle | PluginRejection | None:
        """Run Reserve, Permit and PreFlight for an assumed pod.

        Return None if no plugin handles the pod. After a rejection or a PluginError, all reservations are undone.
        """
        kept = {key: value for key, value in state.items() if isinstance(key, str) and key.startswith(self._prefixes)}
        cycle = BindingCycle(self, kept, pod, node)
        try:
            refused = self._reserve(cycle) or self._permit(cycle)
            if refused is None:
                cycle.pre_binds = list(_not_skipping(self._pre_binds, cycle))
                cycle.binds = list(_not_skipping(self._binds, cycle))
                if not cycle.binds:
                    self.require_batch_bind()
        except PluginError:
            cycle.run_unreserve()
            raise
        if refused is not None:
            cycle.run_unreserve()
            return refused
        return None if cycle.needs_no_plugins and not cycle.reserved and not self.post_binds else cycle

    def require_batch_bind(self) -> None:
        """Raise PluginError if the profile has no plugin that binds in batches."""
        if not self._batches:
            name = self._binds[-1][0].name
            raise PluginError(name, "Bind", ValueError("it skips the pod, and no other plugin binds it"))

    def _reserve(self, cycle: BindingCycle) -> PluginRejection | None:
        for plugin in self.reserves:
            answer = call_plugin(plugin, "Reserve", plugin.reserve, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None else call_plugin(plugin, "Reserve", check_status, answer)
            if status is not SKIP:
                cycle.reserved = True
                if refused := rejection_from_status(plugin, status):
                    return refused
        return None

    def _permit(self, cycle: BindingCycle) -> PluginRejection | None:
        for plugin in self._permits:
            answer = call_plugin(plugin, "Permit", plugin.permit, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None else call_plugin(plugin, "Permit", check_permit, answer)
            if isinstance(status, Wait):
                cycle.waits[plugin.name] = float(status.timeout)
            elif refused := rejection_from_status(plugin, status):
                return refused
        return None


def _pre_flight(plugin: Plugin) -> PreFlightPlugin | None:
    return plugin if isinstance(plugin, PreFlightPlugin) else None


def _not_skipping(plugins: Iterable[tuple[P, PreFlightPlugin | None]], cycle: BindingCycle) -> Iterator[P]:
    """Yield the plugins that do not skip the pod in PreFlight."""
    for plugin, pre_flight in plugins:
        status = None
        if pre_flight is not None:
            answer = call_plugin(plugin, "PreFlight", pre_flight.pre_flight, cycle.state, cycle.pod, cycle.node)
            status = answer if answer is None or answer is SKIP else call_plugin(plugin, "PreFlight", check_skip, answer)
        if status is None:
            yield plugin


def pre_bind_timeout(plugin: PreBindPlugin) -> float:
    """Return the timeout in seconds. Out-of-tree plugins can set the attribute `pre_bind_timeout`; the default is
    OWN_PRE_BIND."""
    if is_built_in(type(plugin)):
        return PRE_BIND
    seconds = getattr(plugin, "pre_bind_timeout", OWN_PRE_BIND)
    usable = isinstance(seconds, int | float) and 0.0 < seconds <= PRE_BIND
    return float(seconds) if usable else OWN_PRE_BIND
