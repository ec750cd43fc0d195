"""The informers that all controllers share, one for each kind, and indexes over their objects.

`LabelIndex` evaluates a selector once for each distinct set of labels: 100,000 pods have a few hundred sets.

`SelectorIndex` finds the objects whose selectors match given labels, and evaluates only selectors that demand one of these
labels. Without it, each change of a pod cost 150 ms in a namespace with 20,000 services.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

from controllers.pods import PodFactsCache
from pinnace.api.resources import PODS, Object, Resource, T
from pinnace.api.selectors import NOTHING, LabelSelector
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Handler, Index, Informer, first_problem
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import unending

_Label = tuple[str, str]
_Labels = frozenset[_Label]
_Anchor = tuple[str, _Label | None]
"""A namespace, and a label that a selector demands; None: it demands no single one."""


class LabelIndex(Generic[T]):
    """Of those objects only that `only` says; it looks at nothing but the object."""

    def __init__(self, only: Callable[[T], bool], objects: Iterable[T] = ()) -> None:
        self._only = only
        self._groups: dict[str, dict[_Labels, dict[str, T]]] = {}
        for obj in objects:
            self._put(obj)

    def select(self, namespace: str, matches: Callable[[Mapping[str, str]], bool]) -> list[T]:
        """The objects of a namespace whose labels match. Do not change them."""
        groups = self._groups.get(namespace, {})
        return [obj for labels, group in groups.items() if matches(dict(labels)) for obj in group.values()]

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """A handler of the informer."""
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
    """`selector_of` looks at nothing but the object. An object that selects nothing has the selector NOTHING."""

    def __init__(self, selector_of: Callable[[T], LabelSelector], objects: Iterable[T] = ()) -> None:
        self._selector_of = selector_of
        self._anchored: dict[_Anchor, dict[str, tuple[_Labels, LabelSelector, T]]] = {}
        """The objects by uid, each with all labels that it demands."""
        self._anchors: dict[str, _Anchor] = {}
        """By uid: where an object is."""
        for obj in objects:
            self._put(obj)

    def that_select(self, namespace: str, labels: Mapping[str, str]) -> list[T]:
        """The objects of a namespace whose selectors match the labels. Do not change them."""
        have: _Labels = frozenset(labels.items())
        return [
            obj
            for anchor in (None, *have)
            for demanded, selector, obj in self._anchored.get((namespace, anchor), _NONE).values()
            if demanded <= have and (len(demanded) == len(selector.requirements) or selector.matches(labels))
        ]

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """A handler of the informer."""
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
            (each.key, value)
            for each in selector.requirements
            if not each.negated and each.values is not None and len(each.values) == 1
            for value in each.values
        )
        anchors: list[_Anchor] = [(metadata.namespace, label) for label in demanded]
        where = min(anchors, key=lambda each: len(self._anchored.get(each, _NONE)), default=(metadata.namespace, None))
        self._anchored.setdefault(where, {})[metadata.uid] = demanded, selector, obj
        self._anchors[metadata.uid] = where

    def _drop(self, obj: T) -> None:
        where = self._anchors.pop(obj.metadata.uid, None)
        if where is not None:
            del self._anchored[where][obj.metadata.uid]
            if not self._anchored[where]:
                del self._anchored[where]


_NONE: Mapping[str, Any] = {}


def anything(obj: Object) -> bool:
    """For a LabelIndex: all objects."""
    return True


class Informers:
    """Ask before `run`; kinds that nobody has asked for are not watched."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._informers: dict[Resource[Any], Informer[Any]] = {}
        self._indices: dict[tuple[Resource[Any], Callable[[Any], str]], Index[Any]] = {}
        self._facts: PodFactsCache | None = None
        self._selecting: dict[tuple[Resource[Any], Callable[[Any], LabelSelector]], SelectorIndex[Any]] = {}
        self._labelled: dict[tuple[Resource[Any], Callable[[Any], bool]], LabelIndex[Any]] = {}

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """All objects of a kind, by store_key. They belong to the informer: do not change them."""
        return self._of(resource).store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """The same index for the same function. It is up to date when a change is handled."""
        index = self._indices.get((resource, by))
        if index is None:
            index = self._indices[resource, by] = Index(by, self.store(resource).values())
            self.add_handler(resource, index.follow)
        return index

    def labelled(self, resource: Resource[T], only: Callable[[T], bool] = anything) -> LabelIndex[T]:
        """Likewise, the same for the same function."""
        labelled = self._labelled.get((resource, only))
        if labelled is None:
            labelled = self._labelled[resource, only] = LabelIndex(only, self.store(resource).values())
            self.add_handler(resource, labelled.follow)
        return labelled

    def selecting(self, resource: Resource[T], selector_of: Callable[[T], LabelSelector]) -> SelectorIndex[T]:
        """Likewise, the same for the same function."""
        selecting = self._selecting.get((resource, selector_of))
        if selecting is None:
            selecting = self._selecting[resource, selector_of] = SelectorIndex(selector_of, self.store(resource).values())
            self.add_handler(resource, selecting.follow)
        return selecting

    @property
    def facts(self) -> PodFactsCache:
        """Of pods."""
        if self._facts is None:
            self._facts = PodFactsCache()
            self.add_handler(PODS, self._facts.follow)
        return self._facts

    def add_handler(self, resource: Resource[T], handler: Handler[T]) -> None:
        self._of(resource).add_handler(handler)

    @property
    def synced(self) -> bool:
        return all(informer.revision for informer in self._informers.values())

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz."""
        return first_problem(self._informers.values())

    async def wait_synced(self, timeout: float) -> None:
        """Returns when all have their first state. Raises TimeoutError; `timeout` is for each."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float, among: Iterable[Resource[Any]] = ()) -> None:
        """Returns when everything up to `revision` is known, of these kinds or of all. Raises TimeoutError; `timeout` is for
        each. A controller that waits for the revision of its own last write needs no expectations: what it sees next has it."""
        for informer in map(self._informers.__getitem__, among or list(self._informers)):
            await informer.wait_for(revision, timeout)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(unending("informer", informer.run))

    def _of(self, resource: Resource[T]) -> Informer[T]:
        informer = self._informers.get(resource)
        if informer is None:
            # Announced: each hears at once how far it is when somebody is elected.
            informer = self._informers[resource] = Informer(self._client.of(resource), announced=True, clock=self._clock)
        return informer
