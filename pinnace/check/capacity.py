"""I2: no node is over its allocatable at any revision.

Replayed from etcd's history, whole revisions at a time: the requests of the pods that a scheduler bound to a node and that have
not finished are summed up and compared whenever one is added. Requests are those of pinnace.fit, taken with the history.

Aside: pods that came to their node without a fence (a `nodeName` set by hand asks nobody). A node whose allocatable shrinks
under its pods breaks nothing; so the largest that this node (by uid) has had counts. A bind does not ask whether its node is
there (apiserver.registry.binding), and a scheduler hears of a deletion a little later: a bind to a node that has been deleted
breaks nothing, as long as it fits into what the node had.
"""

from collections import Counter
from itertools import groupby

from pinnace.api.resources import NODES
from pinnace.check.facts import NodeFacts, PodFacts
from pinnace.check.history import Stored
from pinnace.check.index import History
from pinnace.check.verdict import Findings

NAME, STATEMENT = "I2", "no node is over its allocatable at any revision"


class _Node:
    """What is known of one node by name. `uid` "" : it has never been there."""

    __slots__ = ("allocatable", "uid", "used")

    def __init__(self) -> None:
        self.uid = ""
        self.allocatable: dict[str, int] = {}
        self.used: Counter[str] = Counter()

    def learn(self, facts: NodeFacts) -> None:
        if facts.uid != self.uid:
            self.uid, self.allocatable = facts.uid, {}
        for name, amount in facts.allocatable:
            self.allocatable[name] = max(amount, self.allocatable.get(name, 0))


def examine(history: History, found: Findings) -> None:
    nodes: dict[str, _Node] = {}
    learned = iter(history.nodes)
    learning = next(learned, None)
    for revision, changes in groupby(history.pods, key=lambda change: change.stored.revision):
        while learning is not None and learning.revision <= revision:
            if isinstance(learning.facts, NodeFacts):
                nodes.setdefault(learning.key.removeprefix(NODES.prefix), _Node()).learn(learning.facts)
            learning = next(learned, None)
        added: dict[str, Stored] = {}
        for stored, now, before in changes:
            was, is_now = _uses(before), _uses(now)
            if was == is_now:
                continue
            if was is not None:
                nodes[was.node].used.subtract(dict(was.requests))
            if is_now is not None:
                nodes.setdefault(is_now.node, _Node()).used.update(dict(is_now.requests))
                if was is None or was.node != is_now.node:
                    added[is_now.node] = stored
        for name, stored in added.items():
            found.examined += 1
            _compare(name, nodes[name], stored, found)


def _uses(pod: PodFacts | None) -> PodFacts | None:
    """The pod, if it takes room on its node and a scheduler put it there."""
    return pod if pod is not None and pod.node and pod.by_scheduler and not pod.finished else None


def _compare(name: str, node: _Node, stored: Stored, found: Findings) -> None:
    if not node.uid:
        text = f"pod {stored.key} was bound to node {name}, which has never been there"
        found.violated(text, revision=stored.revision, at=stored.at)
        return
    for resource, used in node.used.items():
        capacity = node.allocatable.get(resource, 0)
        if used > capacity:
            text = f"node {name} is over its {resource} since {stored.key} was bound to it: {used} used of {capacity}"
            found.violated(text, revision=stored.revision, at=stored.at)
