"""One change of one object, and what it is to somebody who sees only a selection of the objects.

                 selected after the change      not selected after
selected before  MODIFIED                       DELETED
not before       ADDED                          nothing
"""

from typing import Any, Generic, TypeVar

from apiserver.cacher.entry import Entry
from apiserver.cacher.selection import Selection
from pinnace.api import wire
from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType

T = TypeVar("T", bound=Object)
OVERHEAD = 300
"""Bytes that an event, its entry and its key take beside the value: 210 to 300, by the growth of the process."""


class Event(Generic[T]):
    """Immutable. `old` is None for a create, `new` for a delete; never both."""

    __slots__ = ("new", "old", "revision")

    def __init__(self, revision: int, old: Entry[T] | None, new: Entry[T] | None) -> None:
        self.revision = revision
        self.old = old
        self.new = new

    @property
    def size(self) -> int:
        """Bytes that history pays for it. `old` is not counted: it is the `new` of an earlier event."""
        return OVERHEAD + (len(self.new.value) if self.new is not None else 0)

    def kind(self, selection: Selection) -> WatchEventType | None:
        """What a watcher of the selection is told; None: nothing."""
        old, new = self.old, self.new
        before = old is not None and (selection.everything or selection.matches(old))
        if new is not None and (selection.everything or selection.matches(new)):
            return MODIFIED if before else ADDED
        return DELETED if before else None

    def encode(self, kind: WatchEventType) -> bytes:
        """The event as a field of any WatchResponse. DELETED has the object as it was last, at the revision of this change."""
        entry: Any = self.old if kind == DELETED else self.new
        return wire.watch_event(kind, entry.value + wire.stamp(self.revision))
