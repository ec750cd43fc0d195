"""The recent events of one resource, the replay of them to watches, and the fingerprint of the history that they belong to.

    forgotten | floor | events, by revision ...............| now
                      '-- every event after the floor is here

Count and bytes bound the event log. When it is full, an eighth of the bound is dropped from the front, and the floor rises.

A replay sends the initial state or the events after a position, in bounded chunks, at the pace of the reader. The events of
one revision are sent together. Only the last part of an initial state carries a resourceVersion, so a client cannot resume
from half a state.

A storage that was restored from a backup reuses revisions for other changes. Every transaction moves a commit marker to a
value that no marker had before (apiserver.storage.transaction). `Marks` keeps a digest of that marker for each revision, so
any server can verify a revision of a client. Histories that differ only in the order of expired leases are not told apart.
`Markers` compares the markers before and after a reload: a marker that changed at an old revision, or a newer marker that is
missing while an older one exists, belongs to another history. See docs/design/restore.md.
"""

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from apiserver.cacher.errors import Expired, HistoryChanged
from apiserver.cacher.freshness import Progress
from apiserver.cacher.store import Event, Selection, Snapshot
from apiserver.cacher.watcher import Told
from apiserver.storage.interface import Change, Compacted, KeyValue, Storage
from pinnace.api import wire
from pinnace.api.resources import COMMITS_PREFIX, Object
from pinnace.api.verbs_pb2 import ADDED, WatchEventType


class Dated(Protocol):
    @property
    def revision(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes."""
        ...


E = TypeVar("E", bound=Dated)
_REVISION = attrgetter("revision")


class Ring(Generic[E]):
    """Events in revision order, several to a revision. `floor`: one who knows the state at this revision can go on from it."""

    def __init__(self, max_events: int, max_bytes: int, floor: int = 0) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[E] = []
        self._bytes = 0
        self.floor = floor

    def __len__(self) -> int:
        return len(self._events)

    @property
    def bytes(self) -> int:
        return self._bytes

    def append(self, event: E) -> None:
        """`event.revision` is not below that of the event before."""
        self._events.append(event)
        self._bytes += event.size
        if len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._shrink()

    def after(self, revision: int, max_events: int, max_bytes: int) -> Sequence[E]:
        """The next events after `revision`, up to the first that reaches a limit and the others of its revision: whole
        revisions. Empty at the end. `revision` is not below the floor."""
        events = self._events
        start = bisect_right(events, revision, key=_REVISION)
        end, size = start, 0
        while end < len(events) and end - start < max_events and size < max_bytes:
            size += events[end].size
            end += 1
        if start < end < len(events):
            end = bisect_right(events, events[end - 1].revision, lo=end, key=_REVISION)
        return events[start:end]

    def clear(self, floor: int) -> None:
        """Forgets everything: the past is only known from `floor` on."""
        self._events.clear()
        self._bytes = 0
        self.floor = floor

    def _shrink(self) -> None:
        events_goal, bytes_goal = self._max_events * 7 // 8, self._max_bytes * 7 // 8
        gone = 0
        while gone < len(self._events) and (len(self._events) - gone > events_goal or self._bytes > bytes_goal):
            self._bytes -= self._events[gone].size
            gone += 1
        self.floor = self._events[gone - 1].revision
        del self._events[:gone]


KEPT = 100_000
"""Marks that are remembered: 1.6 MB."""
MARK_BYTES = 8
_NONE = 0


class Marks:
    """The marks of the revisions that a cache has gone through."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._revisions = array("Q")
        self._marks = array("Q")
        self.reset(0, ())

    def reset(self, revision: int, markers: Iterable[KeyValue]) -> None:
        """Begins at a revision, with the markers as they were there."""
        last = _last(markers)
        self._revisions, self._marks = array("Q", [revision]), array("Q", [_mark(last.key, last.value) if last else _NONE])

    def moved(self, revision: int, key: str, value: bytes) -> None:
        """A marker was. `revision` is above all before."""
        self._revisions.append(revision)
        self._marks.append(_mark(key, value))
        if len(self._revisions) > self._kept:
            gone = self._kept // 8
            del self._revisions[:gone], self._marks[:gone]

    def at(self, revision: int) -> bytes | None:
        """The mark of a revision that was gone through; b"" where nothing had been committed; None: not known any more."""
        if revision >= self._revisions[-1]:
            return _told(self._marks[-1])
        index = bisect_right(self._revisions, revision)
        return _told(self._marks[index - 1]) if index else None


class Proof:
    """Whether what somebody knows is of the history that the storage has. `fresh` asks the storage for its revision."""

    def __init__(self, storage: Storage, marks: Marks, progress: Progress, fresh: Callable[[], Awaitable[int]]) -> None:
        self._storage = storage
        self._marks = marks
        self._progress = progress
        self._fresh = fresh

    async def check(self, revision: int, mark: bytes, timeout: float) -> None:
        """Raises HistoryChanged when the revision has another mark, or one that nobody can tell any more, or will only come;
        CacheBehind and StorageErrors."""
        if revision > self._progress.revision and await self._is_to_come(revision):
            raise HistoryChanged(revision)
        await self._progress.wait_for(revision, timeout)
        known = self._marks.at(revision)
        if known is None:
            known = await self._read(revision)
        if known != mark:
            raise HistoryChanged(revision)

    async def _is_to_come(self, revision: int) -> bool:
        """A single answer may be stale, from a member that was stopped (etcd#20418)."""
        return await self._fresh() < revision and await self._fresh() < revision

    async def _read(self, revision: int) -> bytes | None:
        last, after, more = None, "", True
        while more:
            try:
                page = await self._storage.page(COMMITS_PREFIX, after=after, revision=revision)
            except Compacted:
                return None
            last = _last([last, *page.items] if last else page.items)
            after, more = page.items[-1].key if page.items else "", page.more
        return _told(_mark(last.key, last.value) if last else _NONE)


def _last(markers: Iterable[KeyValue]) -> KeyValue | None:
    """The commit marker that was moved last."""
    return max(markers, key=lambda marker: marker.mod_revision, default=None)


def _mark(key: str, value: bytes) -> int:
    return int.from_bytes(blake2b(b"%b %b" % (key.encode(), value), digest_size=MARK_BYTES).digest())


def _told(mark: int) -> bytes:
    return mark.to_bytes(MARK_BYTES) if mark != _NONE else b""


T = TypeVar("T", bound=Object)
CHUNK_EVENTS = 500
CHUNK_BYTES = 512 << 10
"""A chunk ends with the event that reaches this."""
BURST = 50
"""Questions of a selection (`Selection.questions`) that are asked before the clock is looked at: 10 us."""
Over = Callable[[], bool]
"""Has the time of a step passed?"""


def initial_state(selection: Selection, snapshot: Snapshot[T], revision: int, marks: Marks, over: Over) -> Iterator[Told]:
    """The state at `revision`, which is that of now, as ADDED events. The entries are asked whether they match only when their
    turn comes. Raises Expired when the snapshot is let go meanwhile."""
    chunk: list[bytes] = []
    mark = marks.at(revision) or b""
    size = asked = 0
    burst = _burst(selection)
    for entry in snapshot.entries:
        asked += 1
        if selection.matches(entry):
            chunk.append(wire.watch_event(ADDED, entry.stamped))
            size += len(chunk[-1])
        if asked >= CHUNK_EVENTS or size >= CHUNK_BYTES or (asked % burst == 0 and over()):
            yield Told(b"".join(chunk), 0, len(chunk))
            chunk, size, asked = [], 0, 0
    snapshot.check()
    del snapshot  # the reader may take its time with the last part
    yield Told(wire.watch_response(chunk, revision, mark), revision, len(chunk))


def replay(
    selection: Selection, ring: Ring[Event[T]], since: int, progress: Progress, marks: Marks, over: Over
) -> Iterator[Told]:
    """The events after `since`. Raises Expired when the ring has moved on since the last step."""
    position = since
    burst = _burst(selection)
    while position < progress.revision:
        if position < ring.floor:
            raise Expired(ring.floor)
        found: list[tuple[Event[T], WatchEventType]] = []
        events = ring.after(position, CHUNK_EVENTS, CHUNK_BYTES)
        reached = position if events else progress.revision
        for number, event in enumerate(events):
            if number and number % burst == 0 and over():
                if event.revision > reached:
                    break
                yield Told(b"", position)
            if (kind := event.kind(selection)) is not None:
                found.append((event, kind))
            reached = event.revision
        told = [event.encode(kind) for event, kind in found]
        position = reached
        last = position >= progress.revision  # the last chunk has a revision, even if the reader selects no event of it
        response = wire.watch_response(told, position, marks.at(position) or b"") if told or last else b""
        yield Told(response, position, len(told))


def _burst(selection: Selection) -> int:
    """Events that are asked between two looks at the clock."""
    return max(1, BURST // selection.questions)


class Markers:
    def __init__(self) -> None:
        self._standing: dict[str, tuple[int, bytes]] = {}

    def reset(self, markers: Iterable[KeyValue]) -> None:
        """These there are, and no others."""
        self._standing = {marker.key: (marker.mod_revision, marker.value) for marker in markers}

    def apply(self, change: Change) -> None:
        """One was moved, or swept away."""
        if change.value is None:
            self._standing.pop(change.key, None)
        else:
            self._standing[change.key] = (change.mod_revision, change.value)

    def may_become(self, markers: Iterable[KeyValue], revision: int) -> bool:
        """Can these be of a later state of the same history? False is certain. `revision`: all up to it was applied."""
        found = {marker.key: (marker.mod_revision, marker.value) for marker in markers}
        untouched = {key: place for key, place in found.items() if place[0] <= revision}
        if not untouched.items() <= self._standing.items():
            return False
        oldest = min((at for at, _ in untouched.values()), default=revision)
        return all(key in found or at <= oldest for key, (at, _) in self._standing.items())
