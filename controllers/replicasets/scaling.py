"""How many pods a replica set lacks, and which are too many. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controllers.podfacts import Facts
from controllers.replicasets.victims import victims
from pinnace.api.apps_v1_pb2 import ReplicaSet
from pinnace.api.core_v1_pb2 import Pod

BURST = 500
"""Pods that one look makes or deletes, at most: the next one follows when the informer has shown them."""
AT_ONCE = 2
"""How often each replica is replaced without a wait when it fails."""
BACKOFF, BACKOFF_MAX = 1.0, 300.0
"""Seconds before the next replacement of all; each one that follows waits twice as long."""
MEMORY = 600.0
"""Seconds for which a failed pod counts."""
SKEW = 60.0
"""Seconds by which a clock may be ahead of this one. Pods of later than that do not count: nobody knows how old they are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One of them at most. `wait`: seconds until there is something to make."""

    create: int = 0
    delete: Sequence[Pod] = field(default_factory=tuple)
    wait: float | None = None


def plan(replica_set: ReplicaSet, pods: Sequence[Facts], related: Iterable[Facts], now: float) -> Plan:
    """`pods`: its own; pods that have failed are replaced, and left for the collector. `related`: see victims; `now` is Unix
    time.

    Pods that fail again and again are replaced ever more slowly. (Kubernetes does not wait: where a kubelet refuses what a
    scheduler sends it, it makes thousands of pods: https://github.com/kubernetes/kubernetes/issues/108152.)"""
    if replica_set.metadata.HasField("deletionTimestamp"):
        return Plan()
    there = [each for each in pods if each.active]
    lacking = replica_set.spec.replicas - len(there)
    if lacking < 0:
        return Plan(delete=victims(there, min(-lacking, BURST), related, now))
    wait = backoff(replica_set.spec.replicas, pods, now) if lacking else 0.0
    return Plan(wait=wait) if wait else Plan(create=min(lacking, BURST))


def backoff(replicas: int, pods: Iterable[Facts], now: float) -> float:
    """Seconds until pods that have failed may be replaced."""
    recent = [pod.created for pod in pods if pod.phase == "Failed" and now - MEMORY < pod.created <= now + SKEW]
    rounds = len(recent) // replicas - AT_ONCE
    if rounds < 0:
        return 0.0
    return max(0.0, max(recent) + min(BACKOFF * 2.0 ** min(rounds, 32), BACKOFF_MAX) - now)
