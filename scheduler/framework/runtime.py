"""Runs the plugins of a profile. The failure of a plugin fails one attempt. `Profiles` holds all profiles of a scheduler."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pinnace.fit.table import BoolArray
from scheduler.cache.changes import ANY, Change, ClusterEvent
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.table import FloatArray, NodeTable
from scheduler.framework.binding_plugins import BindingPlugins
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.faults import (
    Faults,
    call,
    changes_of,
    check_post_filter,
    check_range,
    check_scores,
    check_skip,
    check_sort_key,
    check_truth,
    is_built_in,
)
from scheduler.framework.filtering import BY_ROWS, CostBound, OneByOne, RowFilters, is_small, run_filter, run_pre_filter, sees
from scheduler.framework.interface import (
    CostPlugin,
    EnqueueHint,
    FilterPlugin,
    Gate,
    NormalizePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Sees,
)
from scheduler.framework.profile import Enabled, Point, Profile, check
from scheduler.framework.results import SKIP, CycleState, FilterResult, Nominated, PluginError, Proposed, whole


@dataclass(frozen=True, slots=True)
class Scorer:
    plugin: ScorePlugin
    weight: float
    pre_score: PreScorePlugin | None
    normalize: NormalizePlugin | None
    checked: bool
    """Its answers are checked; those of this project's own plugins are not."""
    faults: Faults

    def skips(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> bool:
        """Raises PluginError, as `scores`."""
        if self.pre_score is None:
            return False
        answer = call(self.plugin, "PreScore", self.pre_score.pre_score, state, pod, nodes, feasible)
        return answer is SKIP or (answer is not None and call(self.plugin, "PreScore", check_skip, answer) is SKIP)

    def weighted(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores = self.scores(state, pod, nodes, feasible)
        return scores if self.weight == 1 else self.weight * scores

    def scores(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """Of every node, without the weight. Those of built-in plugins are whole numbers, as kube-scheduler's are."""
        plugin, point = self.plugin, "Score"
        scores = call(plugin, point, plugin.score, state, pod, nodes, feasible)
        if self.normalize is not None:
            if self.checked:
                scores = call(plugin, point, check_scores, scores, feasible)
            point = "NormalizeScore"
            scores = call(plugin, point, self.normalize.normalize, state, scores, feasible)
        if not self.checked:
            return whole(scores)
        scores = call(plugin, point, check_scores, scores, feasible)
        scores, clipped = call(plugin, point, check_range, scores, feasible)
        if clipped:
            self.faults.warn(f'plugin "{plugin.name}" in {point}', clipped)
        return scores


class Framework:
    """One profile: pods that name `scheduler_name` are scheduled by these plugins."""

    def __init__(self, scheduler_name: str, profile: Profile) -> None:
        """Raises ValueError when the plugins do not make a profile."""
        self.scheduler_name = scheduler_name
        self.profile = profile
        check(profile)

        def at(point: Point) -> list[Any]:
            return [each.plugin for each in profile.get(point, ())]

        self._faults = Faults()
        plugins = [each.plugin for enabled in profile.values() for each in enabled]
        self.foreign = frozenset(each.name for each in plugins if not is_built_in(type(each)))
        """The plugins that are not ours: their answers are checked."""
        self._sorter = at(Point.QUEUE_SORT)[0]
        self._pre_enqueue = at(Point.PRE_ENQUEUE)
        self.pre_filters: list[PreFilterPlugin] = at(Point.PRE_FILTER)
        self.filters: list[FilterPlugin] = at(Point.FILTER)
        self._filtering = {plugin.name for plugin in self.filters}
        self._post_filters = at(Point.POST_FILTER)
        self.scorers = [_scorer(each, self._faults) for each in profile.get(Point.SCORE, ()) if each.weight]
        self._hints = {each.name: each for point in _REFUSING for each in at(point) if isinstance(each, EnqueueHint)}
        self._makers_of_room = [
            each for each in self._post_filters if isinstance(each, EnqueueHint) and each.name not in self._hints
        ]
        deciding = dict.fromkeys([*self.pre_filters, *self.filters, *(each.plugin for each in self.scorers)])
        self._cost_bound = CostBound([each for each in deciding if isinstance(each, CostPlugin)])
        self._hints[CostBound.name] = self._cost_bound
        self._hints |= {each.name: each for each in self._pre_enqueue if isinstance(each, EnqueueHint)}
        self.binding = BindingPlugins(
            at(Point.RESERVE), at(Point.PERMIT), at(Point.PRE_BIND), at(Point.BIND), at(Point.POST_BIND)
        )
        """The plugins that take part once a node is chosen."""

    def gate(self, pod: PodInfo) -> Gate | None:
        """What holds the pod back; None: it may be considered."""
        for plugin in self._pre_enqueue:
            try:
                answer = call(plugin, "PreEnqueue", plugin.pre_enqueue, pod)
                held = answer is not True and call(plugin, "PreEnqueue", check_truth, answer) is False
            except PluginError as error:
                self._faults.note(error)
                return None
            if held:
                return Gate(plugin.name, self._gate_awaits(plugin.name))
        return None

    def _gate_awaits(self, plugin: str) -> Change:
        """Of what is held back at PreEnqueue. Anything, where the plugin says it wrongly."""
        return self._awaits(self._hints.get(plugin, _ANYTHING))

    def _awaits(self, hint: EnqueueHint) -> Change:
        """Its `helped_by`. Anything, where the plugin says it wrongly."""
        if hint.name not in self.foreign:
            return hint.helped_by
        try:
            return call(hint, "helped_by", changes_of, hint)
        except PluginError as error:
            self._faults.note(error)
            return ANY

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        sorter = self._sorter
        try:
            key = call(sorter, "QueueSort", sorter.sort_key, pod, since)
            return call(sorter, "QueueSort", check_sort_key, key) if sorter.name in self.foreign else tuple(map(float, key))
        except PluginError as error:
            self._faults.note(error)
            return ()

    def awaited(self, refused_by: frozenset[str], pod: PodInfo) -> Change:
        """The kinds of changes of which one may help a pod that these plugins refused; none: anything may."""
        awaited = Change.NONE
        for name in refused_by:
            for hint in self._helpers(name):
                awaited |= self._awaits(hint)
        return awaited or ANY

    def helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        """May the event help a pod that this plugin refused? Of a large pod only the kind of the event is asked: what it states
        would be held against each event, of which there may be thousands a second."""
        for hint in self._helpers(plugin):
            if event.change & self._awaits(hint):
                if not is_small(pod) and hint is not self._cost_bound:
                    return True
                try:
                    answer = call(hint, "helps", hint.helps, event, pod, nodes)
                    if answer is True or (answer is not False and call(hint, "helps", check_truth, answer)):
                        return True
                except PluginError as error:
                    self._faults.note(error)
                    return True
        return False

    def _helpers(self, plugin: str) -> Iterator[EnqueueHint]:
        """Who knows what may help a pod that the plugin refused: the plugin, and those that make room if room is lacking. What
        no filter refuses is no matter of room."""
        hint = self._hints.get(plugin, _ANYTHING)
        yield hint
        if plugin in self._filtering and Change.POD_FREED in self._awaits(hint):
            yield from self._makers_of_room

    def awaited_plugins(self, pod: PodInfo, diagnosis: Diagnosis) -> frozenset[str]:
        """Those of whose verdicts one must change before another attempt makes sense: of each node the first that refuses it;
        for a pod that may preempt, see `_not_overcome`."""
        may_preempt = bool(self._makers_of_room) and pod.raw.spec.preemptionPolicy != "Never"
        found = diagnosis.awaited.get(may_preempt)
        if found is None:
            of_one = not may_preempt or diagnosis.pre_filter is not None
            found = diagnosis.awaited[may_preempt] = diagnosis.plugins if of_one else self._not_overcome(diagnosis)
        return found

    def _not_overcome(self, diagnosis: Diagnosis) -> frozenset[str]:
        """Where removing pods does not overcome what refuses a node, the first such plugin. Else it is up to all that refuse
        the node, and to who would once pods have left it. Whom pods that come may help counts wherever it refuses: the search
        for victims may have failed for it on other nodes."""
        awaited, left = set(), np.ones(diagnosis.nodes, np.bool_)
        for plugin, result in diagnosis.refusals:
            lasting = self._lasting(plugin, result)
            if lasting is not None and (left & lasting).any():
                awaited.add(plugin)
                left &= ~lasting
        for plugin, result in diagnosis.refusals:
            refused = ~result.passed if self._needs_pods(plugin) else ~result.passed & left
            if refused.any() or (result.needs_pods and left.any()):
                awaited.add(plugin)
        return frozenset(awaited)

    def _needs_pods(self, plugin: str) -> bool:
        """May it refuse a node that it passes, once pods have left it? Then pods that come may help."""
        hint = self._hints.get(plugin)
        return hint is None or Change.POD_PLACED in self._awaits(hint)

    def _lasting(self, plugin: str, result: FilterResult) -> BoolArray | None:
        """The nodes that it refuses whatever pods left them. None: there are none."""
        hint = self._hints.get(plugin)
        if hint is not None and Change.POD_FREED not in self._awaits(hint):
            return ~result.passed
        return result.hopeless() if result.hopeless is not None else None

    def too_costly(self, pod: PodInfo, nodes: NodeTable) -> Diagnosis | None:
        """Why no decision may be made about the pod, before any plugin does its work. Raises PluginError."""
        if is_small(pod):
            return None
        reason = self._cost_bound.refusal(pod, nodes)
        return Diagnosis(len(nodes), pre_filter=(CostBound.name, reason)) if reason else None

    def cost(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Seconds of CPU that the items of the pod take, rather too much than too little. Raises PluginError."""
        return self._cost_bound.estimate(pod, nodes)

    def estimate(self, pod: PodInfo, nodes: NodeTable) -> float:
        """Seconds of CPU that `judge` takes, rather too much than too little. Raises PluginError."""
        return self.cost(pod, nodes) + _JUDGE + len(nodes) * _JUDGE_NODE

    def judge(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Diagnosis:
        """Every filter's verdict on every node. Raises PluginError."""
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

    def ask(self, plugin: str, pod: PodInfo, nodes: NodeTable) -> FilterResult | None:
        """One filter's verdict, without its PreFilter. None: the profile has no such filter. Raises PluginError."""
        found = next((each for each in self.filters if each.name == plugin), None)
        return run_filter(found, {}, pod, nodes) if found is not None else None

    def curable(self, diagnosis: Diagnosis) -> BoolArray:
        """The nodes that might take the pod if other pods left them, as far as those say that refuse them."""
        curable = np.full(diagnosis.nodes, diagnosis.pre_filter is None)
        for plugin, result in diagnosis.refusals:
            if (lasting := self._lasting(plugin, result)) is not None:
                curable &= ~lasting
        if diagnosis.hopeless is not None:
            curable &= ~diagnosis.hopeless
        return curable

    def unresolvable(self, diagnosis: Diagnosis) -> BoolArray:
        """The nodes whose first refusal no removal of pods resolves. kube-scheduler stops at the first filter that refuses a
        node, so its message counts only these as "Preemption is not helpful for scheduling"."""
        found = np.full(diagnosis.nodes, diagnosis.pre_filter is not None)
        left = np.ones(diagnosis.nodes, np.bool_)
        for plugin, result in diagnosis.refusals:
            if (lasting := self._lasting(plugin, result)) is not None:
                found |= left & lasting
            left &= result.passed
        return found if diagnosis.hopeless is None else found | (left & diagnosis.hopeless)

    def lasting(self, diagnosis: Diagnosis) -> Sequence[tuple[str, FilterResult]]:
        """The refusals that no removal of pods resolves, by plugin."""
        found = [(plugin, result, self._lasting(plugin, result)) for plugin, result in diagnosis.refusals]
        return [(plugin, FilterResult(~lasting, result.explain)) for plugin, result, lasting in found if lasting is not None]

    def one_by_one(self, diagnosis: Diagnosis) -> OneByOne | None:
        """The filters as they judge each node by itself. None: one that had something to say about the pod sees more."""
        said = dict(diagnosis.refusals)
        by_nodes: list[BoolArray] = []
        by_rows: list[FilterPlugin] = []
        for filterer in self.filters:
            seen, result = sees(filterer, "filter_sees"), said.pop(filterer.name, None)
            if result is None:
                if seen is Sees.EVERYTHING and sees(filterer, "skip_sees") is not Sees.NODES:
                    return None
            elif seen is Sees.NODES:
                by_nodes.append(result.passed)
            elif seen in BY_ROWS:
                by_rows.append(filterer)
            else:
                return None
        return None if said or diagnosis.pre_filter is not None else OneByOne(by_nodes, RowFilters(by_rows))

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis
    ) -> tuple[Nominated, bool] | Proposed:
        """After no node was found: the node where room is being made, and what is to be said of it, each may be empty; and
        whether the pod is to be tried again in any case. Or where room could be made. Raises PluginError."""
        said, unfinished = [], False
        for plugin in self._post_filters:
            answer = call(plugin, "PostFilter", plugin.post_filter, state, pod, nodes, diagnosis)
            if plugin.name in self.foreign:
                answer = call(plugin, "PostFilter", check_post_filter, plugin, answer, nodes)
            if isinstance(answer, Proposed):
                return answer
            if isinstance(answer, Nominated):
                return answer, False
            if answer is not None and answer.reason:
                said.append(answer.reason)
                unfinished |= answer.unfinished
        return Nominated("", " ".join(said)), unfinished

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """The weighted sum of each node's scores; -inf where a node is not feasible. Raises PluginError."""
        total = np.zeros(len(nodes))
        for scorer in self.scorers:
            if not scorer.skips(state, pod, nodes, feasible):
                total += scorer.weighted(state, pod, nodes, feasible)
        np.putmask(total, ~feasible, -np.inf)
        return total


_JUDGE, _JUDGE_NODE = 50e-6, 60e-9
"""Seconds, of an ordinary pod."""


class _Anything:
    """The hint of a plugin that has none."""

    name = ""
    helped_by = ANY

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return True


_ANYTHING = _Anything()
_REFUSING = (Point.PRE_FILTER, Point.FILTER, Point.RESERVE, Point.PERMIT)
"""Where a plugin can leave a pod without a place."""


def _scorer(enabled: Enabled, faults: Faults) -> Scorer:
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
    """Each pod is handled by the profile that its spec.schedulerName names; there must be one."""

    def __init__(self, frameworks: Mapping[str, Framework]) -> None:
        self._frameworks = frameworks

    def of(self, pod: PodInfo) -> Framework:
        return self._frameworks[pod.raw.spec.schedulerName]

    def gate(self, pod: PodInfo) -> Gate | None:
        return self.of(pod).gate(pod)

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float, ...]:
        return self.of(pod).sort_key(pod, since)

    def awaited(self, refused_by: frozenset[str], pod: PodInfo) -> Change:
        return self.of(pod).awaited(refused_by, pod)

    def helps(self, plugin: str, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return self.of(pod).helps(plugin, event, pod, nodes)
