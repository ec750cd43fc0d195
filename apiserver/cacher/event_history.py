"""The recent events of one resource, their replay to watches, and the fingerprints of the history.

    dropped | floor | events by revision ...............| current revision
                    '-- every event after the floor is here

The event log is limited by number and bytes. If a limit is exceeded, the oldest eighth is dropped, and the floor rises.

A replay sends the initial state, or the events after a revision, in chunks of bounded size, and at the speed of the reader. A
chunk contains all events of its revisions. Only the last chunk of an initial state has a resourceVersion, so a client cannot
resume from an incomplete state.

A storage that was restored from a backup reuses revisions for other changes. Every transaction sets a commit marker to a unique
value (apiserver.storage.committer). `HistoryFingerprints` stores a digest of the marker for each revision, so every server can
verify the revision of a client. Histories that differ only in the order of expired leases have equal fingerprints.
`CommitMarkers` compares the markers before and after a reload. They belong to different histories if a marker has changed at an
old revision, or if a newer marker is missing while an older one exists. See docs/design/restore.md.
"""

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinnace.api import wire
from pinnace.api.resources import COMMITS_PREFIX
from pinnace.api.verbs_pb2 import ADDED, WatchEventType
from pinnace.apiserver.cacher.store import (
    CacheEvent,
    CacheProgress,
    CacheSnapshot,
    HistoryChanged,
    RevisionExpired,
    SelectionPredicate,
    T,
)
from pinnace.apiserver.storage.interface import Compacted, KeyChange, KeyValue, Storage

_REVISION = attrgetter("revision")

MAX_FINGERPRINTS = 100_000
"""Maximum number of stored fingerprints (1.6 MB)."""

FINGERPRINT_BYTES = 8

_NONE = 0

CHUNK_EVENTS = 500

CHUNK_BYTES = 512 << 10
"""The size in bytes at which a chunk ends."""

BURST = 50
"""Number of requirements (`SelectionPredicate.requirement_count`) that are evaluated between two reads of the clock: about 10
us."""

TimeIsUp = Callable[[], bool]
"""Reports whether the time slice of a step has ended."""


class EncodedResponse(NamedTuple):
    """An encoded WatchResponse, its revision (0 for all but the last chunk of an initial state), and its number of events."""

    response: bytes
    revision: int
    events: int = 0


class HistoryEvent(Protocol):
    """An event with a revision and a size in bytes."""

    @property
    def revision(self) -> int: ...
    @property
    def size(self) -> int: ...


E = TypeVar("E", bound=HistoryEvent)


class EventHistory(Generic[E]):
    """Events in order of revision. A revision can have several events. `floor` is the oldest revision from which a watch can
    resume."""

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
        """Append an event. Its revision must not be below that of the previous event."""
        self._events.append(event)
        self._bytes += event.size
        if len(self._events) > self._max_events or self._bytes > self._max_bytes:
            self._drop_oldest_events()

    def events_after(self, revision: int, max_events: int, max_bytes: int) -> Sequence[E]:
        """Return the next events after `revision`, which must not be below the floor. The result ends with the revision that
        reaches a limit. It is empty at the end of the log."""
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
        """Drop all events. Watches can resume only from `floor`."""
        self._events.clear()
        self._bytes = 0
        self.floor = floor

    def _drop_oldest_events(self) -> None:
        events_goal, bytes_goal = self._max_events * 7 // 8, self._max_bytes * 7 // 8
        gone = 0
        while gone < len(self._events) and (len(self._events) - gone > events_goal or self._bytes > bytes_goal):
            self._bytes -= self._events[gone].size
            gone += 1
        self.floor = self._events[gone - 1].revision
        del self._events[:gone]


class HistoryFingerprints:
    """The fingerprints of the applied revisions."""

    def __init__(self, capacity: int = MAX_FINGERPRINTS) -> None:
        self._capacity = capacity
        self._revisions = array("Q")
        self._fingerprints = array("Q")
        self.reset(0, ())

    def reset(self, revision: int, markers: Iterable[KeyValue]) -> None:
        """Start at a revision with the markers at this revision."""
        last = _newest_marker(markers)
        self._revisions, self._fingerprints = (
            array("Q", [revision]),
            array("Q", [_fingerprint_of(last.key, last.value) if last else _NONE]),
        )

    def record_marker_change(self, revision: int, key: str, value: bytes) -> None:
        """Record a change of a marker. `revision` must be above all recorded ones."""
        self._revisions.append(revision)
        self._fingerprints.append(_fingerprint_of(key, value))
        if len(self._revisions) > self._capacity:
            gone = self._capacity // 8
            del self._revisions[:gone], self._fingerprints[:gone]

    def fingerprint_at(self, revision: int) -> bytes | None:
        """Return the fingerprint of a revision: b"" before the first commit, None if it is no longer stored."""
        if revision >= self._revisions[-1]:
            return _encoded_fingerprint(self._fingerprints[-1])
        index = bisect_right(self._revisions, revision)
        return _encoded_fingerprint(self._fingerprints[index - 1]) if index else None


class RevisionVerifier:
    """Verifies that a client's revision belongs to the history of the storage. `fresh` reads the storage's revision."""

    def __init__(
        self, storage: Storage, fingerprints: HistoryFingerprints, progress: CacheProgress, fresh: Callable[[], Awaitable[int]]
    ) -> None:
        self._storage = storage
        self._fingerprints = fingerprints
        self._progress = progress
        self._fresh = fresh

    async def verify_revision(self, revision: int, fingerprint: bytes, timeout: float) -> None:
        """Raise HistoryChanged if the revision has another fingerprint, its fingerprint is unknown, or it is in the future.
        Raises also CacheBehind and StorageErrors."""
        if revision > self._progress.revision and await self._is_future_revision(revision):
            raise HistoryChanged(revision)
        await self._progress.wait_for(revision, timeout)
        known = self._fingerprints.fingerprint_at(revision)
        if known is None:
            known = await self._read_marker_at(revision)
        if known != fingerprint:
            raise HistoryChanged(revision)

    async def _is_future_revision(self, revision: int) -> bool:
        """Report whether the revision is in the future. It is read twice, because a response can be stale (etcd#20418)."""
        return await self._fresh() < revision and await self._fresh() < revision

    async def _read_marker_at(self, revision: int) -> bytes | None:
        last, after, more = None, "", True
        while more:
            try:
                page = await self._storage.page(COMMITS_PREFIX, after=after, revision=revision)
            except Compacted:
                return None
            last = _newest_marker([last, *page.items] if last else page.items)
            after, more = page.items[-1].key if page.items else "", page.more
        return _encoded_fingerprint(_fingerprint_of(last.key, last.value) if last else _NONE)


def _newest_marker(markers: Iterable[KeyValue]) -> KeyValue | None:
    """Return the marker with the highest revision."""
    return max(markers, key=lambda marker: marker.mod_revision, default=None)


def _fingerprint_of(key: str, value: bytes) -> int:
    return int.from_bytes(blake2b(b"%b %b" % (key.encode(), value), digest_size=FINGERPRINT_BYTES).digest())


def _encoded_fingerprint(fingerprint: int) -> bytes:
    return fingerprint.to_bytes(FINGERPRINT_BYTES) if fingerprint != _NONE else b""


def initial_events(
    selection: SelectionPredicate, snapshot: CacheSnapshot[T], revision: int, fingerprints: HistoryFingerprints, over: TimeIsUp
) -> Iterator[EncodedResponse]:
    """Yield the snapshot at the current `revision` as ADDED events. Entries are matched chunk by chunk. Raises RevisionExpired
    if the snapshot is released before the end."""
    chunk: list[bytes] = []
    fingerprint = fingerprints.fingerprint_at(revision) or b""
    size = asked = 0
    burst = _matches_per_time_check(selection)
    for entry in snapshot.entries:
        asked += 1
        if selection.matches(entry):
            chunk.append(wire.watch_event(ADDED, entry.encoded_for(selection)))
            size += len(chunk[-1])
        if asked >= CHUNK_EVENTS or size >= CHUNK_BYTES or (asked % burst == 0 and over()):
            yield EncodedResponse(b"".join(chunk), 0, len(chunk))
            chunk, size, asked = [], 0, 0
    snapshot.require_unreleased()
    del snapshot  # do not keep it in memory while a slow reader reads the last chunk
    yield EncodedResponse(wire.watch_response(chunk, revision, fingerprint), revision, len(chunk))


def replay_events(
    selection: SelectionPredicate,
    log: EventHistory[CacheEvent[T]],
    since: int,
    progress: CacheProgress,
    fingerprints: HistoryFingerprints,
    over: TimeIsUp,
) -> Iterator[EncodedResponse]:
    """Yield the events after `since`. Raises RevisionExpired if the log has dropped the next events."""
    position = since
    burst = _matches_per_time_check(selection)
    while position < progress.revision:
        if position < log.floor:
            raise RevisionExpired(log.floor)
        matching_events: list[tuple[CacheEvent[T], WatchEventType]] = []
        events = log.events_after(position, CHUNK_EVENTS, CHUNK_BYTES)
        reached = position if events else progress.revision
        for number, event in enumerate(events):
            if number and number % burst == 0 and over():
                if event.revision > reached:
                    break
                yield EncodedResponse(b"", position)
            if (kind := event.kind(selection)) is not None:
                matching_events.append((event, kind))
            reached = event.revision
        encoded_events = [event.encode(kind, selection.shows_owners) for event, kind in matching_events]
        position = reached
        last = position >= progress.revision  # the last chunk is sent even without events, for its revision
        response = (
            wire.watch_response(encoded_events, position, fingerprints.fingerprint_at(position) or b"")
            if encoded_events or last
            else b""
        )
        yield EncodedResponse(response, position, len(encoded_events))


def _matches_per_time_check(selection: SelectionPredicate) -> int:
    """Return the number of events to match between two reads of the clock."""
    return max(1, BURST // selection.requirement_count)


class CommitMarkers:
    """The commit markers at the current revision."""

    def __init__(self) -> None:
        self._standing: dict[str, tuple[int, bytes]] = {}

    def reset(self, markers: Iterable[KeyValue]) -> None:
        """Replace all markers."""
        self._standing = {marker.key: (marker.mod_revision, marker.value) for marker in markers}

    def apply(self, change: KeyChange) -> None:
        """Apply a change or deletion of a marker."""
        if change.value is None:
            self._standing.pop(change.key, None)
        else:
            self._standing[change.key] = (change.mod_revision, change.value)

    def is_same_history(self, markers: Iterable[KeyValue], revision: int) -> bool:
        """Report whether these markers can belong to a later state of the same history. If False, they belong to another one.
        `revision` is the last applied revision."""
        state_by_key = {marker.key: (marker.mod_revision, marker.value) for marker in markers}
        untouched = {key: place for key, place in state_by_key.items() if place[0] <= revision}
        if not untouched.items() <= self._standing.items():
            return False
        oldest = min((at for at, _ in untouched.values()), default=revision)
        return all(key in state_by_key or at <= oldest for key, (at, _) in self._standing.items())
