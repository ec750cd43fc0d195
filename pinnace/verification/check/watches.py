"""Checkers for I8 (a watch does not lose, repeat or reorder events), I9 (a bookmark R means that all events up to R were
delivered) and I12 (the pages of a list are one snapshot).

I8, I9: the connections of one stream are joined by revision. The received events must equal the events in the history: the same
events with the same content in the same order.

                     selected after the change      not selected after
    selected before  modified                       deleted (the last version of the object)
    not before       added                          nothing

    began(0) or relisted --objects--> synced(R)   the watcher's store must equal the state at R began(R)      the next event is
    the first after R. R must be the last received revision: a later R loses events, an earlier R
                  repeats events
    event         must be the next expected event. If it is a later event, the events between are lost. If it is an earlier
    event,
                  it is repeated or out of order
    bookmark(R)   all events up to R have been received

An event that arrives after a bookmark covered it is late (I9). An event that never arrives is lost (I8). At the end of the run,
each stream must have received all events except those of the last DELIVERY_TIMEOUT seconds, even if it has ended. If a selector
cannot be evaluated from facts, each received event must have happened, and revisions must not decrease. Losses are not
detected.

I12: all pages of a list have the revision of the first page. Each page contains exactly the state at that revision between the
last key of the previous page and its own last key (or the end of the list). If a selector cannot be evaluated from facts, each
returned object must have existed. Missing objects are not detected.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from pinnace.api.resources import PODS, prefix_of
from pinnace.history.records import Call, PodFacts, Stored, Told, Word
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import BY_NODE, History, Look, Query, State, visit


class Event(NamedTuple):
    kind: Word
    revision: int
    key: str
    digest: str
    at: float
    """The time at which etcd's watch reported the change."""


class Expected:
    """The expected events of each selection. They are cached, because many watchers share a selection."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._resources: dict[str, list[tuple[Stored, Stored | None]]] | None = None
        self._nodes: dict[str, list[tuple[Stored, Stored | None]]] | None = None
        self._events: dict[Query, list[Event]] = {}

    def events(self, selection: Query) -> Sequence[Event]:
        """Return the expected events in order. The selector must be one that can be evaluated (`Query.judged`)."""
        found = self._events.get(selection)
        if found is None:
            found = self._events[selection] = [
                event
                for now, before in self._changes(selection)
                if now.key.startswith(selection.prefix) and (event := _event(selection, now, before))
            ]
        return found

    def _changes(self, selection: Query) -> Sequence[tuple[Stored, Stored | None]]:
        """Return all changes that may concern the selection, as (new version, previous version)."""
        if self._resources is None:
            self._resources = self._by_resource()
        if not selection.selector:
            return self._resources.get(prefix_of(selection.prefix), ())
        if self._nodes is None:
            self._nodes = _by_node(self._resources.get(PODS.prefix, ()))
        return self._nodes.get(selection.selector.removeprefix(BY_NODE), ())

    def _by_resource(self) -> dict[str, list[tuple[Stored, Stored | None]]]:
        sorted_: defaultdict[str, list[tuple[Stored, Stored | None]]] = defaultdict(list)
        present: dict[str, Stored] = {}
        for stored in self._history.stored:
            sorted_[prefix_of(stored.key)].append((stored, present.get(stored.key)))
            if stored.digest:
                present[stored.key] = stored
            else:
                present.pop(stored.key, None)
        return sorted_


def _by_node(changes: Sequence[tuple[Stored, Stored | None]]) -> dict[str, list[tuple[Stored, Stored | None]]]:
    sorted_: defaultdict[str, list[tuple[Stored, Stored | None]]] = defaultdict(list)
    for now, before in changes:
        for node in {_node(now), _node(before)}:
            if node:
                sorted_[node].append((now, before))
    return sorted_


def _node(stored: Stored | None) -> str:
    return stored.facts.node if stored is not None and isinstance(stored.facts, PodFacts) else ""


def _event(selection: Query, now: Stored, before: Stored | None) -> Event | None:
    was, is_now = selection.selects(before), selection.selects(now)
    if is_now:
        return Event("modified" if was else "added", now.revision, now.key, now.digest, now.at)
    if was and before is not None:
        return Event("deleted", now.revision, now.key, before.digest, now.at)
    return None


WATCH_EVENTS = ("I8", "a watch does not lose, repeat or reorder events, across reconnects, restarts and compaction")
BOOKMARKS = ("I9", "a bookmark R means that all events up to R were delivered")
DELIVERY_TIMEOUT = 15.0
"""Seconds. A client closes a watch that has been silent for this time."""

_revision = attrgetter("revision")
Store = dict[str, tuple[int, str]]
"""Revision and digest by key."""


def examine_watches(history: History, events: Findings, bookmarks: Findings) -> None:
    expected = Expected(history)
    looks: list[Look] = []
    for words in history.streams.values():
        follower = _Follower(history, expected, events, bookmarks, looks)
        for told in words:
            follower.hear(told)
        follower.finish(history.phases.get("end"))
    visit(history, looks)


class _Follower:
    """Checks one stream. `_position`: the index of the next expected event. `_promised`: the index after the last event that a
    bookmark covers."""

    def __init__(self, history: History, expected: Expected, events: Findings, bookmarks: Findings, looks: list[Look]) -> None:
        self._history = history
        self._source = expected
        self._events = events
        self._bookmarks = bookmarks
        self._looks = looks
        self._selection = Query("")
        self._expected: Sequence[Event] = ()
        self._position = self._promised = 0
        self._revision = 0
        self._syncing = False
        self._heard = 0.0  # the time of the last message
        self._store: Store | None = None  # None if the stream did not start with the initial state
        self._name = ""

    def hear(self, told: Told) -> None:
        self._heard = told.at
        if told.revision > self._history.last_revision:
            return  # after the end of the history
        match told.kind:
            case "began":
                self._begin(told)
            case "relisted":
                self._syncing = True
            case "synced":
                self._synced(told)
            case "bookmark":
                self._bookmark(told)
            case "ended":
                pass
            case _ if self._syncing:
                self._keep(told)
            case _:
                self._events.examined += 1
                self._event(told)
                self._keep(told)
                self._revision = max(self._revision, told.revision)

    def finish(self, end: float | None) -> None:
        self._check_promises(0.0)
        if end is None or (self._syncing and self._heard > end - DELIVERY_TIMEOUT):
            return
        late = [event for event in self._expected[self._position :] if event.at < end - DELIVERY_TIMEOUT]
        if late:
            self._lost(late, end, f"the run ended {end - late[0].at:.1f} s after the first event")

    def _begin(self, told: Told) -> None:
        self._check_promises(told.at)
        self._name = f"watch {told.stream} of {told.client} from {told.server}"
        self._selection = Query(told.key, told.selection)
        if self._selection.judged:
            self._expected = self._source.events(self._selection)
        self._syncing = told.revision == 0
        if self._syncing:
            self._store = {}
            return
        if self._revision not in (0, told.revision):
            text = f"{self._name} resumed after revision {told.revision}, but had received up to {self._revision}"
            self._events.violated(text, revision=told.revision, at=told.at)
        self._stand_at(told.revision)

    def _synced(self, told: Told) -> None:
        self._events.examined += 1
        self._syncing = False
        if self._store is not None and self._selection.judged:
            see = partial(_compare, self._events, self._name, told, self._selection, dict(self._store))
            self._looks.append(Look(told.revision, see))
        self._stand_at(told.revision)

    def _stand_at(self, revision: int) -> None:
        self._revision = revision
        self._position = self._promised = bisect_right(self._expected, revision, key=_revision)

    def _keep(self, told: Told) -> None:
        if self._store is None:
            return
        if told.kind == "deleted":
            self._store.pop(told.key, None)
        else:
            self._store[told.key] = (told.revision, told.digest)

    def _event(self, told: Told) -> None:
        if not self._selection.judged:
            self._check_order(told)
            return
        expected = self._expected[self._position] if self._position < len(self._expected) else None
        if expected is not None and (expected.revision, expected.key) == (told.revision, told.key):
            self._position += 1
            self._check_content(told, expected)
            return
        index = self._find(told)
        if index is None:
            self._violated(told, "although it did not happen")
        elif index < self._position:
            self._violated(told, f"again or too late, after revision {self._revision}")
        else:
            self._lost(
                self._expected[self._position : index], told.at, f"the next event was {told.key} at revision {told.revision}"
            )
            self._position = index + 1
            self._check_content(told, self._expected[index])

    def _find(self, told: Told) -> int | None:
        index = bisect_left(self._expected, told.revision, key=_revision)
        while index < len(self._expected) and self._expected[index].revision == told.revision:
            if self._expected[index].key == told.key:
                return index
            index += 1
        return None

    def _check_content(self, told: Told, expected: Event) -> None:
        if told.kind != expected.kind:
            self._violated(told, f"as {told.kind}, expected {expected.kind}")
        elif told.digest and told.digest != expected.digest:
            self._violated(told, f"with different content (digest {told.digest}, expected {expected.digest})")

    def _check_order(self, told: Told) -> None:
        if self._history.version(told.key, told.revision) is None:
            self._violated(told, "although it did not happen")
        elif told.revision < self._revision:
            self._violated(told, f"after revision {self._revision}")

    def _bookmark(self, told: Told) -> None:
        self._bookmarks.examined += 1
        index = bisect_right(self._expected, told.revision, key=_revision, lo=self._promised)
        missing = self._expected[max(self._position, self._promised) : index]
        if missing:
            text = f"{self._name}: bookmark {told.revision}, but {len(missing)} events are missing, first {_words(missing[0])}"
            self._bookmarks.violated(text, revision=told.revision, at=told.at)
        self._promised = max(self._promised, index)
        if told.revision < self._revision:
            text = f"{self._name}: bookmark {told.revision} comes after revision {self._revision}"
            self._bookmarks.violated(text, revision=told.revision, at=told.at)
        self._revision = max(self._revision, told.revision)

    def _check_promises(self, at: float) -> None:
        """Report events that a bookmark covers but that were not delivered."""
        if self._position < self._promised:
            self._lost(self._expected[self._position : self._promised], at, "a bookmark covered these events")

    def _lost(self, events: Sequence[Event], at: float, why: str) -> None:
        text = f"{self._name}: lost {len(events)} events, first {_words(events[0])}; {why}"
        self._events.violated(text, revision=events[0].revision, at=at)

    def _violated(self, told: Told, text: str) -> None:
        where = f"{self._name}: {told.kind} {told.key} at revision {told.revision}"
        self._events.violated(f"{where}: received {text}", revision=told.revision, at=told.at)


def _compare(found: Findings, name: str, told: Told, selection: Query, store: Store, state: State) -> None:
    """Compare a watcher's store with the state at the revision of its list."""
    there = {stored.key: stored for stored in state.range(selection.prefix) if selection.selects(stored)}
    for key in sorted(store.keys() | there.keys()):
        stored, known = there.get(key), store.get(key)
        if stored is None:
            problem = "is present, but does not exist"
        elif known is None:
            problem = f"is missing: it existed since revision {stored.revision}"
        elif known[0] != stored.revision:
            problem = f"is at revision {known[0]}, expected {stored.revision}"
        elif known[1] and known[1] != stored.digest:
            problem = f"has different content than was stored at revision {stored.revision}"
        else:
            continue
        text = f"{name}: after the list at revision {told.revision}, {key} {problem}"
        found.violated(text, revision=told.revision, at=told.at)


def _words(event: Event) -> str:
    return f"{event.kind} {event.key} at revision {event.revision}"


SNAPSHOT_PAGES = ("I12", "the pages of one list are one snapshot")


def examine_pages(history: History, found: Findings) -> None:
    looks = []
    before: dict[tuple[str, int], Call] = {}  # the previous page by (client, ID of the list)
    for call in sorted((call for call in history.calls if call.verb == "list" and call.outcome == "ok"), key=lambda c: c.began):
        found.examined += 1
        previous = before.get((call.client, call.of))
        before[call.client, call.of] = call
        if call.of not in (0, call.id) and previous is None:
            continue  # the history does not contain the first page
        if previous is not None and previous.snapshot != call.snapshot:
            text = f"{_name(call)}: returned revision {call.snapshot}, but the previous page returned {previous.snapshot}"
            found.violated(text, revision=call.snapshot, at=call.ended)
            continue
        looks.append(Look(call.snapshot, partial(_compare_page, found, call, _last_key(previous))))
    visit(history, looks)


def _last_key(page: Call | None) -> str:
    return page.items[-1].key if page is not None and page.items else ""


def _compare_page(found: Findings, call: Call, after: str, state: State) -> None:
    selection = Query(call.prefix, call.selection)
    upto = _last_key(call) if call.more else ""
    there = state.range(call.prefix, after, upto)
    if selection.judged:
        expected = {stored.key: stored for stored in there if selection.selects(stored)}
    else:
        shown = {item.key for item in call.items}
        expected = {stored.key: stored for stored in there if stored.key in shown}
    for problem in _differences(call, expected):
        found.violated(f"{_name(call)}: {problem}", revision=call.snapshot, at=call.ended)


def _differences(call: Call, expected: dict[str, Stored]) -> list[str]:
    problems = []
    last = ""
    for item in call.items:
        if item.key <= last:
            problems.append(f"{item.key} comes after {last}")
        last = item.key
        stored = expected.pop(item.key, None)
        if stored is None:
            problems.append(f"{item.key} did not exist at revision {call.snapshot}")
        elif stored.revision != item.revision:
            problems.append(f"{item.key} was returned at revision {item.revision}, expected {stored.revision}")
        elif item.digest and item.digest != stored.digest:
            problems.append(f"{item.key} at revision {item.revision} was returned with different content than was stored")
    problems += [f"{key} is missing; it existed since revision {stored.revision}" for key, stored in expected.items()]
    return problems


def _name(call: Call) -> str:
    selected = f" ({call.selection})" if call.selection else ""
    return f"list #{call.id} of {call.prefix}{selected} by {call.client} from {call.server}"
