"""Nodes: the standard verbs, and the heartbeats of fleets.

A fleet is a kubelet process that runs one or more nodes. Its session keeps the Lease objects of its nodes in etcd, attached to
the etcd lease of the session.

    opening --> beating --> closed: the Lease objects are deleted at once
                   |        silent: likewise
                   |        stream broken: likewise, after a grace period in which the fleet may resume with another server
                   |        the server stops: the Lease objects stay, the fleet resumes with another server
                   +-- a newer session claims a node: the fleet is notified, and this server drops the node
                   +-- the fleet releases a node: its Lease object is deleted

Guarantees: a node's Lease object exists only while a session with heartbeats holds it. Every write compares mod_revision, so
this server never deletes an object that another server or session has written since. An object that a user edited still belongs
to the fleet. If it names another holder, it is written again. Otherwise, this session would keep the Lease of a node alive that
no fleet runs. A fleet takes a node from another fleet only if its birth is later, and any fleet can take a node without a
holder. A fleet can release only nodes that this server holds for it, or whose Lease objects are attached to its session and
name it as the holder.

Birth: the revision of the store when the fleet's process opened its first session. The Lease object contains it. Of two fleets
with one name, the newer takes the nodes, and they never move back. Of two fleets with the same birth (nothing was written in
between), neither takes nodes from the other.

Stream: a session may move to another server and another stream before the first server detects it. A server recognizes its own
writes by the id of the stream in the object, even after a user edited the object.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import NamedTuple

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.integers import parse_natural
from pinnace.api.names import dns_subdomain, new_uid
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.api.scalars import to_micro_time, to_time
from pinnace.api.wellknown import BIRTH_ANNOTATION, STREAM_ANNOTATION
from pinnace.apiserver import errors
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.auth.authorizer import Authorizer, is_fleet
from pinnace.apiserver.auth.permissions import HEARTBEAT, ActionTarget
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheError, ShuttingDown
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.resource import ResourceService
from pinnace.apiserver.services.sessions import (
    MAX_HOLDER,
    LeaseSession,
    SessionStream,
    SessionStreams,
    StreamEvent,
    Timing,
    decode_record,
)
from pinnace.apiserver.storage.committer import Committer, WriteConflict
from pinnace.apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError, Write
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.tasks import TimeSlice, apply_in_slices, run_until_first

TIMING = Timing(interval=0.5, silence=3.0, ttl=5)
"""The stream of a dead process breaks immediately (see GRACE). A silent process may be stopped, or may lack CPU time: on a
machine with few CPUs, a beat and its response may take seconds."""
PERMISSION_CHUNK = 500
"""Nodes per permission check."""
log = logging.getLogger(__name__)
CLAIM_CHUNK = 500
"""Maximum number of nodes to claim before the next beat is handled."""
RESUME_GRACE = 1.0
"""Seconds within which a fleet whose stream broke may resume, with any server."""
RETRY_INTERVAL = 0.2
"""Seconds between two attempts to write while etcd is unavailable."""
LOOKUP_TIMEOUT = 0.5
"""Seconds to wait for the cache when a fleet releases nodes that this server does not hold for it. The stream is not read
during this time."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks for nodes that newer sessions have taken. A check takes half a microsecond per node."""
MAX_NODES = 10_000
"""Maximum number of nodes in one message. No other task runs while the names and permissions of a message are checked."""


class NodeService(ResourceService[Node]):
    def __init__(
        self, store: Store[Node], cacher: Cacher, audit: AuditSink, authorizer: Authorizer, heartbeats: HeartbeatsService
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._heartbeats = heartbeats

    async def heartbeat(self, requests: AsyncIterator[HeartbeatRequest], context: Context) -> AsyncIterator[HeartbeatResponse]:
        async for response in self._heartbeats.heartbeat(requests, context):
            yield response


class HeartbeatsService:
    def __init__(
        self,
        storage: Storage,
        committer: Committer,
        cacher: Cacher,
        authorizer: Authorizer,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        timing: Timing = TIMING,
    ) -> None:
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._authorizer = authorizer
        self._clock = clock
        self._rng = rng or random.Random()
        self._timing = timing
        self._streams = SessionStreams()

    async def heartbeat(self, requests: AsyncIterator[HeartbeatRequest], context: Context) -> AsyncIterator[HeartbeatResponse]:
        stream = SessionStream[HeartbeatRequest, HeartbeatResponse](requests, self._timing, self._clock)
        async for response in self._streams.serve_stream(stream, lambda: self._serve_fleet(stream, context.user)):
            yield response

    def drain(self) -> None:
        """Stop all streams. Fleets resume with another server, and their leases stay."""
        self._streams.drain()

    async def _serve_fleet(self, stream: SessionStream[HeartbeatRequest, HeartbeatResponse], user: User) -> None:
        request = await stream.receive()
        if isinstance(request, StreamEvent):
            return
        opening = request.open
        if not 0 < len(opening.holder) <= MAX_HOLDER:
            raise Rejected(errors.bad_request(f"open.holder: Required value: at most {MAX_HOLDER} characters"))
        if user.fleet is not None and not is_fleet(user, opening.holder):
            raise Rejected(
                errors.forbidden(f'User "{user.name}" cannot hold leases as "{opening.holder}": it is another fleet')
            )

        async def permit(nodes: Iterable[str]) -> None:
            """Check the permission in chunks, so that a refusal is early and other tasks run in between."""
            turn, wanted = TimeSlice(self._clock), list(nodes)
            for start in range(0, len(wanted), PERMISSION_CHUNK):
                await self._authorizer.authorize(
                    user, HEARTBEAT, partial(_lease_targets, wanted[start : start + PERMISSION_CHUNK])
                )
                await turn.end()

        async def permit_release(nodes: Iterable[str]) -> None:
            """Check a release. A fleet may always release nodes that are held in its own name."""
            if user.fleet is None:
                await permit(nodes)

        if opening.nodes:
            await permit(opening.nodes[:MAX_NODES])  # before the validation of the names, which takes longer
        elif user.fleet is None:  # a session costs an etcd lease
            await self._authorizer.authorize(user, HEARTBEAT, lambda: (ActionTarget(NODE_LEASE_NAMESPACE),))
        if problem := validate_node_names(opening.nodes):
            raise Rejected(errors.bad_request(problem))
        await FleetSession(
            stream,
            opening,
            permit,
            permit_release,
            self._storage,
            self._committer,
            self._cacher,
            self._timing,
            self._clock,
            self._rng,
        ).run()


def _lease_targets(nodes: Iterable[str]) -> list[ActionTarget]:
    return [ActionTarget(NODE_LEASE_NAMESPACE, node) for node in nodes]


class FleetSession:
    def __init__(
        self,
        stream: SessionStream[HeartbeatRequest, HeartbeatResponse],
        opening: HeartbeatRequest.Open,
        permit: Callable[[Iterable[str]], Awaitable[None]],
        permit_release: Callable[[Iterable[str]], Awaitable[None]],
        storage: Storage,
        committer: Committer,
        cacher: Cacher,
        timing: Timing,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """`permit` raises Rejected if the fleet may not hold the nodes. `permit_release` raises Rejected if it may not release
        nodes in its own name that this server does not hold for it."""
        self._stream = stream
        self._opening = opening
        self._permit = permit
        self._permit_release = permit_release
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._timing = timing
        self._clock = clock
        self._rng = rng
        self._unclaimed = dict.fromkeys(opening.nodes)  # nodes to claim
        self._held: dict[str, int] = {}  # mod_revision of the Lease objects
        self._uncertain: dict[str, None] = {}  # released nodes, not held here: a Lease object in the fleet's name may exist
        self._to_delete: dict[str, int] = {}  # Lease objects to delete, by node: mod_revision, or 0 if unknown
        self._releases = 0  # number of release requests
        self._released = 0  # number of release requests that are complete, including all earlier ones
        self._checked = clock.monotonic()
        self._session: LeaseSession
        self._signature = LeaseSignature(opening.holder, opening.birth, new_uid(rng))

    async def run(self) -> None:
        """Run the session until the end of the stream. Raises StorageError if the session cannot be opened, ShuttingDown,
        Rejected."""
        self._session = await self._open_session(self._opening.session)
        if not self._signature.birth and not self._opening.session:
            self._signature = self._signature._replace(birth=await self._storage.current_revision())
        opened = HeartbeatResponse.Opened(
            session=self._session.id,
            interval_ms=round(self._timing.interval * 1000),
            ttl_ms=self._timing.ttl * 1000,
            birth=self._signature.birth,
        )
        self._stream.send(HeartbeatResponse(opened=opened))
        await run_until_first(self._session.keep_alive(self._acknowledge_heartbeat, self._post_expiry), self._serve_stream())

    async def _serve_stream(self) -> None:
        while await self._claim_nodes() and await self._handle_event():
            if self._uncertain:
                await self._look_up_uncertain_nodes()
            if self._to_delete:
                await self._delete_released()
            if not self._uncertain and not self._to_delete:
                self._released = self._releases

    async def _open_session(self, lease: int) -> LeaseSession:
        if lease:
            try:
                return await LeaseSession.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                log.info("%s resumes after its session has expired", self._opening.holder)
        return await LeaseSession.open(self._storage, self._timing, self._clock)

    async def _handle_event(self) -> bool:
        """Wait for the next event and handle it. Return False at the end of the session."""
        if (self._unclaimed or self._uncertain or self._to_delete) and not self._stream.pending:
            return True
        match await self._stream.receive():
            case StreamEvent.CHANGED:
                return True
            case StreamEvent.GONE:
                if not self._session.is_overdue:
                    await self._clock.sleep(RESUME_GRACE)
                await self._release_disconnected("the stream is broken")
                return False
            case StreamEvent.EXPIRED | StreamEvent.RESTORED:
                return self._send_lost("the session has expired")
            case StreamEvent.SILENT:
                await self._release_disconnected("no heartbeat was received")
                return self._send_lost(f"no heartbeat for {self._timing.silence:g} s")
            case StreamEvent.DRAINED:
                raise ShuttingDown
            case request:
                return await self._handle_request(request)

    async def _handle_request(self, request: HeartbeatRequest) -> bool:
        """Handle a request. Return False at the end of the session."""
        match request.WhichOneof("kind"):
            case "beat":
                self._record_heartbeat(request.beat.sequence)
            case "add":
                await self._add_nodes(request.add.nodes)
            case "release":
                await self._release_nodes(request.release.nodes)
            case "close":
                await self._delete_leases("the fleet closed the session")
                return False
            case _:
                await self._delete_leases("the fleet sent an invalid request")
                return self._send_lost("expected one of: beat, add, release, close")
        return True

    async def _add_nodes(self, nodes: Sequence[str]) -> None:
        await self._reject_invalid_names(nodes)
        await self._permit(nodes)
        for node in nodes:
            self._uncertain.pop(node, None)
            self._to_delete.pop(node, None)
            self._unclaimed[node] = None

    async def _release_nodes(self, nodes: Sequence[str]) -> None:
        await self._reject_invalid_names(nodes)
        self._releases += 1
        doubtful = [node for node in nodes if node not in self._held]
        await self._permit_release(doubtful)
        for node in nodes:
            self._unclaimed.pop(node, None)
            if node in self._held:
                self._to_delete[node] = self._held.pop(node)
        self._uncertain.update((node, None) for node in doubtful if node not in self._to_delete)

    async def _reject_invalid_names(self, nodes: Sequence[str]) -> None:
        """Raise Rejected if the server cannot use the names of nodes."""
        if problem := validate_node_names(nodes):
            await self._delete_leases("the fleet sent invalid node names")
            raise Rejected(errors.bad_request(problem))

    def _record_heartbeat(self, sequence: int) -> None:
        if self._clock.monotonic() - self._checked >= CHECK_INTERVAL:
            self._check_held_leases()
        self._session.record_heartbeat(sequence)

    def _acknowledge_heartbeat(self, sequence: int) -> None:
        self._stream.send(HeartbeatResponse(ack=HeartbeatResponse.Ack(sequence=sequence, released=self._released)))

    def _post_expiry(self) -> None:
        self._stream.post_event(StreamEvent.EXPIRED)

    async def _claim_nodes(self) -> bool:
        """Write the Lease objects of the next nodes to claim. Return False if the session has expired.

        Nothing is written for a fleet that has left: it may have a new session, which would lose the nodes to this one.
        """
        nodes = list(islice(self._unclaimed, CLAIM_CHUNK))
        result: dict[str, KeyValue | None] = dict.fromkeys(nodes)
        while nodes and not self._stream.gone:
            outcomes = await self._committer.commit_many([self._lease_write(node, result[node]) for node in nodes])
            conflicts, failure = [], None
            for node, outcome in zip(nodes, outcomes, strict=True):
                match outcome:
                    case int():
                        self._held[node] = outcome
                        del self._unclaimed[node]
                    case WriteConflict():
                        result[node] = outcome.current
                        conflicts.append(node)
                    case LeaseNotFound():
                        return self._send_lost("the session has expired")
                    case StorageError():
                        failure = outcome
            self._report_taken_over(
                (node, LeaseSignature.of_record(kv).holder)
                for node in conflicts
                if (kv := result[node]) and not self._may_claim(kv)
            )
            if failure is not None:
                log.warning("cannot write the leases of all nodes yet: %s", failure)
                await self._clock.sleep(RETRY_INTERVAL)
                return True
            nodes = [node for node in conflicts if node in self._unclaimed]
        return True

    def _may_claim(self, found: KeyValue) -> bool:
        if found.lease in (0, self._session.id, self._opening.session):
            return True
        return LeaseSignature.of_record(found).birth < self._signature.birth

    def _lease_write(self, node: str, found: KeyValue | None) -> Write:
        key = LEASES.key(NODE_LEASE_NAMESPACE, node)
        mine = decode_record(Lease, found.value) if found is not None and found.lease == self._session.id else None
        if mine is not None:
            value = encode_signed(mine, self._signature)
        else:
            value = encode_lease(node, self._signature, self._timing.ttl, self._clock.time(), new_uid(self._rng), found)
        return Write(key, value, expected=found.mod_revision if found else 0, lease=self._session.id)

    def _check_held_leases(self) -> None:
        """Check whether a newer session or a user has written the Lease objects."""
        self._checked = self._clock.monotonic()
        reached, cache = self._cacher.revision, self._cacher.cache_of(LEASES)
        taken_over = []
        for node, revision in list(self._held.items()):
            cache_entry = cache.get(LEASES.key(NODE_LEASE_NAMESPACE, node))
            if reached < revision or (cache_entry is not None and cache_entry.mod_revision <= revision):
                continue
            if (
                cache_entry is None
                or (
                    ownership := classify_lease(
                        cache_entry.parse_uncached(), self._signature, recreated=cache_entry.create_revision > revision
                    )
                )
                is LeaseOwnership.FREE
            ):
                del self._held[node]
                self._unclaimed[node] = None
            elif ownership is LeaseOwnership.EDITED:
                self._held[node] = cache_entry.mod_revision
            elif ownership is LeaseOwnership.TAKEN:
                del self._held[node]
                taken_over.append((node, cache_entry.parse_uncached().spec.holderIdentity))
        self._report_taken_over(taken_over)

    def _report_taken_over(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Drop nodes that a newer session holds, and notify the fleet. `nodes`: pairs of node and holder."""
        by_holder: dict[str, list[str]] = {}
        for node, holder in nodes:
            self._unclaimed.pop(node, None)
            by_holder.setdefault(holder, []).append(node)
        for holder, names in by_holder.items():
            log.warning("%s lost %d nodes to %s", self._opening.holder, len(names), holder)
            self._stream.send(HeartbeatResponse(taken_over=HeartbeatResponse.TakenOver(nodes=names, holder=holder)))

    async def _release_disconnected(self, reason: str) -> None:
        """Release the nodes of a fleet that has left or seems to have left.

        If beats were waiting for etcd, the fleet may be moving to another server. Its Lease objects then stay until the etcd
        lease expires.
        """
        if self._session.is_overdue:
            log.warning("%s: %s while etcd is unavailable", self._opening.holder, reason)
        else:
            await self._delete_leases(reason)

    async def _look_up_uncertain_nodes(self) -> None:
        """Find the doubtful nodes that are held in the fleet's name.

        Another server may have written their Lease objects for this session, or the response to a write of this server was
        lost. The other nodes get no delete: a failed delete would retry all other writes of its transaction.
        """
        try:
            await self._cacher.wait_until_fresh(LOOKUP_TIMEOUT)
        except (CacheError, StorageError) as error:
            log.warning("cannot look up the leases of %d nodes: %s", len(self._uncertain), error)
            await self._clock.sleep(RETRY_INTERVAL)
            return
        nodes, self._uncertain = list(self._uncertain), {}
        ours = await apply_in_slices(self._is_held_by_fleet, nodes, self._clock)
        self._to_delete.update((node, 0) for node, held in zip(nodes, ours, strict=True) if held)

    def _is_held_by_fleet(self, node: str) -> bool:
        cache_entry = self._cacher.cache_of(LEASES).get(LEASES.key(NODE_LEASE_NAMESPACE, node))
        return cache_entry is not None and cache_entry.parse_uncached().spec.holderIdentity == self._opening.holder

    async def _delete_released(self) -> None:
        """Delete the Lease objects of the next released nodes. An object that was not held here is deleted only if it is
        attached to this session."""
        nodes = list(islice(self._to_delete, CLAIM_CHUNK))
        outcomes = await self._committer.commit_many([self._lease_delete(node, self._to_delete[node]) for node in nodes])
        failure = None
        for node, outcome in zip(nodes, outcomes, strict=True):
            match outcome:
                case WriteConflict(current=KeyValue() as found) if found.lease == self._session.id:
                    self._to_delete[node] = found.mod_revision
                case StorageError():
                    failure = outcome
                case _:
                    del self._to_delete[node]
        if failure is not None:
            log.warning("cannot remove the leases of all nodes: %s", failure)
            await self._clock.sleep(RETRY_INTERVAL)

    def _lease_delete(self, node: str, revision: int) -> Write:
        return Write(LEASES.key(NODE_LEASE_NAMESPACE, node), None, expected=revision)

    async def _delete_leases(self, reason: str) -> None:
        """Delete the Lease objects that still have the known mod_revision. Stop when they must have expired."""
        held, self._held = self._held | self._to_delete, {}
        log.info("%s releases %d nodes: %s", self._opening.holder, len(held), reason)
        deadline = self._clock.monotonic() + self._timing.ttl
        while held and self._clock.monotonic() < deadline:
            nodes = list(held)
            outcomes = await self._committer.commit_many([self._lease_delete(node, held[node]) for node in nodes])
            held = {
                node: held[node] for node, outcome in zip(nodes, outcomes, strict=True) if isinstance(outcome, StorageError)
            }
            if held:
                await self._clock.sleep(RETRY_INTERVAL)

    def _send_lost(self, reason: str) -> bool:
        """End the session. Always returns False."""
        self._stream.send(HeartbeatResponse(lost=HeartbeatResponse.Lost(reason=reason)))
        return False


class LeaseSignature(NamedTuple):
    """Identifies the session that wrote a Lease object."""

    holder: str
    birth: int
    """The birth of the fleet; 0 if no session wrote the object."""
    stream: str

    @classmethod
    def of_lease(cls, lease: Lease) -> LeaseSignature:
        annotations = lease.metadata.annotations
        birth = parse_natural(annotations.get(BIRTH_ANNOTATION, "")) or 0
        return cls(lease.spec.holderIdentity, birth, annotations.get(STREAM_ANNOTATION, ""))

    @classmethod
    def of_record(cls, found: KeyValue) -> LeaseSignature:
        """Return the signature of a stored object. An object that cannot be decoded has no holder."""
        return cls.of_lease(decode_record(Lease, found.value) or Lease())

    def sign_lease(self, lease: Lease) -> None:
        """Write the signature to the Lease object."""
        lease.metadata.annotations[BIRTH_ANNOTATION] = str(self.birth)
        lease.metadata.annotations[STREAM_ANNOTATION] = self.stream
        lease.spec.holderIdentity = self.holder


def validate_node_names(nodes: Sequence[str]) -> str:
    """Return the error in the nodes of one message, or "". A Lease object with an invalid node name could not be read or
    deleted."""
    if len(nodes) > MAX_NODES:
        return f"nodes: Too many: {len(nodes)}: must have at most {MAX_NODES} items"
    return "nodes: node names must be DNS subdomain names" if any(dns_subdomain(node) for node in nodes) else ""


def encode_lease(node: str, signature: LeaseSignature, ttl: int, now: float, uid: str, found: KeyValue | None) -> bytes:
    """Return the new Lease object of a node. `found`: the object that it replaces. The uid stays, unless `found` cannot be
    decoded. `now` is in Unix seconds."""
    lease = decode_record(Lease, found.value) if found is not None else None
    if lease is None:
        lease = Lease()
        lease.metadata.name, lease.metadata.namespace, lease.metadata.uid = node, NODE_LEASE_NAMESPACE, uid
        lease.metadata.creationTimestamp.CopyFrom(to_time(now))
    else:
        lease.spec.leaseTransitions += 1
    signature.sign_lease(lease)
    lease.spec.leaseDurationSeconds = ttl
    lease.spec.acquireTime.CopyFrom(to_micro_time(now))
    lease.spec.renewTime.CopyFrom(to_micro_time(now))
    return lease.SerializeToString()


class LeaseOwnership(Enum):
    """The state of a Lease object that this server has written earlier."""

    FREE = auto()
    """No newer session holds the object: this server may write it again."""
    EDITED = auto()
    """The object is from this server, with changes by a user."""
    ELSEWHERE = auto()
    """Another server has written the object for the same fleet. Either may be the server that the fleet has left, so this
    server does not change the object while it exists."""
    TAKEN = auto()
    """A newer session holds the object."""


def classify_lease(found: Lease, ours: LeaseSignature, *, recreated: bool) -> LeaseOwnership:
    """Return the state of a Lease object. `recreated`: it was deleted in between, so it is not attached to this
    session's lease."""
    signature = LeaseSignature.of_lease(found)
    if signature.birth < ours.birth:
        return LeaseOwnership.FREE
    if signature.stream == ours.stream:
        return LeaseOwnership.EDITED if signature == ours and not recreated else LeaseOwnership.FREE
    return LeaseOwnership.ELSEWHERE if signature[:2] == ours[:2] else LeaseOwnership.TAKEN


def encode_signed(lease: Lease, signature: LeaseSignature) -> bytes:
    """Return the Lease object with the signature of this session."""
    signature.sign_lease(lease)
    return lease.SerializeToString()
