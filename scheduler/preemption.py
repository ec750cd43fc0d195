"""Preemption: dry runs that find candidate nodes, and the eviction of victims.

A dry run removes victims from the table and runs the profile's filters. If the filters depend on a single node, only this node
is computed. As in Kubernetes, a search ends after a percentage of the nodes, but not before a minimum number of candidates. It
starts at a row derived from the seed and the pod's template, and continues until one candidate violates no PodDisruptionBudget.

The result for a node is reused for equivalent pods until the node or the objects that plugins read change. If preemption
does not help, the message has the reasons that remain without the pods of lower priority, as in Kubernetes.

`Evictions` deletes victims concurrently with later scheduling cycles. PostFilter plugins request it through `PreemptionHandle`.
"""

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, overload
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pinnace.api import conditions, selectors
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.policy_v1_pb2 import PodDisruptionBudget
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest, Disruption
from pinnace.api.wellknown import DISRUPTION_TARGET
from pinnace.client.errors import Conflict, Exhausted, Fenced, Internal, NotFound, Unauthenticated, Unavailable
from pinnace.client.resource import batch_errors, delete_request
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray, IntArray
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.scheduler import metrics
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.columns import ALL, Rows
from pinnace.scheduler.cache.pod_index import PodGroup
from pinnace.scheduler.cache.pod_info import PlacedPod, PodInfo
from pinnace.scheduler.cache.table import NodeTable, SomeNodes
from pinnace.scheduler.cache.what_if import NodeWithPodsRemoved, WhatIf
from pinnace.scheduler.framework.filtering import SingleNodeFilter
from pinnace.scheduler.framework.profile import Filters
from pinnace.scheduler.framework.results import Diagnosis, FilterResult, NodeReasons, PluginRejection, Rank, Victims
from pinnace.scheduler.framework.runtime import Framework, Profiles

log = logging.getLogger(__name__)

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_NEVER = -1
_FIT = "NodeResourcesFit"
_TEMPLATES = 8
BUDGET = 0.2
"""Estimated CPU seconds for the dry runs of one decision."""
_AT_LEAST = 8
"""Minimum number of dry runs, unless they take more than twice the BUDGET."""
_ROW, _HELD = 10e-6, 0.5e-6
"""Estimated seconds to filter a single row, and to match a pod with a disruption budget."""
BATCH = 1_000
"""Maximum number of deletions per call, which is the limit of the API."""
DEADLINE = 30.0
"""Seconds after which a deletion is no longer retried."""
AGAIN = 0.2
"""Seconds between retries."""
REASON = "PreemptionByScheduler"
"""The reason in the victim's condition."""
TRANSIENT = Unavailable | Internal | Unauthenticated | Exhausted
"""Errors that are independent of the victim, such as an unavailable webhook, an expired certificate, or a full etcd."""
Reasons = tuple[str, ...]
"""The reasons why a node refuses the pod. Empty: they are unknown."""
Refusal = Callable[[], Reasons]
"""Returns the reasons. It is valid until the next change of the table."""
_Key = tuple[object, ...]


class DisruptionBudgets:
    """Disruption budgets and the pods that each budget selects. A budget is matched once per group of pods."""

    def __init__(self, budgets: Sequence[PodDisruptionBudget]) -> None:
        self._budgets = budgets
        self._by_namespace: dict[str, list[tuple[int, selectors.LabelSelector]]] = {}
        for number, budget in enumerate(budgets):
            if budget.spec.HasField("selector"):
                selector = selectors.from_message(budget.spec.selector)
                self._by_namespace.setdefault(budget.metadata.namespace, []).append((number, selector))
        self._of_group: dict[PodGroup, list[int]] = {}

    def __len__(self) -> int:
        return len(self._budgets)

    def pods_violating_budgets(self, pods: Iterable[PlacedPod]) -> set[PlacedPod]:
        """Return the pods whose eviction violates a budget if all earlier pods are evicted too.

        A pod in disruptedPods is already counted in its budget.
        """
        placed_pods: set[PlacedPod] = set()
        left: dict[int, int] = {}
        for pod in pods:
            _, _, name = pod.key.partition("/")
            for number in self._budgets_of_group(pod.group):
                status = self._budgets[number].status
                if name not in status.disruptedPods:
                    left[number] = left.get(number, status.disruptionsAllowed) - 1
                    if left[number] < 0:
                        placed_pods.add(pod)
        return placed_pods

    def _budgets_of_group(self, group: PodGroup) -> list[int]:
        """Return the indexes of the budgets that select the pods of a group."""
        numbers = self._of_group.get(group)
        if numbers is None:
            candidates = self._by_namespace.get(group.namespace, ())
            numbers = self._of_group[group] = [number for number, each in candidates if each.matches(group.labels)]
        return numbers


def select_victims(
    lower: Iterable[PlacedPod],
    budgets: DisruptionBudgets,
    what_if: WhatIf | NodeWithPodsRemoved,
    refusal: Callable[[], Refusal | None],
) -> Victims | Reasons:
    """Select the victims among the node's pods of lower priority, or return the reasons that remain without all of them.

    `refusal` returns None if the pod fits on the node in the state of `what_if`. On return, `what_if` lacks all victims.
    """
    potential = sort_by_importance(lower)
    for pod in potential:
        what_if.remove_pod(pod)
    if not potential:
        return (NO_VICTIMS,)
    if (remaining := refusal()) is not None:
        return remaining()
    protected = budgets.pods_violating_budgets(potential)
    victims = []
    for pod in (
        *(placed_pod for placed_pod in potential if placed_pod in protected),
        *(placed_pod for placed_pod in potential if placed_pod not in protected),
    ):
        what_if.restore_pod(pod)
        if refusal() is not None:
            what_if.remove_pod(pod)
            victims.append(pod)
    if not victims:
        return ()
    return Victims(victims[0].node, sort_by_importance(victims), sum(pod in protected for pod in victims))


def sort_by_importance(pods: Iterable[PlacedPod]) -> list[PlacedPod]:
    """Sort the pods by importance, the most important first."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.started, pod.uid))


class FoundCandidates(Sequence[Victims]):
    """The candidates in the order of their dry runs. The sequence is valid until the next search."""

    def __init__(self, places: IntArray, victims: Mapping[int, Victims], ranked: Iterable[tuple[Rank, int]]) -> None:
        """`places` are the places of the candidates, in ascending order. `ranked` contains them and others, the best first."""
        self._places = places
        self._victims = victims
        self._ranked = ranked

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Victims: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Victims]: ...
    def __getitem__(self, index: int | slice) -> Victims | Sequence[Victims]:
        if isinstance(index, slice):
            return [self._victims[place] for place in self._places[index].tolist()]
        return self._victims[int(self._places[index])]

    @property
    def best_candidate(self) -> Victims:
        """The best candidate by Kubernetes' ranking. The sequence must not be empty."""
        return next(self._victims[place] for _, place in self._ranked if self._has(place))

    def _has(self, place: int) -> bool:
        at = int(self._places.searchsorted(place))
        return at < len(self._places) and int(self._places[at]) == place


class SearchExhausted(Exception):
    """The budget of dry runs for this decision is spent."""


class CandidateSearch:
    """The state of one search. All arrays are in search order: indexed by place, not by row."""

    def __init__(self, pod: PodInfo, rows: int, seed: int, passed: int = 0) -> None:
        """`passed` is the number of places that an earlier search has tried."""
        self._start = (crc32(pod.raw.spec.SerializeToString(deterministic=True), seed) + passed) % rows
        self.last = 0
        """The last place that was tried or was about to be tried."""
        self._versions: IntArray = np.full(rows, _NEVER)
        """The versions of the nodes at the last look."""
        self._curable: BoolArray | None = None
        self._promising = np.zeros(rows, np.bool_)
        self._tried = np.zeros(rows, np.bool_)
        self._helps = np.zeros(rows, np.bool_)
        self._harmless = np.zeros(rows, np.bool_)
        """Places that help without a violated budget."""
        self._victims: dict[int, Victims] = {}
        """The victims by place, for places that help."""
        self._reasons: dict[int, Reasons] = {}
        """The remaining reasons by place, for places that were tried and do not help."""
        self._ranked: list[tuple[Rank, int]] = []
        """The places that help, the best first."""

    def discard_row(self, row: int | None) -> None:
        """Discard the results of a row, so that the next search computes it again."""
        if row is not None:
            self._versions[(row - self._start) % len(self._versions)] = _NEVER

    def update_nodes(self, versions: IntArray, curable: BoolArray, promise: Callable[[Rows], BoolArray]) -> None:
        """Update the search for changed nodes.

        `versions` and `curable` are indexed by row. A changed `curable` must be a new array. `rows_with_room` returns the rows
        with enough room for the pod if all pods of lower priority are removed.
        """
        versions = self._in_search_order(versions)
        places = (versions != self._versions).nonzero()[0]
        if curable is not self._curable:
            self._promising = self._in_search_order(promise(ALL) & curable)
        elif len(places):
            rows = (places + self._start) % len(versions)
            self._promising[places] = promise(rows) & curable[rows]
        self._discard_places(places)
        self._versions, self._curable = versions, curable

    def find_candidates(self, enough: int, attempt: Callable[[int], Victims | Reasons]) -> FoundCandidates:
        """Return the first candidates in order, up to a sufficient number, or all candidates.

        Only places without a known result are tried. When `attempt` raises SearchExhausted, return the known candidates, or
        raise it if there are none. If the first dry run alone exhausts the budget, its place counts as not helpful, so that the
        next search continues behind it.
        """
        tried = False
        while True:
            found = (self._promising & self._helps).nonzero()[0]
            missing = enough - len(found)
            enough_found = _sufficient_prefix(found, enough, self._harmless)
            end = int(found[enough_found - 1]) + 1 if enough_found else len(self._tried)
            unknown = (self._promising[:end] & ~self._tried[:end]).nonzero()[0]
            if not len(unknown):
                return FoundCandidates(found[:enough_found] if enough_found else found, self._victims, self._ranked)
            for place in (unknown[:missing] if missing > 0 else unknown).tolist():
                self.last = place
                try:
                    result = attempt(self._row_at(place))
                except SearchExhausted:
                    if not tried:
                        self._store_result(place, ())
                        self.last = place + 1
                    found = (self._promising & self._helps).nonzero()[0]
                    if not len(found):
                        raise
                    return FoundCandidates(found, self._victims, self._ranked)
                tried = True
                self._store_result(place, result)
                if missing <= 0 and self._harmless[place]:
                    break

    def try_rows(self, rows: BoolArray, attempt: Callable[[int], Victims | Reasons]) -> None:
        """Try these rows too, for their reasons, until `attempt` raises SearchExhausted."""
        with suppress(SearchExhausted):
            for place in (self._in_search_order(rows) & ~self._tried).nonzero()[0].tolist():
                self._store_result(place, attempt(self._row_at(place)))

    def remaining_reasons(self) -> dict[int, Reasons]:
        """Return the reasons that remain by row, for rows that were tried and do not help."""
        return {self._row_at(place): reasons for place, reasons in self._reasons.items() if self._tried[place]}

    def _row_at(self, place: int) -> int:
        return (place + self._start) % len(self._tried)

    def _store_result(self, place: int, result: Victims | Reasons) -> None:
        """Store the result of a dry run."""
        self._tried[place] = True
        if not isinstance(result, Victims):
            self._reasons[place] = result
            return
        self._helps[place] = True
        self._reasons.pop(place, None)
        self._harmless[place] = not result.violations
        self._victims[place] = result
        insort(self._ranked, (result.rank, place))

    def _discard_places(self, places: IntArray) -> None:
        """Discard the results of these places."""
        for place in places[self._helps[places]].tolist():
            del self._ranked[bisect_left(self._ranked, (self._victims.pop(place).rank, place))]
        self._tried[places] = self._helps[places] = self._harmless[places] = False

    def _in_search_order(self, by_row: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((by_row[self._start :], by_row[: self._start]))


def _sufficient_prefix(found: IntArray, enough: int, harmless: BoolArray) -> int:
    """Return the length of the shortest sufficient prefix of `found` that includes a harmless candidate, or 0."""
    if len(found) < enough:
        return 0
    harmless_at = harmless[found].nonzero()[0]
    return max(enough, int(harmless_at[0]) + 1) if len(harmless_at) else 0


@dataclass(frozen=True, slots=True)
class CandidateBounds:
    """The sufficient number of candidates: a percentage of the curable nodes, but at least `absolute`."""

    percentage: int = 10
    absolute: int = 100

    def sufficient_candidates(self, nodes: int) -> int:
        return max(nodes * self.percentage // 100, self.absolute)


class CandidateFinder:
    def __init__(self, bounds: CandidateBounds) -> None:
        self._bounds = bounds
        self._searches: dict[_Key, CandidateSearch] = {}
        """Searches by template, the least recently used first."""
        self._stopped: dict[bytes, int] = {}
        """The offset at which a search without a result stopped, by template."""
        self._analyzed: dict[int, tuple[Diagnosis, BoolArray, SingleNodeFilter | None]] = {}
        """The latest diagnoses by id, with the values derived from each. Equivalent pods share a diagnosis
        (scheduler.framework.reuse)."""

    def find_candidates(
        self,
        pod: PodInfo,
        diagnosis: Diagnosis,
        cache: Cache,
        filters: Filters,
        budgets: Sequence[PodDisruptionBudget],
        seed: int,
    ) -> FoundCandidates | Diagnosis:
        """Return at least one candidate, or a diagnosis with the reasons why there is none.

        `diagnosis` has the reasons why no node fits the pod at present. Raise SearchExhausted if BUDGET is spent before the
        first candidate. The next search for an equivalent pod then continues at the same place.
        """
        nodes = cache.nodes
        curable, one_by_one = self._analyze_diagnosis(diagnosis, filters)
        without = _NodesWithoutLowerPods(pod, cache, filters)
        stopped = self._stopped.pop(pod.template, 0)
        if one_by_one is not None:
            search = self._search_of(pod, budgets, nodes, seed)
        else:
            search = CandidateSearch(pod, len(nodes), seed, stopped)
        dry_runs = _DryRuns(pod, cache, filters, one_by_one, budgets)
        own = nodes.row(nodes.nominated.node_of(pod.uid))  # on this row the pod's own nomination must not count
        search.discard_row(own)
        try:
            search.update_nodes(nodes.versions, curable, without.rows_with_room)
            result = search.find_candidates(
                max(self._bounds.sufficient_candidates(int(np.count_nonzero(curable))), 1), dry_runs.run_on
            )
        except SearchExhausted:
            self._stopped[pod.template] = stopped + search.last
            if len(self._stopped) > _TEMPLATES:
                del self._stopped[next(iter(self._stopped))]
            raise
        finally:
            search.discard_row(own)
        if result:
            return result
        unresolvable, lasting = filters.unresolvable_nodes(diagnosis), filters.lasting_refusals(diagnosis)
        search.try_rows(without.rows_for_dry_run(diagnosis, lasting) & ~unresolvable, dry_runs.run_on)
        refusals = [
            ("", FilterResult.refusing(unresolvable, NOT_HELPFUL)),
            ("", _result_of_dry_runs(search.remaining_reasons(), len(nodes))),
        ]
        return Diagnosis(len(nodes), [*refusals, *without.refusals(), *lasting, *diagnosis.refusals])

    def _analyze_diagnosis(self, diagnosis: Diagnosis, filters: Filters) -> tuple[BoolArray, SingleNodeFilter | None]:
        """Return the mask of curable nodes and the single-node filter, cached by diagnosis."""
        known = self._analyzed.pop(id(diagnosis), None)
        result = self._analyzed[id(diagnosis)] = known or (
            diagnosis,
            filters.curable_nodes(diagnosis),
            filters.single_node_filter(diagnosis),
        )
        if len(self._analyzed) > _TEMPLATES:
            del self._analyzed[next(iter(self._analyzed))]
        return result[1:]

    def _search_of(self, pod: PodInfo, budgets: Sequence[PodDisruptionBudget], nodes: NodeTable, seed: int) -> CandidateSearch:
        key = (
            pod.template,
            pod.identity,
            nodes.generation,
            *(f"{budget.metadata.uid} {budget.metadata.resourceVersion}" for budget in budgets),
        )
        search = self._searches.pop(key, None) or CandidateSearch(pod, len(nodes), seed)
        self._searches[key] = search
        if len(self._searches) > _TEMPLATES:
            del self._searches[next(iter(self._searches))]
        return search


def _result_of_dry_runs(remaining: Mapping[int, Reasons], nodes: int) -> FilterResult:
    """Return the result of dry runs. Rows without reasons pass."""
    listed = list(dict.fromkeys(reasons for reasons in remaining.values() if reasons))
    code_of = {reasons: number for number, reasons in enumerate(listed, start=1)}
    codes = np.zeros(nodes, np.int64)
    for row, reasons in remaining.items():
        codes[row] = code_of.get(reasons, 0)
    return FilterResult(codes == 0, lambda: NodeReasons(codes, lambda code: listed[code - 1]))


class _NodesWithoutLowerPods:
    """The nodes without their pods of lower priority. Methods raise the errors of the filter."""

    def __init__(self, pod: PodInfo, cache: Cache, filters: Filters) -> None:
        self._pod = pod
        self._filters = filters
        self._lower = cache.requests_below(pod.priority)
        self._nodes = cache.nodes.subtract_reserved(pod.priority, pod.uid).add_amounts(self._lower)

    def rows_with_room(self, rows: Rows) -> BoolArray:
        """Return the rows that have pods of lower priority, and enough room for the pod without them."""
        room = self._rows_with_resources(rows)
        return self._rows_with_lower_pods(rows) if room is None else self._rows_with_lower_pods(rows) & room.passed

    def refusals(self) -> list[tuple[str, FilterResult]]:
        """Return the reasons for rows that `rows_with_room` excludes."""
        room = self._rows_with_resources(ALL)
        refusals = [("", FilterResult.refusing(~self._rows_with_lower_pods(ALL), NO_VICTIMS))]
        return refusals if room is None else [*refusals, (_FIT, room)]

    def rows_for_dry_run(self, diagnosis: Diagnosis, lasting: Iterable[tuple[str, FilterResult]]) -> BoolArray:
        """Return the rows of which only a dry run says which refusal remains.

        A plugin other than NodeResourcesFit refuses them because of pods, and NodeResourcesFit does not stay the first one.
        """
        stays = {plugin: result.passed for plugin, result in lasting}
        unclear = np.zeros(len(self._nodes), np.bool_)
        short_first = unclear.copy()
        for plugin, result in diagnosis.refusals:
            if plugin != _FIT:
                unclear |= ~result.passed & stays.get(plugin, True)
            elif (room := self._rows_with_resources(ALL)) is not None:
                short_first = ~result.passed & ~room.passed & ~unclear
        return unclear & ~short_first & self._rows_with_lower_pods(ALL)

    def _rows_with_lower_pods(self, rows: Rows) -> BoolArray:
        return self._lower[PODS][rows] > 0 if PODS in self._lower else np.zeros(len(self._nodes), np.bool_)[rows]

    def _rows_with_resources(self, rows: Rows) -> FilterResult | None:
        nodes = self._nodes if rows is ALL else SomeNodes(self._nodes, rows)
        return self._filters.run_single_filter(_FIT, self._pod, nodes)


class _DryRuns:
    """The dry runs of one decision."""

    def __init__(
        self,
        pod: PodInfo,
        cache: Cache,
        filters: Filters,
        one_by_one: SingleNodeFilter | None,
        budgets: Sequence[PodDisruptionBudget],
    ) -> None:
        self._pod = pod
        self._cache = cache
        self._filters = filters
        self._one_by_one = one_by_one
        self._budgets = DisruptionBudgets(budgets)
        alone = SomeNodes(cache.nodes, slice(0, 1))
        self._ask = (
            _ROW + filters.filter_cost_bound(pod, alone)
            if one_by_one is not None
            else filters.estimate_filter_cost(pod, cache.nodes)
        )
        """Estimated seconds per evaluation of a node."""
        self._left = BUDGET
        self._runs = 0

    def run_on(self, row: int) -> Victims | Reasons:
        """Return the victims on this node, or the reasons that remain without all pods of lower priority. Raise PluginError or
        SearchExhausted."""
        if self._left <= 0 and self._runs >= _AT_LEAST:
            raise SearchExhausted
        self._runs += 1
        nodes, one_by_one = self._cache.nodes, self._one_by_one
        name = nodes.names[row]
        lower = [pod for pod in self._cache.pods_on(name) if pod.priority < self._pod.priority]
        self._left -= len(self._budgets) * (1 + len(lower)) * _HELD
        if (
            one_by_one is not None
            and one_by_one.depends_on_resources_only
            and not nodes.nominated.nominated_pods_with_precedence(self._pod, name)
        ):
            freed = NodeWithPodsRemoved(nodes, row)
            return select_victims(lower, self._budgets, freed, lambda: self._row_refusal(one_by_one, row, freed))
        node = SomeNodes(nodes, slice(row, row + 1))
        with self._cache.what_if() as what_if:
            return select_victims(lower, self._budgets, what_if, lambda: self._find_refusal(row, node, what_if))

    def _spend_budget(self) -> None:
        """Subtract one evaluation from the budget. A node is evaluated once per potential victim."""
        if self._left < -BUDGET:
            raise SearchExhausted
        self._left -= self._ask

    def _row_refusal(self, one_by_one: SingleNodeFilter, row: int, node: NodeTable) -> Refusal | None:
        self._spend_budget()
        if one_by_one.passes_filters(self._pod, row, node):
            return None

        def reasons() -> Reasons:
            self._spend_budget()
            return one_by_one.refusal_reasons(self._pod, row, node)

        return reasons

    def _find_refusal(self, row: int, node: NodeTable, what_if: WhatIf) -> Refusal | None:
        """Return None if the pod fits both with and without the nominated pods that have precedence on the node.

        It must also fit without them, because nominated pods may never be bound. `node` is the row as a table of its own.
        """
        nodes = self._cache.nodes
        name = nodes.names[row]
        ahead = nodes.nominated.nominated_pods_with_precedence(self._pod, name)
        if ahead:
            for pod_info in ahead:
                what_if.add_pod(pod_info, name)
            crowded = self._full_refusal(row)  # all filters: a nominated pod may add constraints that one_by_one ignores
            reasons = crowded() if crowded is not None else ()
            what_if.undo_adds()
            if crowded is not None:
                return lambda: reasons
        return self._full_refusal(row) if self._one_by_one is None else self._row_refusal(self._one_by_one, row, node)

    def _full_refusal(self, row: int) -> Refusal | None:
        self._spend_budget()
        diagnosis = self._filters.run_filters({}, self._pod, self._cache.nodes)
        return None if diagnosis.passes(row) else partial(diagnosis.first_reasons, row)


class EvictionClient(Protocol):
    """The method of pinnace.client.client.PodClient that is used here."""

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]: ...


class BindCanceller(Protocol):
    """The methods of pinnace.scheduler.binding_cycle.Binder that are used here."""

    def cancel_bind(self, uid: str, refused: PluginRejection) -> bool: ...
    def is_bind_cancelled(self, uid: str) -> bool: ...


class Recorder(Protocol):
    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Eviction:
    pod: Pod
    """The victim at the time of its selection."""
    told: str
    """The message of the event."""
    preemptors: set[str]
    """The UIDs of the preemptors."""
    scheduler: str
    """The scheduler name of the preemptor."""
    until: float


class Evictions:
    def __init__(
        self,
        pods: EvictionClient,
        binding: BindCanceller,
        store: Mapping[str, Pod],
        recorder: Recorder,
        activate: Callable[[str], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`store` is the informer's store. `activate` is called with the UID of a preemptor if its victim cannot be deleted."""
        self._pods = pods
        self._binding = binding
        self._store = store
        self._recorder = recorder
        self._activate = activate
        self._clock = clock
        self._pending: dict[str, _Eviction] = {}
        """Pending evictions by the UID of the victim."""
        self._some = asyncio.Event()

    def evict_victims(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        """Evict the victims, except pods that are already being deleted. `plugin` is the name of the selecting plugin."""
        told = f"Preempted by pod {preemptor.key} on node {node}"
        until = self._clock.monotonic() + DEADLINE
        for victim in victims:
            pod, pending = self._current_pod(victim.key, victim.uid), self._pending.get(victim.uid)
            if self._binding.cancel_bind(victim.uid, PluginRejection(plugin, "preempted")):
                if pod is not None:
                    self._recorder.event(pod, "Normal", "Preempted", told)
            elif pending is not None:
                pending.preemptors.add(preemptor.uid)
            elif pod is not None and victim.group.living:
                self._pending[victim.uid] = _Eviction(pod, told, {preemptor.uid}, preemptor.raw.spec.schedulerName, until)
                self._some.set()

    def is_pending(self, uid: str) -> bool:
        """Return True if the deletion of the pod is pending, or if its bind was called off and the pod is still assumed."""
        return uid in self._pending or self._binding.is_bind_cancelled(uid)

    def discard_pending(self) -> None:
        """Drop all pending evictions when the term ends."""
        self._pending.clear()

    async def run(self) -> None:
        """Delete victims until cancelled."""
        while True:
            while not self._pending:
                self._some.clear()
                await self._some.wait()
            batch = list(self._pending.values())[:BATCH]
            left = await self._evict_batch(batch)
            for eviction in batch:
                uid = eviction.pod.metadata.uid
                if eviction not in left and self._pending.get(uid) is eviction:  # it may have been dropped and submitted again
                    del self._pending[uid]
            if left:
                await self._clock.sleep(AGAIN)

    async def _evict_batch(self, batch: Sequence[_Eviction]) -> list[_Eviction]:
        """Delete a batch of victims. Return the evictions to retry."""
        answers = await batch_errors(self._pods.delete_batch, [_create_delete_request(eviction) for eviction in batch])
        left = []
        for each, answer in zip(batch, answers, strict=True):
            if answer is None:
                self._recorder.event(each.pod, "Normal", "Preempted", each.told)
            elif isinstance(answer, TRANSIENT) and self._clock.monotonic() < each.until:
                left.append(each)
            elif not isinstance(answer, NotFound | Conflict | Fenced):
                log.warning("preemption of pod %s/%s: %s", each.pod.metadata.namespace, each.pod.metadata.name, answer)
                for preemptor in sorted(each.preemptors):
                    self._activate(preemptor)
        return left

    def _current_pod(self, key: str, uid: str) -> Pod | None:
        pod = self._store.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None


def _create_delete_request(eviction: _Eviction) -> DeleteRequest:
    metadata = eviction.pod.metadata
    why = Disruption(reason=REASON, message=f"{eviction.scheduler}: preempting to accommodate a higher priority pod")
    return delete_request(metadata.name, metadata.namespace, uid=metadata.uid, disruption=why)


class PreemptionHandle:
    def __init__(self, cache: Cache, evictions: Evictions, store: Mapping[str, Pod], seed: int) -> None:
        """`store` is the informer's store."""
        self.cache = cache
        self.seed = seed
        self.profiles = Profiles({})
        """The profiles; set after the construction of the plugins."""
        self._evictions = evictions
        self._store = store

    def filters(self, pod: PodInfo) -> Framework:
        return self.profiles.framework_of(pod)

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        metrics.VICTIMS.observe(len(victims))
        self._evictions.evict_victims(plugin, preemptor, node, victims)

    def is_leaving(self, pod: PlacedPod) -> bool:
        if self._evictions.is_pending(pod.uid):
            return True
        current = self._store.get(pod.key)
        return (
            current is not None
            and current.metadata.uid == pod.uid
            and current.metadata.HasField("deletionTimestamp")
            and (why := conditions.find_condition(current.status.conditions, DISRUPTION_TARGET)) is not None
            and why.reason == REASON
        )
