"""How many pods a replica set lacks, and which are too many. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controllers.podstates import active
from controllers.replicasets.victims import victims
from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.core_v1_pb2 import Pod

BURST = 500
"""Pods that one look makes or deletes, at most: the next one follows when the informer has shown them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One of the two at most."""

    create: int = 0
    delete: Sequence[Pod] = field(default_factory=tuple)


def plan(replica_set: ReplicaSet, pods: Iterable[Pod], related: Iterable[Pod], now: float) -> Plan:
    """`pods`: its own; pods that have failed are replaced, and left for the collector. `related`: see victims; `now` is Unix
    time."""
    if replica_set.metadata.HasField("deletionTimestamp"):
        return Plan()
    there = [pod for pod in pods if active(pod)]
    lacking = replica_set.spec.replicas - len(there)
    if lacking >= 0:
        return Plan(create=min(lacking, BURST))
    return Plan(delete=victims(there, min(-lacking, BURST), related, now))
