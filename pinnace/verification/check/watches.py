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
from pinnace.history.records import CallRecord, PodFacts, StoredChange, WatchMessage, Word
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import BY_NODE, History, KeyQuery, StateVisit, StoredState, visit_states

WATCH_EVENTS = ("I8", "a watch does not lose, repeat or reorder events, across reconnects, restarts and compaction")
BOOKMARKS = ("I9", "a bookmark R means that all events up to R were delivered")
DELIVERY_TIMEOUT = 15.0
"""Seconds. A client closes a watch that has been silent for this time."""
SNAPSHOT_PAGES = ("I12", "the pages of one list are one snapshot")
_revision = attrgetter("revision")
Store = dict[str, tuple[int, str]]
"""Revision and digest by key."""


class ExpectedEvent(NamedTuple):
    kind: Word
    revision: int
    key: str
    digest: str
    at: float
    """The time at which etcd's watch reported the change."""


class ExpectedEvents:
    """The expected events of each selection. They are cached, because many watchers share a selection."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._resources: dict[str, list[tuple[StoredChange, StoredChange | None]]] | None = None
        self._nodes: dict[str, list[tuple[StoredChange, StoredChange | None]]] | None = None
        self._events: dict[KeyQuery, list[ExpectedEvent]] = {}

    def events_of_selection(self, selection: KeyQuery) -> Sequence[ExpectedEvent]:
        """Return the expected events in order. The selector must be one that can be evaluated (`KeyQuery.is_evaluable`)."""
        events = self._events.get(selection)
        if events is None:
            events = self._events[selection] = [
                event
                for now, before in self._changes_for(selection)
                if now.key.startswith(selection.prefix) and (event := _check_event(selection, now, before))
            ]
        return events

    def _changes_for(self, selection: KeyQuery) -> Sequence[tuple[StoredChange, StoredChange | None]]:
        """Return all changes that may concern the selection, as (new version, previous version)."""
        if self._resources is None:
            self._resources = self._group_by_resource()
        if not selection.selector:
            return self._resources.get(prefix_of(selection.prefix), ())
        if self._nodes is None:
            self._nodes = _group_by_node(self._resources.get(PODS.prefix, ()))
        return self._nodes.get(selection.selector.removeprefix(BY_NODE), ())

    def _group_by_resource(self) -> dict[str, list[tuple[StoredChange, StoredChange | None]]]:
        groups: defaultdict[str, list[tuple[StoredChange, StoredChange | None]]] = defaultdict(list)
        present: dict[str, StoredChange] = {}
        for stored in self._history.stored:
            groups[prefix_of(stored.key)].append((stored, present.get(stored.key)))
            if stored.digest:
                present[stored.key] = stored
            else:
                present.pop(stored.key, None)
        return groups


def _group_by_node(
    changes: Sequence[tuple[StoredChange, StoredChange | None]],
) -> dict[str, list[tuple[StoredChange, StoredChange | None]]]:
    groups: defaultdict[str, list[tuple[StoredChange, StoredChange | None]]] = defaultdict(list)
    for now, before in changes:
        for node in {_node_of(now), _node_of(before)}:
            if node:
                groups[node].append((now, before))
    return groups


def _node_of(stored: StoredChange | None) -> str:
    return stored.facts.node if stored is not None and isinstance(stored.facts, PodFacts) else ""


def _check_event(selection: KeyQuery, now: StoredChange, before: StoredChange | None) -> ExpectedEvent | None:
    was, is_now = selection.selects(before), selection.selects(now)
    if is_now:
        return ExpectedEvent("modified" if was else "added", now.revision, now.key, now.digest, now.at)
    if was and before is not None:
        return ExpectedEvent("deleted", now.revision, now.key, before.digest, now.at)
    return None


def examine_watches(history: History, events: Findings, bookmarks: Findings) -> None:
    expected = ExpectedEvents(history)
    visits: list[StateVisit] = []
    for messages in history.streams.values():
        checker = _StreamChecker(history, expected, events, bookmarks, visits)
        for message in messages:
            checker.process_message(message)
        checker.finish_stream(history.phases.get("end"))
    visit_states(history, visits)


class _StreamChecker:
    """Check one stream. `_position`: the index of the next expected event. `_bookmarked`: the index after the last event
    that a bookmark covers."""

    def __init__(
        self, history: History, expected: ExpectedEvents, events: Findings, bookmarks: Findings, visits: list[StateVisit]
    ) -> None:
        self._history = history
        self._source = expected
        self._events = events
        self._bookmarks = bookmarks
        self._visits = visits
        self._selection = KeyQuery("")
        self._expected: Sequence[ExpectedEvent] = ()
        self._position = self._bookmarked = 0
        self._revision = 0
        self._syncing = False
        self._last_message_at = 0.0  # the time of the last message
        self._store: Store | None = None  # None if the stream did not start with the initial state
        self._name = ""

    def process_message(self, message: WatchMessage) -> None:
        self._last_message_at = message.at
        if message.revision > self._history.last_revision:
            return  # after the end of the history
        match message.kind:
            case "began":
                self._start_stream(message)
            case "relisted":
                self._syncing = True
            case "synced":
                self._finish_list(message)
            case "bookmark":
                self._check_bookmark(message)
            case "ended":
                pass
            case _ if self._syncing:
                self._update_store(message)
            case _:
                self._events.examined += 1
                self._check_event(message)
                self._update_store(message)
                self._revision = max(self._revision, message.revision)

    def finish_stream(self, end: float | None) -> None:
        self._check_bookmarked_events(0.0)
        if end is None or (self._syncing and self._last_message_at > end - DELIVERY_TIMEOUT):
            return
        late = [event for event in self._expected[self._position :] if event.at < end - DELIVERY_TIMEOUT]
        if late:
            self._report_lost(late, end, f"the run ended {end - late[0].at:.1f} s after the first event")

    def _start_stream(self, message: WatchMessage) -> None:
        self._check_bookmarked_events(message.at)
        self._name = f"watch {message.stream} of {message.client} from {message.server}"
        self._selection = KeyQuery(message.key, message.selection)
        if self._selection.is_evaluable:
            self._expected = self._source.events_of_selection(self._selection)
        self._syncing = message.revision == 0
        if self._syncing:
            self._store = {}
            return
        if self._revision not in (0, message.revision):
            text = f"{self._name} resumed after revision {message.revision}, but had received up to {self._revision}"
            self._events.add_violation(text, revision=message.revision, at=message.at)
        self._set_position(message.revision)

    def _finish_list(self, message: WatchMessage) -> None:
        self._events.examined += 1
        self._syncing = False
        if self._store is not None and self._selection.is_evaluable:
            see = partial(_compare_store, self._events, self._name, message, self._selection, dict(self._store))
            self._visits.append(StateVisit(message.revision, see))
        self._set_position(message.revision)

    def _set_position(self, revision: int) -> None:
        self._revision = revision
        self._position = self._bookmarked = bisect_right(self._expected, revision, key=_revision)

    def _update_store(self, message: WatchMessage) -> None:
        if self._store is None:
            return
        if message.kind == "deleted":
            self._store.pop(message.key, None)
        else:
            self._store[message.key] = (message.revision, message.digest)

    def _check_event(self, message: WatchMessage) -> None:
        if not self._selection.is_evaluable:
            self._check_order(message)
            return
        expected = self._expected[self._position] if self._position < len(self._expected) else None
        if expected is not None and (expected.revision, expected.key) == (message.revision, message.key):
            self._position += 1
            self._check_content(message, expected)
            return
        index = self._find_expected(message)
        if index is None:
            self._report_violation(message, "although it did not happen")
        elif index < self._position:
            self._report_violation(message, f"again or too late, after revision {self._revision}")
        else:
            self._report_lost(
                self._expected[self._position : index],
                message.at,
                f"the next event was {message.key} at revision {message.revision}",
            )
            self._position = index + 1
            self._check_content(message, self._expected[index])

    def _find_expected(self, message: WatchMessage) -> int | None:
        index = bisect_left(self._expected, message.revision, key=_revision)
        while index < len(self._expected) and self._expected[index].revision == message.revision:
            if self._expected[index].key == message.key:
                return index
            index += 1
        return None

    def _check_content(self, message: WatchMessage, expected: ExpectedEvent) -> None:
        if message.kind != expected.kind:
            self._report_violation(message, f"as {message.kind}, expected {expected.kind}")
        elif message.digest and message.digest != expected.digest:
            self._report_violation(message, f"with different content (digest {message.digest}, expected {expected.digest})")

    def _check_order(self, message: WatchMessage) -> None:
        if self._history.find_version(message.key, message.revision) is None:
            self._report_violation(message, "although it did not happen")
        elif message.revision < self._revision:
            self._report_violation(message, f"after revision {self._revision}")

    def _check_bookmark(self, message: WatchMessage) -> None:
        self._bookmarks.examined += 1
        index = bisect_right(self._expected, message.revision, key=_revision, lo=self._bookmarked)
        missing = self._expected[max(self._position, self._bookmarked) : index]
        if missing:
            first = _event_text(missing[0])
            text = f"{self._name}: bookmark {message.revision}, but {len(missing)} events are missing, first {first}"
            self._bookmarks.add_violation(text, revision=message.revision, at=message.at)
        self._bookmarked = max(self._bookmarked, index)
        if message.revision < self._revision:
            text = f"{self._name}: bookmark {message.revision} comes after revision {self._revision}"
            self._bookmarks.add_violation(text, revision=message.revision, at=message.at)
        self._revision = max(self._revision, message.revision)

    def _check_bookmarked_events(self, at: float) -> None:
        """Report events that a bookmark covers but that were not delivered."""
        if self._position < self._bookmarked:
            self._report_lost(self._expected[self._position : self._bookmarked], at, "a bookmark covered these events")

    def _report_lost(self, events: Sequence[ExpectedEvent], at: float, why: str) -> None:
        text = f"{self._name}: lost {len(events)} events, first {_event_text(events[0])}; {why}"
        self._events.add_violation(text, revision=events[0].revision, at=at)

    def _report_violation(self, message: WatchMessage, text: str) -> None:
        where = f"{self._name}: {message.kind} {message.key} at revision {message.revision}"
        self._events.add_violation(f"{where}: received {text}", revision=message.revision, at=message.at)


def _compare_store(
    findings: Findings, name: str, message: WatchMessage, selection: KeyQuery, store: Store, state: StoredState
) -> None:
    """Compare a watcher's store with the state at the revision of its list."""
    there = {stored.key: stored for stored in state.list_range(selection.prefix) if selection.selects(stored)}
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
        text = f"{name}: after the list at revision {message.revision}, {key} {problem}"
        findings.add_violation(text, revision=message.revision, at=message.at)


def _event_text(event: ExpectedEvent) -> str:
    return f"{event.kind} {event.key} at revision {event.revision}"


def examine_pages(history: History, findings: Findings) -> None:
    visits = []
    before: dict[tuple[str, int], CallRecord] = {}  # the previous page by (client, ID of the list)
    for call in sorted((call for call in history.calls if call.verb == "list" and call.outcome == "ok"), key=lambda c: c.began):
        findings.examined += 1
        previous = before.get((call.client, call.of))
        before[call.client, call.of] = call
        if call.of not in (0, call.id) and previous is None:
            continue  # the history does not contain the first page
        if previous is not None and previous.snapshot != call.snapshot:
            text = (
                f"{_stream_name(call)}: returned revision {call.snapshot}, but the previous page returned {previous.snapshot}"
            )
            findings.add_violation(text, revision=call.snapshot, at=call.ended)
            continue
        visits.append(StateVisit(call.snapshot, partial(_compare_page, findings, call, _last_key(previous))))
    visit_states(history, visits)


def _last_key(page: CallRecord | None) -> str:
    return page.items[-1].key if page is not None and page.items else ""


def _compare_page(findings: Findings, call: CallRecord, after: str, state: StoredState) -> None:
    selection = KeyQuery(call.prefix, call.selection)
    upto = _last_key(call) if call.more else ""
    there = state.list_range(call.prefix, after, upto)
    if selection.is_evaluable:
        expected = {stored.key: stored for stored in there if selection.selects(stored)}
    else:
        shown = {item.key for item in call.items}
        expected = {stored.key: stored for stored in there if stored.key in shown}
    for problem in _list_differences(call, expected):
        findings.add_violation(f"{_stream_name(call)}: {problem}", revision=call.snapshot, at=call.ended)


def _list_differences(call: CallRecord, expected: dict[str, StoredChange]) -> list[str]:
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


def _stream_name(call: CallRecord) -> str:
    selected = f" ({call.selection})" if call.selection else ""
    return f"list #{call.id} of {call.prefix}{selected} by {call.client} from {call.server}"
