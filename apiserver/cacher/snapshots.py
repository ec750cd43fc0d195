"""The states of one resource that watches begin with, for as long as some are being told.

    taken, by the first that begins --others begin at the same state--> shared --the last has been told it--> gone
                                     --history reaches back to it no more, or MAX_AGE-------> let go: Expired

A reader that does not read keeps its snapshot, and with it versions of objects that have been replaced since. Those that
history (apiserver.cacher.ring) has are in memory anyway; and who is still being told a state that history does not reach back
to could not go on from it. So a snapshot keeps no version for longer than history does. What it costs is a list of references,
once for all that begin at the same state: nobody is charged for that.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from apiserver.cacher.entry import Entry
from apiserver.cacher.errors import Expired
from pinnace.api.resources import Object
from pinnace.runtime.clock import Clock

T = TypeVar("T", bound=Object)
MAX_AGE = 300.0
"""Seconds in which a reader must have been told the state that it begins with, as long as history lasts in etcd."""


class Snapshot(Generic[T]):
    """The entries that may be told, in key order. `revision`, `taken`: when somebody began with them last, in revisions and in
    seconds."""

    def __init__(self, entries: list[Entry[T]]) -> None:
        self.entries = entries
        self.revision = 0
        self.taken = 0.0
        self._oldest: int | None = None

    def let_go(self, oldest: int) -> None:
        """`oldest`: what history reaches back to."""
        self.entries.clear()
        self._oldest = oldest

    def check(self) -> None:
        """Raises Expired when it was let go."""
        if self._oldest is not None:
            raise Expired(self._oldest)


class Snapshots(Generic[T]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: WeakValueDictionary[Hashable, Snapshot[T]] = WeakValueDictionary()  # the oldest is the first

    def take(self, key: Hashable, revision: int, entries: Callable[[], list[Entry[T]]]) -> Snapshot[T]:
        """What has equal keys is the same state, though perhaps of a later revision."""
        found = self._told.pop(key, None)
        if found is None:
            found = Snapshot(entries())
        found.revision, found.taken = revision, self._clock.monotonic()
        self._told[key] = found
        return found

    def let_go(self, floor: int) -> None:
        """Of those that history, which reaches back to `floor`, does not reach, and of those that are too old."""
        while (first := self._first()) is not None and (first[1].revision < floor or self._is_old(first[1])):
            del self._told[first[0]]
            first[1].let_go(floor)

    def _first(self) -> tuple[Hashable, Snapshot[T]] | None:
        return next(self._told.items(), None)

    def _is_old(self, snapshot: Snapshot[T]) -> bool:
        return self._clock.monotonic() - snapshot.taken >= MAX_AGE
