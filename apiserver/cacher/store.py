"""The present state of one resource: entries by key, in key order, and pods by node."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from sortedcontainers import SortedList

from apiserver.cacher.entry import Entry
from apiserver.cacher.event import Event
from apiserver.cacher.projection import project
from apiserver.cacher.selection import Selection
from apiserver.storage.interface import Change, KeyValue
from pinnace.api.resources import PODS, Object, Resource

T = TypeVar("T", bound=Object)
END = "\U0010ffff"
"""Sorts after everything that a key can go on with."""


class Store(Generic[T]):
    def __init__(self, resource: Resource[T]) -> None:
        self.entries: dict[str, Entry[T]] = {}
        self.changed = 0
        """The revision of the last change (after a load: that of the load)."""
        self.version = 0
        """Counts changes and loads."""
        self._message = resource.message
        self._indexed = resource is PODS
        self._keys: SortedList = SortedList()
        self._by_node: dict[str, set[str]] = {}

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replaces the state by that of `revision`."""
        entries = [self.entry(item) for item in items]
        self.entries = {entry.key: entry for entry in entries}
        self._keys = SortedList(self.entries)
        self._by_node = {}
        for entry in entries if self._indexed else ():
            self._by_node.setdefault(entry.node, set()).add(entry.key)
        self.changed = revision
        self.version += 1

    def apply(self, change: Change) -> Event[T] | None:
        """The change as an event; None when a key was deleted that is not there."""
        old = self.entries.get(change.key)
        self.changed = change.mod_revision
        self.version += 1
        if change.value is not None:
            new = self.entry(change)
            self.entries[change.key] = new
            if old is None:
                self._keys.add(change.key)
        elif old is not None:
            new = None
            del self.entries[change.key]
            self._keys.remove(change.key)
        else:
            return None
        if self._indexed:
            self._index(old, new)
        return Event(change.mod_revision, old, new)

    def candidates(self, selection: Selection, after: str = "", limit: int | None = None) -> list[Entry[T]]:
        """The entries with a key after `after` that can match, in key order, the first `limit` of them. They all match when
        the selection is plain; else each must be asked."""
        return [self.entries[key] for key in islice(self._candidates(selection, after), limit)]

    def count(self, prefix: str, after: str) -> int:
        """Keys that begin with `prefix`, after `after`."""
        end: int = self._keys.bisect_left(prefix + END)
        start: int = self._keys.bisect_right(max(prefix, after))
        return end - start

    def entry(self, item: Change | KeyValue) -> Entry[T]:
        """An entry of what the storage says; it does not become part of the state."""
        value = item.value or b""
        node, phase = project(value) if self._indexed else ("", "")
        return Entry(self._message, item.key, value, item.create_revision, item.mod_revision, node, phase)

    def _candidates(self, selection: Selection, after: str) -> Iterator[str]:
        if selection.nodes is not None:
            return iter(sorted(key for node in selection.nodes for key in self._by_node.get(node, ()) if key > after))
        found: Iterator[str] = self._keys.irange(max(selection.prefix, after), selection.prefix + END, (False, False))
        return found

    def _index(self, old: Entry[T] | None, new: Entry[T] | None) -> None:
        before, after = old.node if old is not None else None, new.node if new is not None else None
        if before == after:
            return
        if old is not None:
            keys = self._by_node[old.node]
            keys.discard(old.key)
            if not keys:
                del self._by_node[old.node]
        if new is not None:
            self._by_node.setdefault(new.node, set()).add(new.key)
