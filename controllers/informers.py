"""The informers that all controllers share, one per kind, and indexes over their objects.

`LabelIndex` evaluates a selector once per distinct set of labels: 100,000 pods typically have a few hundred sets.

`SelectorIndex` finds the objects whose selectors match given labels. It evaluates only selectors that require one of these
labels. Without it, each change of a pod took 150 ms in a namespace with 20,000 services.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

from pinnace.api.resources import PODS, Object, Resource, T
from pinnace.api.selectors import NOTHING, LabelSelector
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Handler, Index, Informer, first_problem
from pinnace.controllers.pods import PodPropertiesCache
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending

_Label = tuple[str, str]
_Labels = frozenset[_Label]
_Anchor = tuple[str, _Label | None]
"""A namespace, and a label that a selector requires, or None if it requires no specific label."""


class LabelIndex(Generic[T]):
    """An index of objects by labels. It contains the objects for which `only` is True, which must depend only on the object."""

    def __init__(self, only: Callable[[T], bool], objects: Iterable[T] = ()) -> None:
        self._only = only
        self._groups: dict[str, dict[_Labels, dict[str, T]]] = {}
        for obj in objects:
            self._put(obj)

    def select(self, namespace: str, matches: Callable[[Mapping[str, str]], bool]) -> list[T]:
        """Return the objects of a namespace whose labels match. Callers must not change them."""
        groups = self._groups.get(namespace, {})
        return [obj for labels, group in groups.items() if matches(dict(labels)) for obj in group.values()]

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """Update the index. A handler of the informer."""
        for delta in deltas:
            if delta.old is not None and self._only(delta.old):
                self._drop(delta.old)
            if delta.kind != DELETED:
                self._put(delta.obj)

    def _put(self, obj: T) -> None:
        if self._only(obj):
            metadata = obj.metadata
            group = self._groups.setdefault(metadata.namespace, {}).setdefault(frozenset(metadata.labels.items()), {})
            group[metadata.uid] = obj

    def _drop(self, obj: T) -> None:
        metadata = obj.metadata
        groups, labels = self._groups[metadata.namespace], frozenset(metadata.labels.items())
        del groups[labels][metadata.uid]
        if not groups[labels]:
            del groups[labels]


class SelectorIndex(Generic[T]):
    """An index of objects by selector. `selector_of` must depend only on the object and return NOTHING for no selection."""

    def __init__(self, selector_of: Callable[[T], LabelSelector], objects: Iterable[T] = ()) -> None:
        self._selector_of = selector_of
        self._anchored: dict[_Anchor, dict[str, tuple[_Labels, LabelSelector, T]]] = {}
        """Objects by anchor and UID, with all labels that they require."""
        self._anchors: dict[str, _Anchor] = {}
        """The anchor of each object, by UID."""
        for obj in objects:
            self._put(obj)

    def objects_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[T]:
        """Return the objects of a namespace whose selectors match the labels. Callers must not change them."""
        have: _Labels = frozenset(labels.items())
        return [
            obj
            for anchor in (None, *have)
            for demanded, selector, obj in self._anchored.get((namespace, anchor), _NONE).values()
            if demanded <= have and (len(demanded) == len(selector.requirements) or selector.matches(labels))
        ]

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """Update the index. A handler of the informer."""
        for delta in deltas:
            if delta.old is not None:
                self._drop(delta.old)
            if delta.kind != DELETED:
                self._put(delta.obj)

    def _put(self, obj: T) -> None:
        selector, metadata = self._selector_of(obj), obj.metadata
        if selector == NOTHING:
            return
        demanded: _Labels = frozenset(
            (requirement.key, value)
            for requirement in selector.requirements
            if not requirement.negated and requirement.values is not None and len(requirement.values) == 1
            for value in requirement.values
        )
        anchors: list[_Anchor] = [(metadata.namespace, label) for label in demanded]
        where = min(anchors, key=lambda anchor: len(self._anchored.get(anchor, _NONE)), default=(metadata.namespace, None))
        self._anchored.setdefault(where, {})[metadata.uid] = demanded, selector, obj
        self._anchors[metadata.uid] = where

    def _drop(self, obj: T) -> None:
        where = self._anchors.pop(obj.metadata.uid, None)
        if where is not None:
            del self._anchored[where][obj.metadata.uid]
            if not self._anchored[where]:
                del self._anchored[where]


_NONE: Mapping[str, Any] = {}


def select_all(obj: Object) -> bool:
    """Return True. Selects all objects for a LabelIndex."""
    return True


class Informers:
    """The informers. Stores and indexes must be requested before `run`; other kinds are not watched."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._informers: dict[Resource[Any], Informer[Any]] = {}
        self._indices: dict[tuple[Resource[Any], Callable[[Any], str]], Index[Any]] = {}
        self._facts: PodPropertiesCache | None = None
        self._selecting: dict[tuple[Resource[Any], Callable[[Any], LabelSelector]], SelectorIndex[Any]] = {}
        self._labelled: dict[tuple[Resource[Any], Callable[[Any], bool]], LabelIndex[Any]] = {}

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return all objects of a kind by store_key. They belong to the informer, and callers must not change them."""
        return self._of(resource).store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return the shared index for this function. It is updated before the change is handled."""
        index = self._indices.get((resource, by))
        if index is None:
            index = self._indices[resource, by] = Index(by, self.store(resource).values())
            self.add_handler(resource, index.follow)
        return index

    def labelled(self, resource: Resource[T], only: Callable[[T], bool] = select_all) -> LabelIndex[T]:
        """Return the shared label index for this function."""
        labelled = self._labelled.get((resource, only))
        if labelled is None:
            labelled = self._labelled[resource, only] = LabelIndex(only, self.store(resource).values())
            self.add_handler(resource, labelled.follow)
        return labelled

    def selecting(self, resource: Resource[T], selector_of: Callable[[T], LabelSelector]) -> SelectorIndex[T]:
        """Return the shared selector index for this function."""
        selecting = self._selecting.get((resource, selector_of))
        if selecting is None:
            selecting = self._selecting[resource, selector_of] = SelectorIndex(selector_of, self.store(resource).values())
            self.add_handler(resource, selecting.follow)
        return selecting

    @property
    def facts(self) -> PodPropertiesCache:
        """The cached facts of pods."""
        if self._facts is None:
            self._facts = PodPropertiesCache()
            self.add_handler(PODS, self._facts.follow)
        return self._facts

    def add_handler(self, resource: Resource[T], handler: Handler[T]) -> None:
        self._of(resource).add_handler(handler)

    @property
    def synced(self) -> bool:
        return all(informer.revision for informer in self._informers.values())

    @property
    def healthy(self) -> str | None:
        """The problem for /readyz, or None."""
        return first_problem(self._informers.values())

    async def wait_synced(self, timeout: float) -> None:
        """Wait until all informers have synced. Raise TimeoutError. `timeout` applies to each informer."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float, among: Iterable[Resource[Any]] = ()) -> None:
        """Wait until the informers of these kinds, or all informers, have reached `revision`.

        Raise TimeoutError. `timeout` applies to each informer. A controller that waits for the revision of its last write
        needs no expectations.
        """
        for informer in map(self._informers.__getitem__, among or list(self._informers)):
            await informer.wait_for(revision, timeout)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(unending("informer", informer.run))

    def _of(self, resource: Resource[T]) -> Informer[T]:
        informer = self._informers.get(resource)
        if informer is None:
            # Announced: each informer receives its current revision immediately after an election.
            informer = self._informers[resource] = Informer(self._client.of(resource), announced=True, clock=self._clock)
        return informer
