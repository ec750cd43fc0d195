"""Before a pod is refused: is its node known as it was when the pod was bound?

Nodes and pods come by two watches, and that of nodes may be behind: a pod that was placed for a label that its node has just
been given, for more room or for a taint that has gone, would fail for good. So a refusal waits until nodes are known up to the
pod's own revision: a bookmark at the latest, or PATIENCE. The pod is looked at when its node changes, and now and then.

Source: pkg/kubelet/lifecycle/predicate.go of Kubernetes, which asks the API server for the node once more, for its labels only.
"""

from collections.abc import Callable, Iterable

PATIENCE = 20.0
"""Seconds after which a pod is refused on what is known. A watch that tells nothing is left sooner than that, for another."""
AGAIN = 0.5
"""Seconds between two looks."""


class SecondLook:
    """`known`: the revision up to which nodes are known."""

    def __init__(self, known: Callable[[], int]) -> None:
        self._known = known
        self._until: dict[str, dict[str, float]] = {}
        """Of the pods that wait, by node and uid: how long at most, in monotonic seconds."""

    def at(self, node: str, uid: str, revision: str, now: float) -> float | None:
        """When to look at the pod again before it is refused, in monotonic seconds; None: its refusal stands."""
        until = self._until.setdefault(node, {}).setdefault(uid, now + PATIENCE)
        if int(revision) > self._known() and now < until:
            return now + AGAIN
        self.over(node, uid)
        return None

    def waiting(self, node: str) -> Iterable[str]:
        """The uids of the pods whose refusal waits for news of this node."""
        return tuple(self._until.get(node, ()))

    def over(self, node: str, uid: str) -> None:
        """The pod has been admitted, or is gone."""
        if (waiting := self._until.get(node)) is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._until[node]
