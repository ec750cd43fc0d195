"""Objects by their labels: for selectors, which look at each set of labels once, and not at each object.

Pods of one template have the same labels: where there are a hundred thousand pods there are a few hundred sets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta

T = TypeVar("T", bound=Object)

_Labels = frozenset[tuple[str, str]]


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


def anything(obj: Object) -> bool:
    """For a Labelled: all objects."""
    return True
