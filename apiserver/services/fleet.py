"""One session of a fleet: the Lease objects of its nodes, in etcd, attached to the session's lease.

    opening --> beating --> closed: the Lease objects are deleted at once
                   |        silent: likewise
                   |        broken off: likewise, after a grace in which the fleet may go on with another server
                   |        the server stops: they are left alone, the fleet goes on with another server
                   +-- a newer session claims a node: the fleet is told, and the node forgotten here
                   +-- the fleet gives up a node: its Lease object is deleted

Guarantees: a node's Lease object exists only while a session that beats holds it. An object that another server or session has
written since is never deleted from here: every write compares mod_revision. One that a person has edited stays the fleet's; if
it then names another holder it is written again, or nobody would play the node, and this session keep its Lease alive. Only a
fleet whose birth is later takes a node from another (see nodelease.py); a node that nobody holds is anybody's. A fleet gives up
what this server holds for it, or what hangs on its session and names it as the holder; nothing else is deleted, whatever it
says.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice

from apiserver import errors
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheError, ShuttingDown
from apiserver.errors import Rejected
from apiserver.services.nodelease import Sight, Signature, lease_object, see, signed, unusable
from apiserver.services.sessions import Conversation, Session, Sign, Timing, read
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError, Write
from apiserver.uids import new_uid
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import in_slices, race

log = logging.getLogger(__name__)

CHUNK = 500
"""Nodes that are claimed before the next beat is answered."""
GRACE = 1.0
"""Seconds that a fleet whose stream broke has to come back, here or elsewhere."""
RETRY = 0.2
"""Seconds between two attempts to write when etcd does not answer."""
LOOK_LIMIT = 0.5
"""Seconds that a look for what a fleet gives up, and does not hold here, waits for the cache; nobody hears it meanwhile."""
CHECK_INTERVAL = 1.0
"""Seconds between two looks at the cache for nodes that a newer session has taken; half a microsecond a node."""


class FleetSession:
    def __init__(
        self,
        conversation: Conversation[HeartbeatRequest, HeartbeatResponse],
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
        """`permit` raises Rejected when these nodes are not the fleet's, `permit_release` when it may not give up nodes that it
        does not hold here, if they are held in its name."""
        self._conversation = conversation
        self._opening = opening
        self._permit = permit
        self._permit_release = permit_release
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._timing = timing
        self._clock = clock
        self._rng = rng
        self._wanted = dict.fromkeys(opening.nodes)  # to be claimed
        self._held: dict[str, int] = {}  # mod_revision of the Lease objects
        self._doubtful: dict[str, None] = {}  # given up, and not held here: is there a Lease object in the fleet's name?
        self._given_up: dict[str, int] = {}  # Lease objects to delete: their mod_revision, 0 where it is not known
        self._releases = 0  # messages that give up nodes
        self._released = 0  # of these, as many as have been carried out, with all before them
        self._checked = clock.monotonic()
        self._session: Session
        self._ours = Signature(opening.holder, opening.birth, new_uid(rng))

    async def run(self) -> None:
        """To the end of the conversation. Raises StorageError when the session cannot be opened, ShuttingDown, Rejected."""
        self._session = await self._open_session(self._opening.session)
        if not self._ours.birth and not self._opening.session:
            self._ours = self._ours._replace(birth=await self._storage.current_revision())
        opened = HeartbeatResponse.Opened(
            session=self._session.id,
            interval_ms=round(self._timing.interval * 1000),
            ttl_ms=self._timing.ttl * 1000,
            birth=self._ours.birth,
        )
        self._conversation.say(HeartbeatResponse(opened=opened))
        await race(self._session.keep(self._acknowledge, self._expire), self._converse())

    async def _converse(self) -> None:
        while await self._claim() and await self._react():
            if self._doubtful:
                await self._look_up()
            if self._given_up:
                await self._give_up()
            if not self._doubtful and not self._given_up:
                self._released = self._releases

    async def _open_session(self, lease: int) -> Session:
        if lease:
            try:
                return await Session.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                log.info("%s comes back after its session has run out", self._opening.holder)
        return await Session.open(self._storage, self._timing, self._clock)

    async def _react(self) -> bool:
        """Waits for what comes next; False at the end."""
        if (self._wanted or self._doubtful or self._given_up) and not self._conversation.pending:
            return True
        match await self._conversation.hear():
            case Sign.NEWS:
                return True
            case Sign.GONE:
                if not self._session.overdue:
                    await self._clock.sleep(GRACE)
                await self._abandon("its stream broke")
                return False
            case Sign.EXPIRED | Sign.RESTORED:
                return self._lose("the session has run out")
            case Sign.SILENT:
                await self._abandon("it fell silent")
                return self._lose(f"no heartbeat for {self._timing.silence:g} s")
            case Sign.DRAINED:
                raise ShuttingDown
            case request:
                return await self._handle(request)

    async def _handle(self, request: HeartbeatRequest) -> bool:
        """False at the end."""
        match request.WhichOneof("kind"):
            case "beat":
                self._beat(request.beat.sequence)
            case "add":
                await self._add(request.add.nodes)
            case "release":
                await self._take_back(request.release.nodes)
            case "close":
                await self._release("it closed")
                return False
            case _:
                await self._release("it talks nonsense")
                return self._lose("expected a beat, more nodes, fewer nodes or the end")
        return True

    async def _add(self, nodes: Sequence[str]) -> None:
        await self._refuse_unusable(nodes)
        await self._permit(nodes)
        for node in nodes:
            self._doubtful.pop(node, None)
            self._given_up.pop(node, None)
            self._wanted[node] = None

    async def _take_back(self, nodes: Sequence[str]) -> None:
        await self._refuse_unusable(nodes)
        self._releases += 1
        doubtful = [node for node in nodes if node not in self._held]
        await self._permit_release(doubtful)
        for node in nodes:
            self._wanted.pop(node, None)
            if node in self._held:
                self._given_up[node] = self._held.pop(node)
        self._doubtful.update((node, None) for node in doubtful if node not in self._given_up)

    async def _refuse_unusable(self, nodes: Sequence[str]) -> None:
        """Raises Rejected."""
        if problem := unusable(nodes):
            await self._release("it names nodes that cannot be")
            raise Rejected(errors.bad_request(problem))

    def _beat(self, sequence: int) -> None:
        if self._clock.monotonic() - self._checked >= CHECK_INTERVAL:
            self._check()
        self._session.beat(sequence)

    def _acknowledge(self, sequence: int) -> None:
        self._conversation.say(HeartbeatResponse(ack=HeartbeatResponse.Ack(sequence=sequence, released=self._released)))

    def _expire(self) -> None:
        self._conversation.post(Sign.EXPIRED)

    async def _claim(self) -> bool:
        """Writes the Lease objects of the next nodes that wait for it; False when the session has run out.

        For nobody who has left: the fleet may have a new session already, and would lose its nodes to its old one."""
        nodes = list(islice(self._wanted, CHUNK))
        found: dict[str, KeyValue | None] = dict.fromkeys(nodes)
        while nodes and not self._conversation.gone:
            outcomes = await self._committer.commit_many([self._writing(node, found[node]) for node in nodes])
            conflicts, trouble = [], None
            for node, outcome in zip(nodes, outcomes, strict=True):
                match outcome:
                    case int():
                        self._held[node] = outcome
                        del self._wanted[node]
                    case Conflict():
                        found[node] = outcome.current
                        conflicts.append(node)
                    case LeaseNotFound():
                        return self._lose("the session has run out")
                    case StorageError():
                        trouble = outcome
            self._tell_taken_over(
                (node, Signature.of_record(kv).holder) for node in conflicts if (kv := found[node]) and not self._may_take(kv)
            )
            if trouble is not None:
                log.warning("cannot write the leases of all nodes yet: %s", trouble)
                await self._clock.sleep(RETRY)
                return True
            nodes = [node for node in conflicts if node in self._wanted]
        return True

    def _may_take(self, found: KeyValue) -> bool:
        if found.lease in (0, self._session.id, self._opening.session):
            return True
        return Signature.of_record(found).birth < self._ours.birth

    def _writing(self, node: str, found: KeyValue | None) -> Write:
        key = LEASES.key(NODE_LEASE_NAMESPACE, node)
        mine = read(Lease, found.value) if found is not None and found.lease == self._session.id else None
        if mine is not None:
            value = signed(mine, self._ours)
        else:
            value = lease_object(node, self._ours, self._timing.ttl, self._clock.time(), new_uid(self._rng), found)
        return Write(key, value, expected=found.mod_revision if found else 0, lease=self._session.id)

    def _check(self) -> None:
        """Looks whether others have written the Lease objects: a newer session, or a person."""
        self._checked = self._clock.monotonic()
        reached, cache = self._cacher.revision, self._cacher.of(LEASES)
        taken_over = []
        for node, revision in list(self._held.items()):
            found = cache.get(LEASES.key(NODE_LEASE_NAMESPACE, node))
            if reached < revision or (found is not None and found.mod_revision <= revision):
                continue
            if found is None or (sight := see(found.peek(), self._ours, anew=found.create_revision > revision)) is Sight.FREE:
                del self._held[node]
                self._wanted[node] = None
            elif sight is Sight.EDITED:
                self._held[node] = found.mod_revision
            elif sight is Sight.TAKEN:
                del self._held[node]
                taken_over.append((node, found.peek().spec.holderIdentity))
        self._tell_taken_over(taken_over)

    def _tell_taken_over(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Forgets nodes that a newer session holds, each given with its holder, and tells the fleet."""
        by_holder: dict[str, list[str]] = {}
        for node, holder in nodes:
            self._wanted.pop(node, None)
            by_holder.setdefault(holder, []).append(node)
        for holder, names in by_holder.items():
            log.warning("%s has lost %d nodes to %s", self._opening.holder, len(names), holder)
            self._conversation.say(HeartbeatResponse(taken_over=HeartbeatResponse.TakenOver(nodes=names, holder=holder)))

    async def _abandon(self, why: str) -> None:
        """The fleet has gone, or seems to have. If the store has left its beats without an answer it had good reason, and is on
        its way to another server: then the Lease objects are left to it, and to their etcd lease."""
        if self._session.overdue:
            log.warning("%s: %s, while the store is away", self._opening.holder, why)
        else:
            await self._release(why)

    async def _look_up(self) -> None:
        """Finds the nodes among the doubtful that are held in the fleet's name: another server may have written their Lease
        objects for this session, or the answer to our own write was lost. The others are none of its business, and no write is
        tried for them: each that fails would send those of others around again."""
        try:
            await self._cacher.fresh(LOOK_LIMIT)
        except (CacheError, StorageError) as error:
            log.warning("cannot look for the leases of %d nodes yet: %s", len(self._doubtful), error)
            await self._clock.sleep(RETRY)
            return
        nodes, self._doubtful = list(self._doubtful), {}
        ours = await in_slices(self._is_in_our_name, nodes, self._clock)
        self._given_up.update((node, 0) for node, held in zip(nodes, ours, strict=True) if held)

    def _is_in_our_name(self, node: str) -> bool:
        found = self._cacher.of(LEASES).get(LEASES.key(NODE_LEASE_NAMESPACE, node))
        return found is not None and found.peek().spec.holderIdentity == self._opening.holder

    async def _give_up(self) -> None:
        """Deletes the Lease objects of the next nodes that the fleet has given up. One that it did not hold here must turn out
        to be of this session."""
        nodes = list(islice(self._given_up, CHUNK))
        outcomes = await self._committer.commit_many([self._deleting(node, self._given_up[node]) for node in nodes])
        trouble = None
        for node, outcome in zip(nodes, outcomes, strict=True):
            match outcome:
                case Conflict(current=KeyValue() as found) if found.lease == self._session.id:
                    self._given_up[node] = found.mod_revision
                case StorageError():
                    trouble = outcome
                case _:
                    del self._given_up[node]
        if trouble is not None:
            log.warning("cannot remove the leases of all nodes yet: %s", trouble)
            await self._clock.sleep(RETRY)

    def _deleting(self, node: str, revision: int) -> Write:
        return Write(LEASES.key(NODE_LEASE_NAMESPACE, node), None, expected=revision)

    async def _release(self, why: str) -> None:
        """Deletes the Lease objects that are still at our mod_revision. Gives up when they must have run out anyway."""
        held, self._held = self._held | self._given_up, {}
        log.info("%s gives up %d nodes: %s", self._opening.holder, len(held), why)
        deadline = self._clock.monotonic() + self._timing.ttl
        while held and self._clock.monotonic() < deadline:
            nodes = list(held)
            outcomes = await self._committer.commit_many([self._deleting(node, held[node]) for node in nodes])
            held = {
                node: held[node] for node, outcome in zip(nodes, outcomes, strict=True) if isinstance(outcome, StorageError)
            }
            if held:
                await self._clock.sleep(RETRY)

    def _lose(self, reason: str) -> bool:
        """Ends the session; always False, the end."""
        self._conversation.say(HeartbeatResponse(lost=HeartbeatResponse.Lost(reason=reason)))
        return False
