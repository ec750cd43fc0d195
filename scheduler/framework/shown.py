"""The handle as plugins that are not ours have it: objects are shown, as pods and nodes are (pinnace.api.readonly)."""

from collections.abc import Callable, Mapping, Set

from pinnace.api.readonly import ReadOnlyMap, read_only
from pinnace.api.resources import Resource, T
from pinnace.client.client import Client
from pinnace.client.index import Index
from scheduler.framework.handle import Handle, Preemption, Waiting


class Shown:
    """A Handle."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return ReadOnlyMap(self._handle.objects(resource))

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        return _ShownIndex(self._handle.index(resource, lambda obj: by(read_only(obj))))

    @property
    def waiting(self) -> Waiting:
        return self._handle.waiting

    def activate(self, uid: str) -> None:
        self._handle.activate(uid)

    @property
    def preemption(self) -> Preemption | None:
        return self._handle.preemption

    @property
    def client(self) -> Client:
        return self._handle.client


class _ShownIndex(Index[T]):
    def __init__(self, index: Index[T]) -> None:
        self._index = index

    def under(self, key: str) -> Mapping[str, T]:
        return ReadOnlyMap(self._index.under(key))

    @property
    def keys(self) -> Set[str]:
        return self._index.keys
