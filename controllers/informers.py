"""The informers that all controllers share, one per kind, and indexes over their objects.

`LabelIndex` evaluates a selector once per distinct set of labels: 100,000 pods typically have a few hundred sets.

`SelectorIndex` finds the objects whose selectors match given labels. It evaluates only selectors that require one of these
labels. Without it, each change of a pod took 150 ms in a namespace with 20,000 services.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.customobjects_pb2 import CustomObject
from pinnace.api.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS, CustomResource, Object, Resource, T
from pinnace.api.selectors import NOTHING, LabelSelector
from pinnace.api.verbs_pb2 import DELETED
from pinnace.apiextensions.kinds import CustomKind, kind_of
from pinnace.client.client import Client
from pinnace.client.informer import Delta, Handler, Index, Informer, first_problem
from pinnace.controllers.pods import ClaimUsers, PodPropertiesCache
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import run_unending

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
            self._add_object(obj)

    def select(self, namespace: str, matches: Callable[[Mapping[str, str]], bool]) -> list[T]:
        """Return the objects of a namespace whose labels match. Callers must not change them."""
        groups = self._groups.get(namespace, {})
        return [obj for labels, group in groups.items() if matches(dict(labels)) for obj in group.values()]

    def apply_deltas(self, deltas: Sequence[Delta[T]]) -> None:
        """Update the index. A handler of the informer."""
        for delta in deltas:
            if delta.old is not None and self._only(delta.old):
                self._remove_object(delta.old)
            if delta.kind != DELETED:
                self._add_object(delta.obj)

    def _add_object(self, obj: T) -> None:
        if self._only(obj):
            metadata = obj.metadata
            group = self._groups.setdefault(metadata.namespace, {}).setdefault(frozenset(metadata.labels.items()), {})
            group[metadata.uid] = obj

    def _remove_object(self, obj: T) -> None:
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
            self._add_object(obj)

    def objects_selecting(self, namespace: str, labels: Mapping[str, str]) -> list[T]:
        """Return the objects of a namespace whose selectors match the labels. Callers must not change them."""
        have: _Labels = frozenset(labels.items())
        return [
            obj
            for anchor in (None, *have)
            for demanded, selector, obj in self._anchored.get((namespace, anchor), _NONE).values()
            if demanded <= have and (len(demanded) == len(selector.requirements) or selector.matches(labels))
        ]

    def apply_deltas(self, deltas: Sequence[Delta[T]]) -> None:
        """Update the index. A handler of the informer."""
        for delta in deltas:
            if delta.old is not None:
                self._remove_object(delta.old)
            if delta.kind != DELETED:
                self._add_object(delta.obj)

    def _add_object(self, obj: T) -> None:
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

    def _remove_object(self, obj: T) -> None:
        where = self._anchors.pop(obj.metadata.uid, None)
        if where is not None:
            del self._anchored[where][obj.metadata.uid]
            if not self._anchored[where]:
                del self._anchored[where]


_NONE: Mapping[str, Any] = {}


def select_all(obj: Object) -> bool:
    """Return True. Select all objects for a LabelIndex."""
    return True


class CustomHandler(Protocol):
    """Follows the custom kinds."""

    def handle_added_kind(self, resource: CustomResource) -> None:
        """A kind is watched from now on. Add handlers here."""
        ...

    def handle_removed_kind(self, resource: CustomResource, objects: Iterable[Any]) -> None:
        """A kind is gone. `objects`: those that the informer had."""
        ...


class CustomInformers:
    """The custom kinds of established definitions. Each is watched in one of its served versions, for its metadata."""

    def __init__(self, informers: "Informers") -> None:
        self._informers = informers
        self._kinds: dict[str, tuple[CustomKind, CustomResource]] = {}
        self._handlers: list[CustomHandler] = []

    @property
    def resources(self) -> list[CustomResource]:
        return [resource for _, resource in self._kinds.values()]

    def by_kind(self, kind: str, api_version: str) -> CustomResource | None:
        """Return the resource of a kind in any of its versions, or None."""
        return next((row for found, row in self._kinds.values() if found.name == kind and api_version in found.versions), None)

    def add_handler(self, handler: CustomHandler) -> None:
        self._handlers.append(handler)
        for resource in self.resources:
            handler.handle_added_kind(resource)

    def handle_definition_deltas(self, deltas: Sequence[Delta[CustomResourceDefinition]]) -> None:
        """A handler of the informer of definitions."""
        for delta in deltas:
            name = delta.obj.metadata.name
            kind = kind_of(delta.obj) if delta.kind != DELETED else None
            before = self._kinds.get(name)
            if before is not None and not _serves_version(kind, before[0].uid, before[1]):
                self._close(name, before[1])
                before = None
            if kind is None or not kind.served:
                continue
            if before is not None:
                self._kinds[name] = kind, before[1]
            else:
                resource = kind.served[0].resource
                self._kinds[name] = kind, resource
                self._informers.open(resource)
                for handler in self._handlers:
                    handler.handle_added_kind(resource)

    def _close(self, name: str, resource: CustomResource) -> None:
        del self._kinds[name]
        objects = list(self._informers.close(resource).values())
        for handler in self._handlers:
            handler.handle_removed_kind(resource, objects)


def _without_content(obj: CustomObject) -> CustomObject:
    return CustomObject(metadata=obj.metadata, apiVersion=obj.apiVersion, kind=obj.kind)


def _serves_version(kind: CustomKind | None, uid: str, resource: CustomResource) -> bool:
    return kind is not None and kind.uid == uid and any(version.api_version == resource.api_version for version in kind.served)


class Informers:
    """The informers. Stores and indexes must be requested before `run`; other kinds are not watched, except custom kinds."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._informers: dict[Resource[Any], Informer[Any]] = {}
        self._indices: dict[tuple[Resource[Any], Callable[[Any], str]], Index[Any]] = {}
        self._facts: PodPropertiesCache | None = None
        self._claim_users: ClaimUsers | None = None
        self._selecting: dict[tuple[Resource[Any], Callable[[Any], LabelSelector]], SelectorIndex[Any]] = {}
        self._labelled: dict[tuple[Resource[Any], Callable[[Any], bool]], LabelIndex[Any]] = {}
        self._custom: CustomInformers | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[Resource[Any], asyncio.Task[None]] = {}

    @property
    def custom(self) -> "CustomInformers":
        """The informers of custom kinds, which come and go with their definitions."""
        if self._custom is None:
            self._custom = CustomInformers(self)
            self.add_handler(CUSTOM_RESOURCE_DEFINITIONS, self._custom.handle_definition_deltas)
        return self._custom

    def open(self, resource: Resource[Any]) -> None:
        """Watch another kind while this runs."""
        self._informer_of(resource)
        if self._tasks is not None:
            self._start(resource, self._tasks)

    def close(self, resource: Resource[Any]) -> Mapping[str, Any]:
        """Stop watching a kind. Return its last objects."""
        informer = self._informers.pop(resource)
        if (task := self._running.pop(resource, None)) is not None:
            task.cancel()
        return informer.store

    def _start(self, resource: Resource[Any], group: asyncio.TaskGroup) -> None:
        self._running[resource] = group.create_task(run_unending("informer", self._informers[resource].run))

    def store(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return all objects of a kind by store_key. They belong to the informer, and callers must not change them. Of custom
        objects, they have the metadata only."""
        if isinstance(resource, CustomResource) and resource not in self._informers:
            return {}  # it is closed
        return self._informer_of(resource).store

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return the shared index for this function. It is updated before the change is handled."""
        index = self._indices.get((resource, by))
        if index is None:
            index = self._indices[resource, by] = Index(by, self.store(resource).values())
            self.add_handler(resource, index.apply_deltas)
        return index

    def labelled(self, resource: Resource[T], only: Callable[[T], bool] = select_all) -> LabelIndex[T]:
        """Return the shared label index for this function."""
        labelled = self._labelled.get((resource, only))
        if labelled is None:
            labelled = self._labelled[resource, only] = LabelIndex(only, self.store(resource).values())
            self.add_handler(resource, labelled.apply_deltas)
        return labelled

    def selecting(self, resource: Resource[T], selector_of: Callable[[T], LabelSelector]) -> SelectorIndex[T]:
        """Return the shared selector index for this function."""
        selecting = self._selecting.get((resource, selector_of))
        if selecting is None:
            selecting = self._selecting[resource, selector_of] = SelectorIndex(selector_of, self.store(resource).values())
            self.add_handler(resource, selecting.apply_deltas)
        return selecting

    @property
    def pod_properties(self) -> PodPropertiesCache:
        """The cached facts of pods."""
        if self._facts is None:
            self._facts = PodPropertiesCache()
            self.add_handler(PODS, self._facts.apply_deltas)
        return self._facts

    @property
    def claim_users(self) -> ClaimUsers:
        """The pods of each claim."""
        if self._claim_users is None:
            self._claim_users = ClaimUsers()
            self.add_handler(PODS, self._claim_users.apply_deltas)
        return self._claim_users

    def add_handler(self, resource: Resource[T], handler: Handler[T]) -> None:
        self._informer_of(resource).add_handler(handler)

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
        try:
            async with asyncio.TaskGroup() as group:
                self._tasks = group
                for resource in list(self._informers):
                    self._start(resource, group)
        finally:
            self._tasks = None

    def _informer_of(self, resource: Resource[T]) -> Informer[T]:
        informer = self._informers.get(resource)
        if informer is None:
            # Announced: each informer receives its current revision immediately after an election.
            transform: Any = _without_content if isinstance(resource, CustomResource) else None
            informer = self._informers[resource] = Informer(
                self._client.of(resource), announced=True, transform=transform, clock=self._clock
            )
        return informer
