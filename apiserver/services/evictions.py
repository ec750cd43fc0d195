"""Evictions, many at once: pods of one budget are put to it together. The rules are apiserver.registry.eviction's."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apiserver import errors
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import Entry, Selection
from apiserver.errors import Rejected
from apiserver.registry.deletion import delete_step
from apiserver.registry.eviction import Protection, budget_of, deleting, is_guarded, must_ask, protection, refused, taking
from apiserver.registry.mutation import Mutation, Outcome, Version
from apiserver.registry.store import Store
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.policy_v1_pb2 import Eviction, PodDisruptionBudget
from pinnace.api.resources import POD_DISRUPTION_BUDGETS, PODS
from pinnace.api.status import Refusal
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices


class _Wish(NamedTuple):
    """To evict a pod, as it was found."""

    pod: Pod
    options: DeleteOptions
    budget: PodDisruptionBudget | None
    """The one to ask; None: nobody."""
    spared: bool
    """Nobody is to be asked, for as long as the pod is as it is."""


@dataclass(frozen=True, slots=True)
class _Question:
    """Which of these pods, by name, may go?"""

    budget: PodDisruptionBudget
    names: dict[str, None]
    """In the order in which they were named."""
    granted: set[str]


class _Search:
    """Which budget has a say about a pod? Looked for once for each pod, however many items name it."""

    def __init__(self, protections: Mapping[str, Sequence[Protection]]) -> None:
        """By namespace, all of it."""
        self._protections = protections
        self._found: dict[tuple[str, int], PodDisruptionBudget | Refusal | None] = {}

    def budget_of(self, entry: Entry[Pod]) -> PodDisruptionBudget | None:
        """Raises Rejected."""
        version = entry.key, entry.mod_revision
        if version not in self._found:
            try:
                self._found[version] = budget_of(entry.obj, self._protections.get(entry.obj.metadata.namespace, ()))
            except Rejected as rejected:
                self._found[version] = rejected.refusal
        found = self._found[version]
        if isinstance(found, Refusal):
            raise Rejected(found)
        return found


class Evictions:
    def __init__(self, pods: Store[Pod], budgets: Store[PodDisruptionBudget], cacher: Cacher, clock: Clock) -> None:
        self._pods = pods
        self._budgets = budgets
        self._cached_pods = cacher.of(PODS)
        self._cached_budgets = cacher.of(POD_DISRUPTION_BUDGETS)
        self._clock = clock

    async def evict(self, items: Sequence[Eviction], *, dry_run: bool) -> list[Outcome]:
        """The outcome of each, in order. The caches are to be as fresh as the caller wants the pods to be."""
        now = self._clock.time()
        search = _Search(await self._protections_in({each.metadata.namespace for each in items}))
        wishes = await in_slices(lambda each: self._wish(each, search, now), items, self._clock)
        refusals = await self._ask([wish for wish in wishes if isinstance(wish, _Wish)], now, dry_run)
        deletions = [wish if isinstance(wish, Refusal) else self._deletion(wish, refusals, now) for wish in wishes]
        return await self._pods.mutate(deletions, dry_run=dry_run)

    async def _protections_in(self, namespaces: Iterable[str]) -> Mapping[str, Sequence[Protection]]:
        selections = [Selection.parse(POD_DISRUPTION_BUDGETS, namespace, "", "") for namespace in namespaces if namespace]
        budgets = [entry.obj for selection in selections for entry in self._cached_budgets.select(selection)]
        protections = defaultdict[str, list[Protection]](list)
        for found in await in_slices(protection, budgets, self._clock):
            protections[found.budget.metadata.namespace].append(found)
        return protections

    def _wish(self, item: Eviction, search: _Search, now: float) -> _Wish | Refusal:
        """What a delete would refuse is refused before a budget is touched."""
        name, namespace = item.metadata.name, item.metadata.namespace
        if not name or not namespace:
            return errors.bad_request("metadata.namespace and metadata.name of an eviction name the pod: both are required")
        entry = self._cached_pods.get(PODS.key(namespace, name))
        if entry is None:
            return errors.not_found(PODS, name)
        try:
            version = Version(entry.obj, entry.mod_revision, entry.value)
            delete_step(self._pods.strategy, name, item.deleteOptions, version, now)
            budget = search.budget_of(entry) if is_guarded(entry.obj) else None
        except Rejected as rejected:
            return rejected.refusal
        asked = budget if budget is not None and must_ask(entry.obj, budget) else None
        spared = entry.obj.status.phase == "Pending" or budget is not asked
        return _Wish(entry.obj, item.deleteOptions, asked, spared)

    async def _ask(self, wishes: Iterable[_Wish], now: float, dry_run: bool) -> dict[str, Refusal]:
        """Of the pods that may not go, by their keys."""
        questions: dict[str, _Question] = {}
        for pod, _, budget, _ in wishes:
            if budget is not None:
                question = questions.setdefault(POD_DISRUPTION_BUDGETS.key_of(budget), _Question(budget, {}, set()))
                question.names[pod.metadata.name] = None
        mutations = [taking(each.budget, list(each.names), each.granted, now) for each in questions.values()]
        outcomes = await self._budgets.mutate(mutations, dry_run=dry_run)
        refusals: dict[str, Refusal] = {}
        for each, outcome in zip(questions.values(), outcomes, strict=True):
            no = outcome if isinstance(outcome, Refusal) else refused(each.budget)
            left = each.names if isinstance(outcome, Refusal) else (name for name in each.names if name not in each.granted)
            refusals.update((PODS.key(each.budget.metadata.namespace, name), no) for name in left)
        return refusals

    def _deletion(self, wish: _Wish, refusals: Mapping[str, Refusal], now: float) -> Mutation[Pod] | Refusal:
        refusal = refusals.get(PODS.key_of(wish.pod)) if wish.budget is not None else None
        return refusal or deleting(self._pods.strategy, wish.pod, wish.options, spared=wish.spared, now=now)
