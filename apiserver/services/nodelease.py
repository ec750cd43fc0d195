"""The Lease object of a node: who plays it, and how old that one is. Pure.

Sessions of fleets are ordered by their birth: the revision of the store when the fleet's process opened its first one. The
newer of two may take nodes from the older, never the other way; so two processes with one name do not flap, and the one started
last has the nodes. Of two that were born at one revision (nothing was written in between) neither takes from the other.

A session may go on with another server, on another stream, and the server before may not have noticed: by the stream that is
written in the object a server knows its own writing, also when a person has edited the object since.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from apiserver.services.sessions import read
from apiserver.storage.interface import KeyValue
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.names import dns_subdomain
from pinnace.api.resources import NODE_LEASE_NAMESPACE
from pinnace.api.scalars import natural, to_micro_time, to_time
from pinnace.api.wellknown import BIRTH_ANNOTATION, STREAM_ANNOTATION

MAX_NODES = 10_000
"""In one message: each is looked at, and may be asked permission for, before anybody else gets a turn."""


class Signature(NamedTuple):
    """Whose a Lease object is."""

    holder: str
    birth: int
    """Of the session; 0 when none of ours wrote it."""
    stream: str

    @classmethod
    def of(cls, lease: Lease) -> "Signature":
        annotations = lease.metadata.annotations
        birth = natural(annotations.get(BIRTH_ANNOTATION, "")) or 0
        return cls(lease.spec.holderIdentity, birth, annotations.get(STREAM_ANNOTATION, ""))

    @classmethod
    def of_record(cls, found: KeyValue) -> "Signature":
        """Nobody's when the object cannot be read."""
        return cls.of(read(Lease, found.value) or Lease())

    def on(self, lease: Lease) -> None:
        """Signs it."""
        lease.metadata.annotations[BIRTH_ANNOTATION] = str(self.birth)
        lease.metadata.annotations[STREAM_ANNOTATION] = self.stream
        lease.spec.holderIdentity = self.holder


def unusable(nodes: Sequence[str]) -> str:
    """What is wrong with the nodes of one message; empty: nothing. A Lease object of a name that no node can have could not be
    read or deleted."""
    if len(nodes) > MAX_NODES:
        return f"nodes: {len(nodes)} in one message, send at most {MAX_NODES}"
    return "nodes: their names must be DNS names" if any(dns_subdomain(node) for node in nodes) else ""


def lease_object(node: str, signature: Signature, ttl: int, now: float, uid: str, found: KeyValue | None) -> bytes:
    """The Lease object of a node from now on; `found` is the one that it replaces, whose uid stays, unless it cannot be read.
    `now` is Unix time."""
    lease = read(Lease, found.value) if found is not None else None
    if lease is None:
        lease = Lease()
        lease.metadata.name, lease.metadata.namespace, lease.metadata.uid = node, NODE_LEASE_NAMESPACE, uid
        lease.metadata.creationTimestamp.CopyFrom(to_time(now))
    else:
        lease.spec.leaseTransitions += 1
    signature.on(lease)
    lease.spec.leaseDurationSeconds = ttl
    lease.spec.acquireTime.CopyFrom(to_micro_time(now))
    lease.spec.renewTime.CopyFrom(to_micro_time(now))
    return lease.SerializeToString()


class Sight(Enum):
    """What has become of a Lease object that a server has written."""

    FREE = auto()
    """Nobody newer holds it: it may be written again."""
    EDITED = auto()
    """Still what this server wrote, but for what a person has changed in it."""
    ELSEWHERE = auto()
    """Written for the same fleet by another server. Either may be the one that the fleet has left: nothing to do while it is
    there."""
    TAKEN = auto()
    """A newer session's."""


def see(found: Lease, ours: Signature, *, anew: bool) -> Sight:
    """`anew`: it was deleted in between, so that it is not on our session's lease."""
    signature = Signature.of(found)
    if signature.birth < ours.birth:
        return Sight.FREE
    if signature.stream == ours.stream:
        return Sight.EDITED if signature == ours and not anew else Sight.FREE
    return Sight.ELSEWHERE if signature[:2] == ours[:2] else Sight.TAKEN


def signed(lease: Lease, signature: Signature) -> bytes:
    """The Lease object as it is, in this session's name."""
    signature.on(lease)
    return lease.SerializeToString()
