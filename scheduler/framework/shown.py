"""The handle as plugins that are not ours have it: objects are shown, as pods and nodes are (pinnace.api.readonly)."""

from collections.abc import Callable, Mapping, Set
from typing import Any

from pinnace.api.readonly import ReadOnlyMap, read_only
from pinnace.api.resources import Resource, T
from pinnace.client.client import Client
from pinnace.client.index import Index
from scheduler.framework.faults import Faults, call, check_key
from scheduler.framework.handle import Handle, Preemption, Waiting
from scheduler.framework.interface import Plugin
from scheduler.framework.results import PluginError


class Shown:
    """A Handle."""

    def __init__(self, handle: Handle, plugin: type[Plugin]) -> None:
        self._handle = handle
        self._plugin: Any = plugin
        self._faults = Faults()

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        return ReadOnlyMap(self._handle.objects(resource))

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Objects of which `by` cannot tell the key have none: informers do not end because of a plugin."""

        def key(obj: T) -> str:
            try:
                return call(self._plugin, "index", check_key, call(self._plugin, "index", by, read_only(obj)))
            except PluginError as error:
                self._faults.note(error)
                return ""

        return _ShownIndex(self._handle.index(resource, key))

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
