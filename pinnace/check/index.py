"""A history, sorted for those who judge it: what each checker asks for is found without a search of all records."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from pinnace.api.resources import ELECTIONS_PREFIX, NODES, PODS
from pinnace.check.facts import PodFacts
from pinnace.check.history import Call, Fault, Observed, Phase, Ran, Record, Run, Stored, Told

_revision = attrgetter("revision")


class PodChange(NamedTuple):
    """A change of one pod. A namesake (another uid) is another pod: the one before is then None."""

    stored: Stored
    now: PodFacts | None
    """None: deleted."""
    before: PodFacts | None


class History:
    def __init__(self, records: Iterable[Record]) -> None:
        self.run: Run | None = None
        self.stored: list[Stored] = []
        """In the order of the record: that of revisions, unless the history is not sound."""
        self.keys: dict[str, list[Stored]] = {}
        """All versions of each key, deletions too."""
        self.pods: list[PodChange] = []
        self.nodes: list[Stored] = []
        self.elections: dict[str, list[Stored]] = {}
        """By name."""
        self.calls: list[Call] = []
        self.streams: dict[tuple[str, str], list[Told]] = {}
        """By (client, stream)."""
        self.ran: list[Ran] = []
        self.faults: dict[int, Fault] = {}
        """As they were last written: with their end, if they have one."""
        self.observed: list[Observed] = []
        self.phases: dict[str, float] = {}
        """When each phase began first."""
        self.last_revision = 0
        """The highest that is known."""
        for record in records:
            self._add(record)

    def version(self, key: str, revision: int) -> Stored | None:
        """What was written to the key at exactly this revision."""
        versions = self.keys.get(key, ())
        index = bisect_left(versions, revision, key=_revision)
        return versions[index] if index < len(versions) and versions[index].revision == revision else None

    def state(self, key: str, revision: int) -> Stored | None:
        """The key as it was at a revision; None: absent."""
        versions = self.keys.get(key, ())
        index = bisect_right(versions, revision, key=_revision)
        return versions[index - 1] if index and versions[index - 1].digest else None

    def after(self, key: str, revision: int) -> Sequence[Stored]:
        """The versions that followed the revision."""
        versions = self.keys.get(key, [])
        return versions[bisect_right(versions, revision, key=_revision) :]

    def next_version(self, key: str, revision: int) -> Stored | None:
        """The first version that followed the revision."""
        versions = self.keys.get(key, ())
        index = bisect_right(versions, revision, key=_revision)
        return versions[index] if index < len(versions) else None

    def before(self, stored: Stored) -> Stored | None:
        """The version that this one replaced."""
        return self.state(stored.key, stored.revision - 1)

    def _add(self, record: Record) -> None:
        match record:
            case Stored():
                self._add_stored(record)
            case Call():
                self.calls.append(record)
            case Told():
                self.streams.setdefault((record.client, record.stream), []).append(record)
            case Ran():
                self.ran.append(record)
            case Fault():
                self.faults[record.id] = record
            case Observed():
                self.observed.append(record)
            case Phase():
                self.phases.setdefault(record.name, record.at)
            case Run():
                self.run = self.run or record

    def _add_stored(self, record: Stored) -> None:
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

    def _add_pod(self, record: Stored, before: Stored | None) -> None:
        now = record.facts if isinstance(record.facts, PodFacts) else None
        old = before.facts if before is not None and isinstance(before.facts, PodFacts) else None
        if now is not None and old is not None and old.uid != now.uid:
            self.pods.append(PodChange(record, None, old))
            old = None
        self.pods.append(PodChange(record, now, old))
