"""An index over an informer: its objects by something else than their name.

It hears what the informer's other handlers hear, in the order in which they were added: whoever comes after it finds it up to
date.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Generic, TypeVar

from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.informer import Delta

T = TypeVar("T", bound=Object)


class Index(Generic[T]):
    """`by` says under which key an object stands; empty: under none. It looks at nothing but the object."""

    def __init__(self, by: Callable[[T], str], objects: Iterable[T] = ()) -> None:
        self._by = by
        self._objects: dict[str, dict[str, T]] = {}
        for obj in objects:
            self._put(by(obj), obj)

    def under(self, key: str) -> Mapping[str, T]:
        """The objects with this key, by uid; who has had it longest comes first. Do not change them."""
        return self._objects.get(key, {})

    @property
    def keys(self) -> Set[str]:
        """Those that objects have."""
        return self._objects.keys()

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            before = self._by(delta.old) if delta.old is not None else ""
            after = self._by(delta.obj) if delta.kind != DELETED else ""
            if delta.old is not None and before and (before, delta.old.metadata.uid) != (after, delta.obj.metadata.uid):
                self._drop(before, delta.old.metadata.uid)
            self._put(after, delta.obj)

    def _put(self, key: str, obj: T) -> None:
        if key:
            self._objects.setdefault(key, {})[obj.metadata.uid] = obj

    def _drop(self, key: str, uid: str) -> None:
        objects = self._objects[key]
        del objects[uid]
        if not objects:
            del self._objects[key]
