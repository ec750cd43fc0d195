"""The Lease object of a node: who plays it, and how old that one is. Pure.

Sessions of fleets are ordered by their birth: the revision of the store when the fleet's process opened its first one. The
newer of two may take nodes from the older, never the other way; so two processes with one name do not flap, and the one started
last has the nodes. Of two that were born at one revision (nothing was written in between) neither takes from the other.
"""

from collections.abc import Sequence

from apiserver.storage.interface import KeyValue
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.names import dns_subdomain
from pinnace.api.naturals import natural
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.api.times import to_micro_time, to_time
from pinnace.api.wellknown import BIRTH_ANNOTATION

MAX_NODES = 10_000
"""In one message: each is looked at, and may be asked permission for, before anybody else gets a turn."""


def unusable(nodes: Sequence[str]) -> str:
    """What is wrong with the nodes of one message; empty: nothing. A Lease object of a name that no node can have could not be
    read or deleted."""
    if len(nodes) > MAX_NODES:
        return f"nodes: {len(nodes)} in one message, send at most {MAX_NODES}"
    return "nodes: their names must be DNS names" if any(dns_subdomain(node) for node in nodes) else ""


def lease_object(node: str, holder: str, birth: int, ttl: int, now: float, uid: str, found: KeyValue | None) -> bytes:
    """The Lease object of a node from now on; `found` is the one that it replaces, whose uid stays. `now` is Unix time."""
    lease = Lease() if found is None else Lease.FromString(found.value)
    if found is None:
        lease.metadata.name, lease.metadata.namespace, lease.metadata.uid = node, NODE_LEASE_NAMESPACE, uid
        lease.metadata.creationTimestamp.CopyFrom(to_time(now))
    else:
        lease.spec.leaseTransitions += 1
    lease.metadata.annotations[BIRTH_ANNOTATION] = str(birth)
    lease.spec.holderIdentity = holder
    lease.spec.leaseDurationSeconds = ttl
    lease.spec.acquireTime.CopyFrom(to_micro_time(now))
    lease.spec.renewTime.CopyFrom(to_micro_time(now))
    return lease.SerializeToString()


def birth_of(value: bytes) -> int:
    """Of the session that wrote the Lease object; 0 when none of ours did."""
    return natural(Lease.FromString(value).metadata.annotations.get(BIRTH_ANNOTATION, "")) or 0
