"""An index of a history for the checkers: versions of keys, changes of pods, calls in order of time, the state of etcd at given
revisions, and the selections of lists and watches.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedDict

from pinnace.api.resources import ELECTIONS_PREFIX, NODES, PODS, prefix_of
from pinnace.history.records import (
    CallRecord,
    ContainerRun,
    FaultRecord,
    Observation,
    PodFacts,
    Record,
    RunInfo,
    RunPhase,
    StoredChange,
    WatchMessage,
)

BY_NODE = "spec.nodeName="
_revision = attrgetter("revision")


def list_call_moments(calls: Iterable[CallRecord]) -> Iterator[tuple[bool, int, CallRecord]]:
    """Yield (began, index, call) for the start and the end of each call, in order of time.

    A call precedes another only if it ended before the other began, so starts are yielded before ends of the same time.
    """
    listed = list(calls)
    order = [(call.began, 0, index) for index, call in enumerate(listed)]
    order += [(max(call.ended, call.began), 1, index) for index, call in enumerate(listed)]
    order.sort()
    for _, end, index in order:
        yield not end, index, listed[index]


def find_fault_end(fault: FaultRecord) -> float:
    return float("inf") if fault.ended is None else fault.ended


def measure_uncovered(since: float, until: float, faults: Iterable[FaultRecord]) -> float:
    """Return the seconds between `since` and `until` that are not covered by faults."""
    left, at = 0.0, since
    for began, ended in sorted((fault.began, find_fault_end(fault)) for fault in faults):
        if began > at:
            left += max(0.0, min(began, until) - at)
        at = max(at, ended)
    return left + max(0.0, until - at)


@dataclass(frozen=True, slots=True)
class KeyQuery:
    prefix: str
    selector: str = ""

    @property
    def is_evaluable(self) -> bool:
        """Whether the selector can be evaluated from facts. If not, missing objects are not detected."""
        return not self.selector or (self.selector.startswith(BY_NODE) and "," not in self.selector)

    def selects(self, stored: StoredChange | None) -> bool:
        """Return whether the selector matches this version of a key under the prefix."""
        if stored is None or not stored.digest:
            return False
        if not self.selector:
            return True
        return isinstance(stored.facts, PodFacts) and stored.facts.node == self.selector.removeprefix(BY_NODE)


class PodChange(NamedTuple):
    """A change of one pod. A recreated pod with another uid is a different pod, and `before` is None."""

    stored: StoredChange
    now: PodFacts | None
    """None if the pod was deleted."""
    before: PodFacts | None


class History:
    def __init__(self, records: Iterable[Record]) -> None:
        self.run: RunInfo | None = None
        self.stored: list[StoredChange] = []
        """Changes in the order of their records, which is the order of revisions if the history is complete (H)."""
        self.keys: dict[str, list[StoredChange]] = {}
        """All versions of each key, including deletions."""
        self.pods: list[PodChange] = []
        self.nodes: list[StoredChange] = []
        self.elections: dict[str, list[StoredChange]] = {}
        """Versions of election keys by name of the election."""
        self.calls: list[CallRecord] = []
        self.streams: dict[tuple[str, str], list[WatchMessage]] = {}
        """Watch records by (client, stream)."""
        self.ran: list[ContainerRun] = []
        self.faults: dict[int, FaultRecord] = {}
        """The last record of each fault by ID. It contains the end of the fault if it has ended."""
        self.observed: list[Observation] = []
        self.phases: dict[str, float] = {}
        """The start of each phase."""
        self.last_revision = 0
        """The highest revision of the history."""
        for record in records:
            self._add_record(record)

    def find_version(self, key: str, revision: int) -> StoredChange | None:
        """Return the version of the key that was written at this revision, or None."""
        versions = self.keys.get(key, ())
        index = bisect_left(versions, revision, key=_revision)
        return versions[index] if index < len(versions) and versions[index].revision == revision else None

    def find_current_version(self, key: str, revision: int) -> StoredChange | None:
        """Return the version of the key that was current at this revision, or None if the key was absent."""
        versions = self.keys.get(key, ())
        index = bisect_right(versions, revision, key=_revision)
        return versions[index - 1] if index and versions[index - 1].digest else None

    def list_later_versions(self, key: str, revision: int) -> Sequence[StoredChange]:
        """Return the versions of the key after this revision."""
        versions = self.keys.get(key, [])
        return versions[bisect_right(versions, revision, key=_revision) :]

    def next_version(self, key: str, revision: int) -> StoredChange | None:
        """Return the first version of the key after this revision, or None."""
        versions = self.keys.get(key, ())
        index = bisect_right(versions, revision, key=_revision)
        return versions[index] if index < len(versions) else None

    def find_replaced_version(self, stored: StoredChange) -> StoredChange | None:
        """Return the version that this one replaced, or None if the key was absent."""
        return self.find_current_version(stored.key, stored.revision - 1)

    def _add_record(self, record: Record) -> None:
        match record:
            case StoredChange():
                self._add_stored(record)
            case CallRecord():
                self.calls.append(record)
            case WatchMessage():
                self.streams.setdefault((record.client, record.stream), []).append(record)
            case ContainerRun():
                self.ran.append(record)
            case FaultRecord():
                self.faults[record.id] = record
            case Observation():
                self.observed.append(record)
            case RunPhase():
                self.phases.setdefault(record.name, record.at)
            case RunInfo():
                self.run = self.run or record

    def _add_stored(self, record: StoredChange) -> None:
        self.stored.append(record)
        self.last_revision = max(self.last_revision, record.revision)
        key = record.key
        versions = self.keys.get(key)
        if versions is None:
            versions = self.keys[key] = []
        before = versions[-1] if versions else None
        versions.append(record)
        if key.startswith(PODS.prefix):
            self._add_pod(record, before)
        elif key.startswith(NODES.prefix):
            self.nodes.append(record)
        elif key.startswith(ELECTIONS_PREFIX):
            self.elections.setdefault(key.removeprefix(ELECTIONS_PREFIX), []).append(record)

    def _add_pod(self, record: StoredChange, before: StoredChange | None) -> None:
        now = record.facts if isinstance(record.facts, PodFacts) else None
        old = before.facts if before is not None and isinstance(before.facts, PodFacts) else None
        if now is not None and old is not None and old.uid != now.uid:
            self.pods.append(PodChange(record, None, old))
            old = None
        self.pods.append(PodChange(record, now, old))


class StoredState:
    """The keys that exist at one revision, sorted within each resource."""

    def __init__(self) -> None:
        self._resources: dict[str, SortedDict] = {}

    def apply_version(self, stored: StoredChange) -> None:
        resource = self._resources.get(place := prefix_of(stored.key))
        if resource is None:
            resource = self._resources[place] = SortedDict()
        if stored.digest:
            resource[stored.key] = stored
        else:
            resource.pop(stored.key, None)

    def list_range(self, prefix: str, after: str = "", upto: str = "") -> Iterator[StoredChange]:
        """Yield the keys with this prefix in order, greater than `after` and up to `upto` ("" for no limit)."""
        resource = self._resources.get(prefix_of(prefix))
        if resource is None:
            return
        end = upto or prefix + "\U0010ffff"
        for key in resource.irange(max(prefix, after), end, inclusive=(not after, True)):
            yield resource[key]


@dataclass(frozen=True, slots=True)
class StateVisit:
    """A callback for the state at a revision."""

    revision: int
    see: Callable[[StoredState], None]


def visit_states(history: History, visits: Iterable[StateVisit]) -> None:
    """Call each visit with the state at its revision. Revisions after the end of the history are skipped."""
    state = StoredState()
    changes = iter(history.stored)
    change = next(changes, None)
    for visit in sorted(visits, key=lambda visit: visit.revision):
        if visit.revision > history.last_revision:
            return
        while change is not None and change.revision <= visit.revision:
            state.apply_version(change)
            change = next(changes, None)
        visit.see(state)
