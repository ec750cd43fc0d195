"""What a watch must tell: the events of each selection, from etcd's history.

                 selected after the change      not selected after
selected before  modified                       deleted (the object as it was last)
not before       added                          nothing
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pinnace.api.resources import PODS, prefix_of
from pinnace.check.facts import PodFacts
from pinnace.check.history import Stored, Word
from pinnace.check.index import History
from pinnace.check.selection import BY_NODE, Selection


class Event(NamedTuple):
    kind: Word
    revision: int
    key: str
    digest: str
    at: float
    """When etcd's watch told of it."""


class Expected:
    """Found when it is asked for, and kept: many watchers share a selection."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._resources: dict[str, list[tuple[Stored, Stored | None]]] | None = None
        self._nodes: dict[str, list[tuple[Stored, Stored | None]]] | None = None
        self._events: dict[Selection, list[Event]] = {}

    def events(self, selection: Selection) -> Sequence[Event]:
        """In order. The selection must be one that can be judged."""
        found = self._events.get(selection)
        if found is None:
            found = self._events[selection] = [
                event
                for now, before in self._changes(selection)
                if now.key.startswith(selection.prefix) and (event := _event(selection, now, before))
            ]
        return found

    def _changes(self, selection: Selection) -> Sequence[tuple[Stored, Stored | None]]:
        """All changes that may concern the selection: (what is now, what was before)."""
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


def _event(selection: Selection, now: Stored, before: Stored | None) -> Event | None:
    was, is_now = selection.selects(before), selection.selects(now)
    if is_now:
        return Event("modified" if was else "added", now.revision, now.key, now.digest, now.at)
    if was and before is not None:
        return Event("deleted", now.revision, now.key, before.digest, now.at)
    return None
