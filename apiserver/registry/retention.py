"""How many events are kept: at most a number of them, and a number of bytes. Their age is bounded by etcd's leases
(apiserver.registry.events).

    within bounds --more events--> over a bound --claim the key--> the surplus is deleted, in transactions of MAX_OPERATIONS
                                       |            |                       '--> SLACK below the bound
                                       '--TURN <----'--another server has moved the key less than QUIET ago

Deletion is fair: every namespace keeps the same number of events, or all of them where it has fewer (max-min fairness), and
likewise for bytes. So a namespace that floods loses its own events. In a namespace the events go that were written longest ago.

One server deletes, without an election: each transaction moves a key under compare-and-swap, as the compactor does. A server
that sees that another one has moved the key waits until it stands still for QUIET seconds. A store that is out of space takes
no puts: then every server deletes, and leaves out what another one has deleted. Deletes compare the version of the event: an
event that was written meanwhile stays.

Does not promise that a bound is never exceeded: a server looks every TURN seconds, and what comes between is over it. The store
gets the space back with the next compactions (apiserver.storage.compactor).
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheBehind
from apiserver.cacher.store import Entry
from apiserver.storage.interface import MAX_OPERATIONS, Committed, KeyValue, OutOfSpace, Refused, Storage, StorageError, Write
from pinnace.api.resources import EVENTS, EVENTS_TRIM_KEY, namespace_of
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

MAX_COUNT = 100_000
MAX_BYTES = 64 << 20
"""Of keys and values. An event has some 400; in the memory of an API server it is twice as much."""
SLACK = 1 / 16
"""Of a bound: so much less is left, so that there is a pause before the next deletes."""
TURN = 1.0
"""Seconds."""
AT_ONCE = 20 * (MAX_OPERATIONS - 1)
"""Events that are looked for at once, which takes some 5 ms of the event loop, and deleted before there is a pause..."""
PAUSE = 0.05
"""...of so many seconds."""
QUIET = 10.0
"""Seconds. Longer than a transaction takes, and than a server that deletes pauses while there is a surplus."""
MAX_DELETES = MAX_OPERATIONS - 1
"""Of a transaction."""
PATIENCE = 5.0
"""Seconds until the cache has what was deleted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    count: int = MAX_COUNT
    size: int = MAX_BYTES
    """Bytes."""


class Doomed(NamedTuple):
    """An event that is to go, as it was seen."""

    key: str
    revision: int
    reason: str
    """count, or bytes."""


class _Share:
    """Of one namespace: its events, those first that were written longest ago."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: dict[str, Entry[Any]] = {}
        self.size = 0


class Held:
    """The events that there are: an apiserver.cacher.resource.Observer. `size`: bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self._shares: dict[str, _Share] = {}

    def reset(self, entries: Iterable[Entry[Any]]) -> None:
        self.count = self.size = 0
        self._shares = {}
        for entry in sorted(entries, key=lambda entry: entry.mod_revision):
            self.change(None, entry)

    def change(self, old: Entry[Any] | None, new: Entry[Any] | None) -> None:
        """An event that is written again goes to the end."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def surplus(self, bounds: Bounds, most: int) -> Sequence[Doomed]:
        """What must go, so that a bound that is exceeded has SLACK, or the first `most` of it; nothing within the bounds. By
        namespace, oldest first."""
        counts = {name: len(share.entries) for name, share in self._shares.items()}
        sizes = {name: share.size for name, share in self._shares.items()}
        by_count = _level(counts.values(), int(bounds.count * (1 - SLACK))) if self.count > bounds.count else None
        by_size = _level(sizes.values(), int(bounds.size * (1 - SLACK))) if self.size > bounds.size else None
        doomed: list[Doomed] = []
        for name, share in self._shares.items():
            count, size = counts[name], sizes[name]
            for entry in share.entries.values():
                if by_count is not None and count > by_count:
                    reason = "count"
                elif by_size is not None and size > by_size:
                    reason = "bytes"
                else:
                    break
                if len(doomed) >= most:
                    return doomed
                doomed.append(Doomed(entry.key, entry.mod_revision, reason))
                count, size = count - 1, size - _size(entry)
        return doomed

    def _add(self, entry: Entry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares.get(namespace)
        if share is None:
            share = self._shares[namespace] = _Share()
        share.entries[entry.key] = entry
        size = _size(entry)
        share.size += size
        self.size += size
        self.count += 1

    def _remove(self, entry: Entry[Any]) -> None:
        namespace = namespace_of(entry.key)
        share = self._shares[namespace]
        del share.entries[entry.key]
        size = _size(entry)
        share.size -= size
        self.size -= size
        self.count -= 1
        if not share.entries:
            del self._shares[namespace]


def _size(entry: Entry[Any]) -> int:
    return len(entry.key) + len(entry.value)


def _level(amounts: Iterable[int], most: int) -> int:
    """The most that each may keep, so that all together keep no more than `most`."""
    left, ordered = most, sorted(amounts)
    for number, amount in enumerate(ordered):
        share = left // (len(ordered) - number)
        if amount > share:
            return share
        left -= amount
    return ordered[-1] if ordered else 0


class Retention:
    """`run` deletes what is over the bounds, until cancelled. `held`: what there is. `dropped`: how many events this server has
    deleted, by the bound that was exceeded."""

    def __init__(self, storage: Storage, cacher: Cacher, clock: Clock, bounds: Bounds) -> None:
        self.held = Held()
        self.dropped = {"count": 0, "bytes": 0}
        self._storage = storage
        self._cacher = cacher
        self._cache = cacher.of(EVENTS)
        self._cache.observe(self.held)
        self._clock = clock
        self._bounds = bounds
        self._key_at = 0  # the key's mod_revision, when last seen; 0: there was none
        self._mine = False
        self._moved = float("-inf")  # when another server's move was seen

    async def run(self) -> None:
        while True:
            await self._clock.sleep(TURN)
            try:
                while await self._take_turn():
                    await self._clock.sleep(PAUSE)
            except (StorageError, CacheBehind) as error:
                log.warning("events over the bound are not deleted: %s", error)

    async def _take_turn(self) -> bool:
        """Has anything been deleted? Raises StorageError, CacheBehind."""
        if not self._cache.loaded or (not self._mine and self._clock.monotonic() < self._moved + QUIET):
            return False
        doomed = self.held.surplus(self._bounds, AT_ONCE)
        if not doomed or not (self._mine or await self._claim()):
            return False
        revision = 0
        for start in range(0, len(doomed), MAX_DELETES):
            deleted = await self._delete(doomed[start : start + MAX_DELETES])
            if deleted is None:
                break
            revision = max(revision, deleted)
        await self._cacher.wait_for(revision, PATIENCE)
        return revision > 0

    async def _claim(self) -> bool:
        """Is it for this server to delete? Raises StorageError."""
        try:
            return isinstance(await self._transact(()), Committed)
        except OutOfSpace:
            return True

    async def _delete(self, doomed: Sequence[Doomed]) -> int | None:
        """Those that are still as they were. The revision; 0: none is; None: another server deletes. Raises StorageError."""
        while doomed:
            deletes = [Write(each.key, None, expected=each.revision) for each in doomed]
            key_at = self._key_at
            try:
                answer = await self._transact(deletes)
            except OutOfSpace:
                answer = await self._storage.transact(deletes)
            if isinstance(answer, Committed):
                for each in doomed:
                    self.dropped[each.reason] += 1
                return answer.revision
            if self._key_at != key_at:
                return None
            doomed = [each for each in doomed if _revision(answer.current[each.key]) == each.revision]
        return 0

    async def _transact(self, deletes: Sequence[Write]) -> Committed | Refused:
        """Moves the key as well, and remembers where it is. Raises StorageError."""
        answer = await self._storage.transact([Write(EVENTS_TRIM_KEY, b"", expected=self._key_at), *deletes])
        if isinstance(answer, Committed):
            self._key_at, self._mine = answer.revision, True
        elif (found := _revision(answer.current[EVENTS_TRIM_KEY])) != self._key_at:
            self._key_at, self._mine, self._moved = found, False, self._clock.monotonic()
        return answer


def _revision(current: KeyValue | None) -> int:
    return current.mod_revision if current is not None else 0
