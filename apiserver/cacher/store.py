"""The present state of one resource: entries by key, in key order, and pods by node.

What cannot be read is no part of it: nobody need reckon with that, and it harms no other object. An object that becomes so is
gone for its watchers until it is mended. For this each value is read once, in about 1 us. What is there when the state is
loaded may be older than the bound of how deep requests are nested: that is read as a client would read it in a watch, in twice
the time.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError
from sortedcontainers import SortedList

from apiserver.cacher.entry import Entry
from apiserver.cacher.event import Event
from apiserver.cacher.selection import Selection
from apiserver.storage.interface import Change, KeyValue
from pinnace.api.nesting import Envelope
from pinnace.api.resources import PODS, Object, Resource

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Object)
TOLD_IN = 2
"""Levels around an object where it is told: its event, and the response."""
END = "\U0010ffff"
"""Sorts after everything that a key can go on with."""


class Store(Generic[T]):
    def __init__(self, resource: Resource[T]) -> None:
        self.entries: dict[str, Entry[T]] = {}
        self.changed = 0
        """The revision of the last change (after a load: that of the load)."""
        self.version = 0
        """Counts changes and loads."""
        self.unreadable: set[str] = set()
        """The keys of what is stored and cannot be read."""
        self._message = message = resource.message
        described: Any = message
        self._read: Callable[[bytes], T] = described.FromString
        self._read_in_watch = Envelope(message, TOLD_IN).read
        self._indexed = resource is PODS
        self._keys: SortedList = SortedList()
        self._by_node: dict[str, set[str]] = {}

    def reset(self, revision: int, items: Iterable[KeyValue]) -> None:
        """Replaces the state by that of `revision`."""
        self.unreadable = set()
        entries = [entry for item in items if (entry := self._present(item, self._read_in_watch)) is not None]
        self.entries = {entry.key: entry for entry in entries}
        self._keys = SortedList(self.entries)
        self._by_node = {}
        for entry in entries if self._indexed else ():
            self._by_node.setdefault(entry.node, set()).add(entry.key)
        self.changed = revision
        self.version += 1

    def apply(self, change: Change) -> Event[T] | None:
        """The change as an event; None when what is gone was not there, or could not be read."""
        old = self.entries.get(change.key)
        self.changed = change.mod_revision
        self.version += 1
        self.unreadable.discard(change.key)
        new = self._present(change, self._read) if change.value is not None else None
        if new is not None:
            self.entries[change.key] = new
            if old is None:
                self._keys.add(change.key)
        elif old is not None:
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

    def entry(self, item: KeyValue) -> Entry[T] | None:
        """An entry of what the storage says; it does not become part of the state. None: it cannot be read."""
        return self._entry(item, self._read_in_watch)

    def _entry(self, item: Change | KeyValue, read: Callable[[bytes], T]) -> Entry[T] | None:
        value = item.value or b""
        node = phase = ""
        try:
            obj: Any = read(value)
        except DecodeError:
            return None
        if self._indexed:
            node, phase = obj.spec.nodeName, sys.intern(obj.status.phase)
        return Entry(self._message, item.key, value, item.create_revision, item.mod_revision, node, phase)

    def _present(self, item: Change | KeyValue, read: Callable[[bytes], T]) -> Entry[T] | None:
        """Of the state that is to be."""
        entry = self._entry(item, read)
        if entry is None:
            self.unreadable.add(item.key)
            log.error("%s at revision %d is left out: it cannot be read, or not in a watch", item.key, item.mod_revision)
        return entry

    def _candidates(self, selection: Selection, after: str) -> Iterator[str]:
        if selection.key is not None:
            return iter((selection.key,) if selection.key in self.entries and selection.key > after else ())
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
