"""Nominated pods: those for which room is being made, and the nodes where.

Until its victims are gone a nominated pod is nowhere, and others could take the room. So it is kept from pods of the same
or a lower priority, as long as the nomination lasts: until the pod is placed, deleted, or nominated elsewhere. Nothing is kept
from pods of a higher priority, and nothing is promised: the pod goes through all filters again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pinnace.fit import Requests
from pinnace.fit.table import IntArray
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.priority_sums import PrioritySums


@dataclass(frozen=True, slots=True, eq=False)
class Nomination:
    info: PodInfo
    node: str

    @property
    def priority(self) -> int:
        """Upside down: the sums are of those above a priority."""
        return -self.info.priority

    @property
    def requests(self) -> Requests:
        return self.info.requests


class Nominations:
    def __init__(self, rows: Mapping[str, int]) -> None:
        """`rows`: the rows of the table, by node, as they are at any time."""
        self._rows = rows
        self._pods: dict[str, Nomination] = {}
        self._on_node: dict[str, dict[str, Nomination]] = {}
        self._sums = PrioritySums(rows)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodInfo]:
        return (each.info for each in self._pods.values())

    def node_of(self, uid: str) -> str:
        """Empty: it is nominated nowhere."""
        found = self._pods.get(uid)
        return found.node if found is not None else ""

    def on(self, node: str) -> Sequence[PodInfo]:
        """The pods that are nominated to a node."""
        return [each.info for each in self._on_node.get(node, {}).values()]

    def ahead_of(self, pod: PodInfo, node: str) -> Sequence[PodInfo]:
        """Those of them that the pod must leave their room."""
        if node not in self._on_node:
            return ()
        return [each for each in self.on(node) if each.priority >= pod.priority and each.uid != pod.uid]

    def kept_from(self, priority: int) -> dict[str, IntArray]:
        """By resource, how much of each node is kept from pods of a priority."""
        return self._sums.below(1 - priority, self._pods.values()) if self._pods else {}

    def own_room(self, uid: str, priority: int) -> tuple[int, Requests] | None:
        """What is kept for this pod itself on a row, of what is kept from its priority. None: nothing."""
        own = self._pods.get(uid)
        row = self._rows.get(own.node) if own is not None else None
        return (row, own.requests) if own is not None and row is not None and own.info.priority >= priority else None

    def set(self, info: PodInfo, node: str) -> None:
        self.drop(info.uid)
        nomination = self._pods[info.uid] = Nomination(info, node)
        self._on_node.setdefault(node, {})[info.uid] = nomination
        self._sums.count(nomination, 1)

    def renew(self, info: PodInfo) -> bool:
        """The pod as it is now, if it is nominated. False: others cannot tell it from what it was."""
        found = self._pods.get(info.uid)
        if found is None or found.info.identity == info.identity:
            return False
        self.set(info, found.node)
        return True

    def drop(self, uid: str) -> str:
        """Ends a nomination. The node that it was to; empty: there was none."""
        nomination = self._pods.pop(uid, None)
        if nomination is None:
            return ""
        pods = self._on_node[nomination.node]
        del pods[uid]
        if not pods:
            del self._on_node[nomination.node]
        self._sums.count(nomination, -1)
        return nomination.node

    def add_row(self, name: str) -> None:
        """The table has one more row, at its end."""
        self._sums.add_row()
        for nomination in self._on_node.get(name, {}).values():
            self._sums.count(nomination, 1)

    def remove_row(self, row: int) -> None:
        """The last row takes the place of this one."""
        self._sums.remove_row(row)
