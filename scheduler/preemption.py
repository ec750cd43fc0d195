"""Preemption candidates: the nodes where removing pods of lower priority makes room, found by dry runs.

A dry run removes victims in the table and runs the profile's own filters. If the filters see one node only, only that node is
computed. As in Kubernetes, a search ends after a share of the nodes, but at least a minimum number. It starts at a row that the
seed and the pod's template decide, and continues until one candidate violates no PodDisruptionBudget.

The result for a node is reused for pods that are alike while the node and the objects that plugins read do not change.

Removes victims concurrently with later scheduling cycles, and the handle through which PostFilter plugins request it.
"""

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from pinnace.client.resource import delete_request, errors_of
from pinnace.fit.requests import PODS
from pinnace.fit.table import BoolArray, IntArray
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from scheduler import metrics
from scheduler.cache.cache import Cache
from scheduler.cache.columns import ALL, Rows
from scheduler.cache.pod_index import PodGroup
from scheduler.cache.pod_info import PlacedPod, PodInfo
from scheduler.cache.table import NodeTable, SomeNodes
from scheduler.cache.what_if import Freed, WhatIf
from scheduler.framework.filtering import SingleNodeFilter
from scheduler.framework.profile import Filters
from scheduler.framework.results import Diagnosis, FilterResult, PluginRejection, Rank, Victims
from scheduler.framework.runtime import Framework, Profiles

log = logging.getLogger(__name__)


class Budgets:
    """Disruption budgets, and the pods that each selects. A budget is compared once with all pods of a group."""

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

    def protected(self, pods: Iterable[PlacedPod]) -> set[PlacedPod]:
        """The pods whose loss would violate a budget, if the pods before them were lost too. A pod whose disruption has been
        granted is counted in its budget already."""
        found: set[PlacedPod] = set()
        left: dict[int, int] = {}
        for pod in pods:
            _, _, name = pod.key.partition("/")
            for number in self._selecting(pod.group):
                status = self._budgets[number].status
                if name not in status.disruptedPods:
                    left[number] = left.get(number, status.disruptionsAllowed) - 1
                    if left[number] < 0:
                        found.add(pod)
        return found

    def _selecting(self, group: PodGroup) -> list[int]:
        """Indexes of the budgets whose selector matches the pods of a group."""
        numbers = self._of_group.get(group)
        if numbers is None:
            candidates = self._by_namespace.get(group.namespace, ())
            numbers = self._of_group[group] = [number for number, each in candidates if each.matches(group.labels)]
        return numbers


def select_victims(
    lower: Iterable[PlacedPod], budgets: Budgets, what_if: WhatIf | Freed, fits: Callable[[], bool]
) -> Victims | None:
    """Who must go of one node's pods of a lower priority. None: it would not help, or nobody is in the way.

    `fits`: would the pod fit on the node, as things are in `what_if`? That is left with all victims thought away.
    """
    potential = by_importance(lower)
    for pod in potential:
        what_if.lift(pod)
    if not potential or not fits():
        return None
    protected = budgets.protected(potential)
    victims = []
    for pod in (*(each for each in potential if each in protected), *(each for each in potential if each not in protected)):
        what_if.put_back(pod)
        if not fits():
            what_if.lift(pod)
            victims.append(pod)
    if not victims:
        return None
    return Victims(victims[0].node, by_importance(victims), sum(pod in protected for pod in victims))


def by_importance(pods: Iterable[PlacedPod]) -> list[PlacedPod]:
    """The most important first."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.started, pod.uid))


class Found(Sequence[Victims]):
    """In the order in which they were tried. It holds until the next search."""

    def __init__(self, places: IntArray, victims: Mapping[int, Victims], ranked: Iterable[tuple[Rank, int]]) -> None:
        """Of each of these places, which ascend, its victims. `ranked`: these places among others, the best first."""
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
    def best(self) -> Victims:
        """By the rules; there must be one."""
        return next(self._victims[place] for _, place in self._ranked if self._has(place))

    def _has(self, place: int) -> bool:
        at = int(self._places.searchsorted(place))
        return at < len(self._places) and int(self._places[at]) == place


_NEVER = -1


class SearchExhausted(Exception):
    """No more dry runs are made in this decision."""


class Search:
    """All arrays are in the order in which nodes are tried: by place, not by row."""

    def __init__(self, pod: PodInfo, rows: int, seed: int, passed: int = 0) -> None:
        """`passed`: places that another search has tried."""
        self._start = (crc32(pod.raw.spec.SerializeToString(deterministic=True), seed) + passed) % rows
        self.last = 0
        """The last place that was tried, or would have been."""
        self._versions: IntArray = np.full(rows, _NEVER)
        """Those of the nodes when they were last looked at."""
        self._curable: BoolArray | None = None
        self._promising = np.zeros(rows, np.bool_)
        self._tried = np.zeros(rows, np.bool_)
        self._helps = np.zeros(rows, np.bool_)
        self._harmless = np.zeros(rows, np.bool_)
        """It helps, and violates no budget."""
        self._victims: dict[int, Victims] = {}
        """Of the places that help."""
        self._ranked: list[tuple[Rank, int]] = []
        """The same places, the best first."""

    def forget(self, row: int | None) -> None:
        """It is to be looked at anew."""
        if row is not None:
            self._versions[(row - self._start) % len(self._versions)] = _NEVER

    def look(self, versions: IntArray, curable: BoolArray, promise: Callable[[Rows], BoolArray]) -> None:
        """Looks at what has changed. `versions`, `curable`: of all nodes, by row; another array if it is not what it was the
        last time. `promise`: would room be enough there without pods of a lower priority?"""
        versions = self._in_order(versions)
        places = (versions != self._versions).nonzero()[0]
        if curable is not self._curable:
            self._promising = self._in_order(promise(ALL) & curable)
        elif len(places):
            rows = (places + self._start) % len(versions)
            self._promising[places] = promise(rows) & curable[rows]
        self._drop(places)
        self._versions, self._curable = versions, curable

    def run(self, enough: int, attempt: Callable[[int], Victims | None]) -> Found:
        """The first candidates, in order, that are enough; all there are if they are not. Only what is not known is tried. When
        `attempt` raises Exhausted, those that are known by then. Raises it if there are none. A place whose dry run alone
        exhausts the budget counts as one that does not help, so the next search continues behind it."""
        tried = False
        while True:
            found = (self._promising & self._helps).nonzero()[0]
            missing = enough - len(found)
            enough_found = _enough(found, enough, self._harmless)
            end = int(found[enough_found - 1]) + 1 if enough_found else len(self._tried)
            unknown = (self._promising[:end] & ~self._tried[:end]).nonzero()[0]
            if not len(unknown):
                return Found(found[:enough_found] if enough_found else found, self._victims, self._ranked)
            for place in (unknown[:missing] if missing > 0 else unknown).tolist():
                self.last = place
                try:
                    victims = attempt((place + self._start) % len(self._tried))
                except SearchExhausted:
                    if not tried:
                        self._note(place, None)
                        self.last = place + 1
                    found = (self._promising & self._helps).nonzero()[0]
                    if not len(found):
                        raise
                    return Found(found, self._victims, self._ranked)
                tried = True
                self._note(place, victims)
                if missing <= 0 and self._harmless[place]:
                    break

    def _note(self, place: int, victims: Victims | None) -> None:
        """What a dry run has found."""
        self._tried[place] = True
        if victims is not None:
            self._helps[place] = True
            self._harmless[place] = not victims.violations
            self._victims[place] = victims
            insort(self._ranked, (victims.rank, place))

    def _drop(self, places: IntArray) -> None:
        """Nothing is known of them any more."""
        for place in places[self._helps[places]].tolist():
            del self._ranked[bisect_left(self._ranked, (self._victims.pop(place).rank, place))]
        self._tried[places] = self._helps[places] = self._harmless[places] = False

    def _in_order(self, by_row: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate((by_row[self._start :], by_row[: self._start]))


def _enough(found: IntArray, enough: int, harmless: BoolArray) -> int:
    """With how many of the candidates found, from the first, they are enough and one of them is harmless; 0: they are not."""
    if len(found) < enough:
        return 0
    harmless_at = harmless[found].nonzero()[0]
    return max(enough, int(harmless_at[0]) + 1) if len(harmless_at) else 0


NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_FIT = "NodeResourcesFit"
_TEMPLATES = 8
BUDGET = 0.2
"""Seconds of CPU for the dry runs of one decision, by estimate."""
_AT_LEAST = 8
"""Dry runs, as long as they take at most twice the BUDGET."""
_ROW, _HELD = 10e-6, 0.5e-6
"""Seconds to ask about one row alone, and to hold a pod against a disruption budget."""
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many candidates are enough: of the nodes that could be helped, this percentage, but at least so many."""

    percentage: int = 10
    absolute: int = 100

    def of(self, nodes: int) -> int:
        return max(nodes * self.percentage // 100, self.absolute)


class Candidates:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._searches: dict[_Key, Search] = {}
        """By template. The least recently used first."""
        self._stopped: dict[bytes, int] = {}
        """By template: where the last search stopped, as an offset, if it found nothing in time."""
        self._judged: dict[int, tuple[Diagnosis, BoolArray, SingleNodeFilter | None]] = {}
        """The latest diagnoses by their ids, and what follows from each alone. Pods that are alike share one
        (scheduler.framework.reuse)."""

    def find(
        self,
        pod: PodInfo,
        diagnosis: Diagnosis,
        cache: Cache,
        filters: Filters,
        budgets: Sequence[PodDisruptionBudget],
        seed: int,
    ) -> Found | Diagnosis:
        """At least one candidate; or why there is none. `diagnosis`: why no node takes the pod as things are. Raises Exhausted
        when none was found within BUDGET: the next search for such a pod goes on where this one has stopped."""
        nodes = cache.nodes
        curable, one_by_one = self._consequences(diagnosis, filters)
        without = _Without(pod, cache, filters)
        stopped = self._stopped.pop(pod.template, 0)
        if one_by_one is not None:
            search = self._remembered(pod, budgets, nodes, seed)
        else:
            search = Search(pod, len(nodes), seed, stopped)
        dry_runs = _DryRuns(pod, cache, filters, one_by_one, budgets)
        own = nodes.row(nodes.nominated.node_of(pod.uid))  # where the pod is in nobody's way but its own
        search.forget(own)
        try:
            search.look(nodes.versions, curable, without.promise)
            found = search.run(max(self._bounds.of(int(np.count_nonzero(curable))), 1), dry_runs.on)
        except SearchExhausted:
            self._stopped[pod.template] = stopped + search.last
            if len(self._stopped) > _TEMPLATES:
                del self._stopped[next(iter(self._stopped))]
            raise
        finally:
            search.forget(own)
        if found:
            return found
        unresolvable = FilterResult.refusing(filters.unresolvable(diagnosis), NOT_HELPFUL)
        refusals = [("", unresolvable), *without.refusals(), *filters.lasting(diagnosis), *diagnosis.refusals]
        return Diagnosis(len(nodes), refusals)

    def _consequences(self, diagnosis: Diagnosis, filters: Filters) -> tuple[BoolArray, SingleNodeFilter | None]:
        """Which nodes are curable, and the filters one by one."""
        known = self._judged.pop(id(diagnosis), None)
        found = self._judged[id(diagnosis)] = known or (diagnosis, filters.curable(diagnosis), filters.one_by_one(diagnosis))
        if len(self._judged) > _TEMPLATES:
            del self._judged[next(iter(self._judged))]
        return found[1:]

    def _remembered(self, pod: PodInfo, budgets: Sequence[PodDisruptionBudget], nodes: NodeTable, seed: int) -> Search:
        key = (
            pod.template,
            pod.identity,
            nodes.generation,
            *(f"{budget.metadata.uid} {budget.metadata.resourceVersion}" for budget in budgets),
        )
        search = self._searches.pop(key, None) or Search(pod, len(nodes), seed)
        self._searches[key] = search
        if len(self._searches) > _TEMPLATES:
            del self._searches[next(iter(self._searches))]
        return search


class _Without:
    """Nodes without their pods of a lower priority than one pod's. Raises what the filter raises."""

    def __init__(self, pod: PodInfo, cache: Cache, filters: Filters) -> None:
        self._pod = pod
        self._filters = filters
        self._lower = cache.below(pod.priority)
        self._nodes = cache.nodes.seen_at(pod.priority, pod.uid).more(self._lower)

    def promise(self, rows: Rows) -> BoolArray:
        """Would there be room enough for the pod, where there are such pods?"""
        room = self._room(rows)
        return self._inhabited(rows) if room is None else self._inhabited(rows) & room.passed

    def refusals(self) -> list[tuple[str, FilterResult]]:
        """Why it is not promised."""
        room = self._room(ALL)
        refusals = [("", FilterResult.refusing(~self._inhabited(ALL), NO_VICTIMS))]
        return refusals if room is None else [*refusals, (_FIT, room)]

    def _inhabited(self, rows: Rows) -> BoolArray:
        return self._lower[PODS][rows] > 0 if PODS in self._lower else np.zeros(len(self._nodes), np.bool_)[rows]

    def _room(self, rows: Rows) -> FilterResult | None:
        nodes = self._nodes if rows is ALL else SomeNodes(self._nodes, rows)
        return self._filters.ask(_FIT, self._pod, nodes)


class _DryRuns:
    """Of one pod."""

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
        self._budgets = Budgets(budgets)
        alone = SomeNodes(cache.nodes, slice(0, 1))
        self._ask = _ROW + filters.cost(pod, alone) if one_by_one is not None else filters.estimate(pod, cache.nodes)
        """Seconds for an answer about one node."""
        self._left = BUDGET
        self._runs = 0

    def on(self, row: int) -> Victims | None:
        """Who would have to go from this node. Raises PluginError, Exhausted."""
        if self._left <= 0 and self._runs >= _AT_LEAST:
            raise SearchExhausted
        self._runs += 1
        nodes, one_by_one = self._cache.nodes, self._one_by_one
        name = nodes.names[row]
        lower = [each for each in self._cache.pods_on(name) if each.priority < self._pod.priority]
        self._left -= len(self._budgets) * (1 + len(lower)) * _HELD
        if one_by_one is not None and one_by_one.see_room and not nodes.nominated.ahead_of(self._pod, name):
            freed = Freed(nodes, row)
            return select_victims(lower, self._budgets, freed, lambda: self._passes(one_by_one, row, freed))
        node = SomeNodes(nodes, slice(row, row + 1))
        with self._cache.what_if() as what_if:
            return select_victims(lower, self._budgets, what_if, lambda: self._fits(row, node, what_if))

    def _spend(self) -> None:
        """Charges the budget for one answer. A node with many victims is asked about once for each of them."""
        if self._left < -BUDGET:
            raise SearchExhausted
        self._left -= self._ask

    def _passes(self, one_by_one: SingleNodeFilter, row: int, node: NodeTable) -> bool:
        self._spend()
        return one_by_one.passes(self._pod, row, node)

    def _fits(self, row: int, node: NodeTable, what_if: WhatIf) -> bool:
        """Would the pod fit, with the nominated pods there that are ahead of it, and without them? Without, because it must not
        rely on pods that may never come. `node`: the row, as a table of its own."""
        nodes = self._cache.nodes
        name = nodes.names[row]
        ahead = nodes.nominated.ahead_of(self._pod, name)
        if ahead:
            for each in ahead:
                what_if.add(each, name)
            crowded = self._judged(row)  # who comes may state something about the pod: what skipped it need not do so then
            what_if.clear()
            if not crowded:
                return False
        return self._judged(row) if self._one_by_one is None else self._passes(self._one_by_one, row, node)

    def _judged(self, row: int) -> bool:
        self._spend()
        return self._filters.run_filters({}, self._pod, self._cache.nodes).passes(row)


BATCH = 1_000
"""Of one call: as many as the API takes."""
DEADLINE = 30.0
"""Seconds for which a deletion is tried."""
AGAIN = 0.2
"""Seconds between two tries."""
REASON = "PreemptionByScheduler"
"""Of the victim's condition."""
TRANSIENT = Unavailable | Internal | Unauthenticated | Exhausted
"""They say nothing of the victim: a webhook is away, a certificate has ended, etcd is full."""


class Pods(Protocol):
    """What is needed of pinnace.client.client.PodClient."""

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]: ...


class Binding(Protocol):
    """What is needed of scheduler.binding.Binder."""

    def call_off(self, uid: str, refused: PluginRejection) -> bool: ...
    def is_called_off(self, uid: str) -> bool: ...


class Recorder(Protocol):
    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Eviction:
    pod: Pod
    """As it was when it was chosen."""
    told: str
    """The event's message."""
    preemptors: set[str]
    """The uids of those that it is to make room for."""
    scheduler: str
    """The preemptor's."""
    until: float


class Evictions:
    def __init__(
        self,
        pods: Pods,
        binding: Binding,
        store: Mapping[str, Pod],
        recorder: Recorder,
        activate: Callable[[str], None],
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`store`: the informer's. `activate`: called with the uid of a preemptor whose victim stays."""
        self._pods = pods
        self._binding = binding
        self._store = store
        self._recorder = recorder
        self._activate = activate
        self._clock = clock
        self._pending: dict[str, _Eviction] = {}
        """By uid."""
        self._some = asyncio.Event()

    def submit(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        """Those that are being deleted anyway are left out. `plugin`: who chose them."""
        told = f"Preempted by pod {preemptor.key} on node {node}"
        until = self._clock.monotonic() + DEADLINE
        for victim in victims:
            pod, pending = self._current(victim.key, victim.uid), self._pending.get(victim.uid)
            if self._binding.call_off(victim.uid, PluginRejection(plugin, "preempted")):
                if pod is not None:
                    self._recorder.event(pod, "Normal", "Preempted", told)
            elif pending is not None:
                pending.preemptors.add(preemptor.uid)
            elif pod is not None and victim.group.living:
                self._pending[victim.uid] = _Eviction(pod, told, {preemptor.uid}, preemptor.raw.spec.schedulerName, until)
                self._some.set()

    def pending(self, uid: str) -> bool:
        """Is the pod still to be deleted, or called off and still there?"""
        return uid in self._pending or self._binding.is_called_off(uid)

    def drop(self) -> None:
        """Deletes nothing more: somebody else leads."""
        self._pending.clear()

    async def run(self) -> None:
        """Deletes until cancelled."""
        while True:
            while not self._pending:
                self._some.clear()
                await self._some.wait()
            batch = list(self._pending.values())[:BATCH]
            left = await self._evict(batch)
            for each in batch:
                uid = each.pod.metadata.uid
                if each not in left and self._pending.get(uid) is each:  # not one that was dropped, and submitted again
                    del self._pending[uid]
            if left:
                await self._clock.sleep(AGAIN)

    async def _evict(self, batch: Sequence[_Eviction]) -> list[_Eviction]:
        """Those that must be tried again."""
        answers = await errors_of(self._pods.delete_batch, [_deletion(each) for each in batch])
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

    def _current(self, key: str, uid: str) -> Pod | None:
        pod = self._store.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None


def _deletion(eviction: _Eviction) -> DeleteRequest:
    metadata = eviction.pod.metadata
    why = Disruption(reason=REASON, message=f"{eviction.scheduler}: preempting to accommodate a higher priority pod")
    return delete_request(metadata.name, metadata.namespace, uid=metadata.uid, disruption=why)


class PreemptionHandle:
    def __init__(self, cache: Cache, evictions: Evictions, store: Mapping[str, Pod], seed: int) -> None:
        """`store`: the informer's."""
        self.cache = cache
        self.seed = seed
        self.profiles = Profiles({})
        """To be set when the plugins are made."""
        self._evictions = evictions
        self._store = store

    def filters(self, pod: PodInfo) -> Framework:
        return self.profiles.of(pod)

    def evict(self, plugin: str, preemptor: PodInfo, node: str, victims: Sequence[PlacedPod]) -> None:
        metrics.VICTIMS.observe(len(victims))
        self._evictions.submit(plugin, preemptor, node, victims)

    def is_leaving(self, pod: PlacedPod) -> bool:
        if self._evictions.pending(pod.uid):
            return True
        current = self._store.get(pod.key)
        return (
            current is not None
            and current.metadata.uid == pod.uid
            and current.metadata.HasField("deletionTimestamp")
            and (why := conditions.find(current.status.conditions, DISRUPTION_TARGET)) is not None
            and why.reason == REASON
        )
