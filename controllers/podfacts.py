"""What is read of pods again and again, read once for each version of a pod: thousands of them are counted at each look.

Objects in an informer's store are not changed: another version is another object.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from controllers.places import node_of
from controllers.podstates import active, ready, ready_since, restarts, terminating
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.naturals import int32
from pinnace.api.times import to_seconds
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import COST_ANNOTATION
from pinnace.client.informer import Delta


class Facts(NamedTuple):
    """Times are Unix time. `ready_since` is None also where nobody says since when."""

    pod: Pod
    active: bool
    terminating: bool
    deleting: bool
    ready: bool
    ready_since: float | None
    node: str
    phase: str
    labels: frozenset[tuple[str, str]]
    created: float
    restarts: int
    cost: int


def facts_of(pod: Pod) -> Facts:
    return Facts(
        pod=pod,
        active=active(pod),
        terminating=terminating(pod),
        deleting=pod.metadata.HasField("deletionTimestamp"),
        ready=ready(pod),
        ready_since=ready_since(pod),
        node=node_of(pod),
        phase=pod.status.phase,
        labels=frozenset(pod.metadata.labels.items()),
        created=to_seconds(pod.metadata.creationTimestamp),
        restarts=restarts(pod),
        cost=cost(pod),
    )


def cost(pod: Pod) -> int:
    """What it would cost to lose it; 0 when it does not say, or says what is no 32-bit number."""
    return int32(pod.metadata.annotations.get(COST_ANNOTATION, "")) or 0


class FactBook:
    """Remembers the facts of pods that were asked for, until they are deleted."""

    def __init__(self) -> None:
        self._known: dict[str, Facts] = {}

    def of(self, pods: Iterable[Pod]) -> Iterator[Facts]:
        for pod in pods:
            uid = pod.metadata.uid
            known = self._known.get(uid)
            if known is None or known.pod is not pod:
                known = self._known[uid] = facts_of(pod)
            yield known

    def follow(self, deltas: Sequence[Delta[Pod]]) -> None:
        """A handler of the informer."""
        for delta in deltas:
            if delta.kind == DELETED:
                self._known.pop(delta.obj.metadata.uid, None)
