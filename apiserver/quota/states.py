"""The quotas of each namespace, as far as this server knows.

    the watch cache     what most know
    learned             what etcd has said since: a charge of ours, or the reason why one was refused

What was learned is newer than the cache, until the cache gets there; then it is forgotten. It is never waited for.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import Selection
from apiserver.quota.bounds import Bounds
from apiserver.storage.interface import KeyValue
from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.resources import RESOURCE_QUOTAS, namespace_of


class State(NamedTuple):
    """One version of a quota."""

    key: str
    revision: int
    bounds: Bounds
    size: int
    """Bytes, as it is stored."""


class States:
    def __init__(self, cacher: Cacher) -> None:
        self._cacher = cacher
        self._cache = cacher.of(RESOURCE_QUOTAS)
        self._everything = Selection.parse(RESOURCE_QUOTAS, "", "", "")
        self._keys: dict[str, list[str]] = {}
        self._indexed = -1
        self._read: dict[str, State] = {}
        self._learned: dict[str, tuple[int, State | None]] = {}
        """By key: the revision of which it was learned, and the state then."""

    @property
    def keys(self) -> Mapping[str, Sequence[str]]:
        """Of the quotas of each namespace that has any, in order."""
        if self._indexed != self._cache.version:
            self._keys = {}
            for entry in self._cache.select(self._everything):
                self._keys.setdefault(namespace_of(entry.key), []).append(entry.key)
            self._read = {key: state for key, state in self._read.items() if self._cache.get(key) is not None}
            reached = self._cacher.revision
            self._learned = {key: learned for key, learned in self._learned.items() if learned[0] > reached}
            self._indexed = self._cache.version
        return self._keys

    def cached(self, namespace: str) -> list[State]:
        """The quotas of a namespace at the revision of the cache."""
        return [state for key in self.keys.get(namespace, ()) if (state := self._cached(key))]

    def newest(self, namespace: str) -> list[State]:
        """The quotas of a namespace, each as it was last heard of."""
        return [state for key in self.keys.get(namespace, ()) if (state := self._newest(key))]

    def learn(self, key: str, revision: int, current: KeyValue | None) -> None:
        """At that revision this was what etcd had there. What cannot be read is no quota: the cache leaves it out, too."""
        try:
            state = None if current is None else _state(key, current.mod_revision, current.value)
        except DecodeError:
            state = None
        self._learned[key] = revision, state

    def _newest(self, key: str) -> State | None:
        revision, learned = self._learned.get(key, (0, None))
        if revision > self._cacher.revision:
            return learned
        self._learned.pop(key, None)
        return self._cached(key)

    def _cached(self, key: str) -> State | None:
        entry = self._cache.get(key)
        if entry is None:
            return None
        known = self._read.get(key)
        if known is None or known.revision != entry.mod_revision:
            known = self._read[key] = _state(key, entry.mod_revision, entry.value)
        return known


def _state(key: str, revision: int, value: bytes) -> State:
    return State(key, revision, Bounds(ResourceQuota.FromString(value)), len(value))
