"""Telling the live watchers of one resource what happened, at a cost that does not grow with their number where it need not.

* Watchers with equal selections are a group. Each group is asked once whether an event concerns it, and has one response made
  for it per batch, which all its watchers share. Each of their flows is charged for it once.
* Groups that select pods by node are found by the node, of before and of after the change; the others are asked one by one.
* An event is encoded at most once for each of ADDED, MODIFIED and DELETED, and only if somebody watches.
* A group that hears much is told in batches: what comes after BURST events waits until PACE seconds have passed since the first
  of them, or until it is much. A message costs its sender and its readers as much as several events, and a reader that has so
  many before it loses nothing if it hears of the last a moment later. Who hears little is told at once.
"""

from collections.abc import Callable
from typing import Any

from apiserver.cacher.errors import CacheError
from apiserver.cacher.history import Marks
from apiserver.cacher.store import Event, Selection
from apiserver.cacher.watcher import MERGE_BYTES, Parcel, Told, Watcher, single
from apiserver.flow.account import Account
from pinnace.api import wire
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.runtime.clock import Clock

BURST = 100
"""Events that a group is told as they happen."""
PACE = 0.1
"""Seconds that a group waits for the end of a longer burst."""


class _Group:
    """The live watchers of one selection, by whom they are charged to, and the encoded events that they will be told with the
    next response: `size` bytes."""

    __slots__ = ("_recent", "_since", "pending", "selection", "size", "watchers")

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.watchers: dict[Account, dict[Watcher, None]] = {}
        self.pending: list[bytes] = []
        self.size = 0
        self._since = 0.0
        self._recent = 0  # events that it was told since then

    def count_from(self, now: float) -> None:
        self._since, self._recent = now, 0

    def is_due(self, now: float) -> bool:
        if now - self._since >= PACE:
            self.count_from(now)
        return self._recent < BURST or self.size >= MERGE_BYTES

    def tell(self, revision: int, mark: bytes) -> None:
        """Everything up to `revision` is in `pending`, or was told. `mark`: that of the revision."""
        told = Told(wire.watch_response(self.pending, revision, mark), revision, len(self.pending))
        self._recent += told.events
        self.pending, self.size = [], 0
        sharing = list(self.watchers.items())
        for account, watchers in sharing:
            parcel = Parcel(told, account, len(watchers))
            for watcher in list(watchers):
                watcher.offer(parcel)
        for account, _ in sharing:  # when all have theirs: it may end watches of others
            account.relieve()


class Dispatcher:
    """A `watcher.Hub`. Every watcher is `add`ed when it is made and `join`s when it is live. `marks`: of what it tells."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks = marks
        self.told = 0
        """Events that watchers have read, once for each of them."""
        self._clock = clock
        self._watchers: dict[Watcher, None] = {}
        self._announced: dict[Watcher, None] = {}  # the live ones that asked for it
        self._groups: dict[Selection, _Group] = {}
        self._asked: list[_Group] = []
        self._by_node: dict[str, list[_Group]] = {}
        self._untold: list[_Group] = []  # those with something pending
        self._revision = 0  # of the last flush
        self._peeking = 0  # groups that look into parsed objects

    @property
    def holding(self) -> bool:
        """Does somebody wait for the next `release`?"""
        return bool(self._untold)

    def add(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def join(self, watcher: Watcher) -> None:
        selection = watcher.selection
        if (group := self._groups.get(selection)) is not None and group.pending:
            self.release()  # the newcomer knows it already; and whoever has no room for it leaves
            if watcher.ended:
                return
        if (group := self._groups.get(selection)) is None:
            group = self._groups[selection] = _Group(selection)
            self._peeking += selection.needs_object
            for groups in self._lists(selection):
                groups.append(group)
        group.watchers.setdefault(watcher.account, {})[watcher] = None
        if watcher.announced:
            self._announced[watcher] = None

    def leave(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        self._announced.pop(watcher, None)
        group = self._groups.get(watcher.selection)
        if group is None:
            return
        sharing = group.watchers.get(watcher.account, {})
        sharing.pop(watcher, None)
        if not sharing:
            group.watchers.pop(watcher.account, None)
        if not group.watchers:
            del self._groups[watcher.selection]
            self._peeking -= watcher.selection.needs_object
            for groups in self._lists(watcher.selection):
                groups.remove(group)
            for node in watcher.selection.nodes or ():
                if not self._by_node[node]:
                    del self._by_node[node]

    def route(self, event: Event[Any]) -> None:
        """Puts the event to those whom it concerns. They are told with the next flush, or when their time has come."""
        groups = self._asked
        if self._by_node:
            groups = groups + self._concerned(event)
        if self._peeking > 1 and event.new is not None:
            event.new.keep()
        encoded: dict[WatchEventType, bytes] = {}
        for group in groups:
            kind = event.kind(group.selection)
            if kind is None:
                continue
            payload = encoded.get(kind)
            if payload is None:
                payload = encoded[kind] = event.encode(kind)
            if not group.pending:
                self._untold.append(group)
            group.pending.append(payload)
            group.size += len(payload)

    def flush(self, revision: int) -> None:
        """Everything up to `revision` was routed: tells it to those who are not to wait."""
        self._revision = revision
        if not self._untold:
            return
        now, mark, waiting = self._clock.monotonic(), self._mark(revision), []
        for group in self._untold:
            if group.is_due(now):
                group.tell(revision, mark)
            else:
                waiting.append(group)
        self._untold = waiting

    def release(self) -> None:
        """Tells those who wait."""
        now, mark = self._clock.monotonic(), self._mark(self._revision)
        untold, self._untold = self._untold, []
        for group in untold:
            group.count_from(now)
            group.tell(self._revision, mark)

    def bookmark(self, revision: int) -> None:
        """Tells the live watchers that heard nothing since the last such call that they know everything up to `revision`."""
        self.release()
        bookmark = self._bookmark(revision)
        sharing = [watchers for group in self._groups.values() for watchers in group.watchers.values()]
        for watcher in [watcher for watchers in sharing for watcher in watchers]:
            if watcher.idle:
                watcher.offer(bookmark)
            else:
                watcher.idle = True

    def announce(self, revision: int) -> None:
        """Somebody was elected: tells the live watchers that asked for it that they know everything up to `revision`."""
        self.release()
        bookmark = self._bookmark(revision)
        for watcher in list(self._announced):
            watcher.offer(bookmark)

    def end(self, error: Callable[[], CacheError]) -> None:
        """Ends all watchers, live or not, each with an error of its own, after what has happened."""
        self.release()
        for watcher in list(self._watchers):
            watcher.end(error())

    def _lists(self, selection: Selection) -> list[list[_Group]]:
        """Where the group of this selection is found."""
        if selection.nodes is None:
            return [self._asked]
        return [self._by_node.setdefault(node, []) for node in selection.nodes]

    def _concerned(self, event: Event[Any]) -> list[_Group]:
        """The groups that select by node and can have seen the object before, or can see it now; each once."""
        before = self._by_node.get(event.old.node, []) if event.old is not None else []
        if event.new is None or (event.old is not None and event.old.node == event.new.node):
            return before
        after = self._by_node.get(event.new.node, [])
        return before + [group for group in after if group not in before]

    def _bookmark(self, revision: int) -> Parcel:
        return single(Told(wire.watch_response((), revision, self._mark(revision)), revision))

    def _mark(self, revision: int) -> bytes:
        return self._marks.at(revision) or b""
