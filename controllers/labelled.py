"""Objects by their labels, and objects by their selectors.

`Labelled` is for selectors: they look at each set of labels once, and not at each object. Pods of one template have the same
labels: where there are a hundred thousand pods there are a few hundred sets.

`Selecting` is for labels: of all objects with a selector they look only at those with one of their labels. With 20,000 services
in one namespace each change of a pod there cost 150 ms, and any user of a namespace can create them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pinnace.api.resources import Object
from pinnace.api.selectors import NOTHING, LabelSelector
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta

T = TypeVar("T", bound=Object)

_Label = tuple[str, str]
_Labels = frozenset[_Label]
_Anchor = tuple[str, _Label | None]
"""A namespace, and a label that a selector demands; None: it demands no single one."""


class Labelled(Generic[T]):
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


class Selecting(Generic[T]):
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
    """For a Labelled: all objects."""
    return True
