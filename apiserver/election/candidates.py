"""One election: its candidates on this server (Candidates), one candidate (Candidate), and the key in etcd (LeaderKey).

Candidates: the candidate that has waited longest goes first, if it has sent a beat recently. While a transfer is under way, the
nominated candidate goes first, and the others wait for it up to NOMINEE_FIRST seconds. This order is a courtesy; only the key
decides which candidate leads. Candidates of several servers race in etcd, and the losers go on waiting.

Candidate:

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, broken off, silent: delete the key, if it is still at our mod_revision
      |  |         |                        |  likewise, but etcd has been away: leave the key to its lease
      |  |         |                        |  the key is gone or another's: report the loss to the candidate
      |  +-- resumed with session (and token) from another server: put the key again, under compare-and-swap
      |  |         '-- the key turns out to be this session's: likewise
      +-- refused                           +  the server stops: leave the key alone, send the candidate on

LeaderKey:

    nothing --create: no key may exist--> held --depose: delete, at our mod_revision--> nothing
       |                                    ^
       '--take_over: put again, at the mod_revision that it was read at

Guarantees: there is one leader, and no term ends by mistake:

- The key is created only where there is none, so one term ends before the next begins. Its create_revision is the token:
  greater than every token before.
- Every put attaches the key to the session's lease, and etcd refuses the put when the lease has expired: no key outlives a
  session that sends no beats by more than the lease.
- When a session moves to another server, that server puts the same bytes again: the token stays, the mod_revision moves. Only
  the key at the mod_revision of our own last put is deleted (for a forsaken term: at the one that was read). A mod_revision
  never returns, so a late or repeated delete ends the leadership that it was meant for, or does nothing.
- `held` is set only by a write that etcd has confirmed.

Does not promise that a create whose outcome is unknown never happens: its key may appear later, and the server that has the
session then takes it over. Nor that the key is deleted: when etcd stays away, the lease expires instead.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, TypeGuard

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import CacheError, ShuttingDown
from apiserver.election.history import BROKE, NONSENSE, RAN_OUT, RESIGNED, RESTORED, SILENT, STOOD_DOWN, Stands, TermLog, ended
from apiserver.registry.fencing import hashed, is_holder
from apiserver.services.sessions import LeaseSession, SessionStream, StreamEvent, Timing, election_of, read
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import Change, KeyValue, LeaseNotFound, Storage, StorageError, Write
from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Election, Nomination, Term
from pinnace.api.elections_pb2 import Candidate as CandidateRecord
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.resources import ELECTIONS_PREFIX, election_key, nomination_key
from pinnace.api.scalars import to_micro_time
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import race

Member = SessionStream[Any, Any]

NOMINEE_FIRST = 1.0
"""Seconds after the key is gone for which a nominee has the right of way."""
UNSEEN = 1.0
"""Seconds for which a write of this server counts before the cache shows it."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """The key as a candidate of this server holds it: its create_revision (the token) and mod_revision."""

    token: int
    mod_revision: int


class KeyState(Enum):
    OURS = auto()
    LOST = auto()
    """The key is gone, or another candidate has created it."""
    MOVED = auto()
    """Another server has put the key again: the candidate has moved there."""


def key_state(held: HeldKey, record: KeyValue | None, cache_revision: int) -> KeyState:
    """The state of a held key according to the cache. A cache that has not seen this server's last write counts as OURS."""
    if cache_revision < held.mod_revision:
        return KeyState.OURS
    if record is None or record.create_revision != held.token:
        return KeyState.LOST
    return KeyState.OURS if record.mod_revision == held.mod_revision else KeyState.MOVED


class Candidates:
    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self.name = name
        self.key = election_key(name)
        self.nomination_key = nomination_key(name)
        self._cacher = cacher
        self._clock = clock
        self._vacant_since = float("-inf")
        self._deleted = 0
        """The revision at which this server last deleted the key."""
        self._members: list[Member] = []
        self._queue: list[Member] = []
        self._latest = term_of(record) if (record := self.record()) else None
        self._written = 0
        """The revision at which this server last put the key. Until the cache has it, the cache does not show the leader."""
        self._written_at = float("-inf")

    def record(self) -> KeyValue | None:
        """The key in the cache; None if this server has just deleted it."""
        if self._cacher.revision < self._deleted and self._clock.monotonic() - self._vacant_since < UNSEEN:
            return None
        return self._cacher.raw(self.key)

    async def catch_up(self, revision: int, timeout: float) -> None:
        """Waits until the cache has seen `revision`, `timeout` seconds at most."""
        with suppress(CacheError):
            await self._cacher.wait_for(revision, timeout)

    def key_state(self, held: HeldKey) -> KeyState:
        return key_state(held, self.record(), self._cacher.revision)

    def join(self, member: Member) -> None:
        """Adds a candidate to the end of the queue. Its stream receives the changes of the election."""
        self._members.append(member)
        self._queue.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        self.remove_from_queue(member)

    def won(self, member: Member, held: HeldKey) -> None:
        """Notes that a candidate leads by a put of this server."""
        self._written, self._written_at = held.mod_revision, self._clock.monotonic()
        self.remove_from_queue(member)

    def vacated(self, revision: int) -> None:
        """Notes that this server deleted the key at `revision`, so that the next candidate need not wait for the cache."""
        self._deleted = revision
        self._vacant_since = self._clock.monotonic()
        self._tell_all()

    def remove_from_queue(self, member: Member) -> None:
        """Removes a candidate that leads or has gone from the queue, and notifies the next one."""
        if member in self._queue:
            self._queue.remove(member)
            for following in self._queue[:1]:
                following.post(StreamEvent.CHANGED)

    def is_next(self, member: Member) -> bool:
        """Whether it is the first waiting candidate that is alive."""
        return next((each for each in self._queue if each.recent), None) is member

    def nomination(self) -> tuple[KeyValue, Nomination] | None:
        """The nomination of the transfer under way; None if there is none, or it cannot be decoded."""
        record = self._cacher.raw(self.nomination_key)
        nomination = read(Nomination, record.value) if record else None
        return (record, nomination) if record and nomination else None

    def may_stand(self, member: Member, session: int) -> bool:
        """Whether a candidate may try to create the key now, given that the cache shows no leader."""
        if self._cacher.revision < self._written and self._clock.monotonic() - self._written_at < UNSEEN:
            return False
        nomination = self.nomination()
        if nomination is not None and (nominee := nomination[1].session):
            if nominee == session:
                return True
            if self._clock.monotonic() - self._vacant_since < NOMINEE_FIRST:
                return False
        return self.is_next(member)

    def rival(self, scheduler_names: Sequence[str]) -> Election | None:
        """Another election whose leader binds the pods of one of these schedulers, according to the cache. Two such leaders
        would place pods independently. This check finds wrong configurations; it is not a lock."""
        names = set(scheduler_names)
        elections = (election_of(record) for record in self._cacher.raw_items(ELECTIONS_PREFIX) if record.key != self.key)
        return next((each for each in elections if not names.isdisjoint(each.scheduler_names)), None) if names else None

    def announce(self, change: Change) -> None:
        """Applies a change of the key or the nomination, and notifies the candidates."""
        if change.key == self.key:
            self._follow(change)
        self._tell_all()

    def _tell_all(self) -> None:
        for member in self._members:
            member.post(StreamEvent.CHANGED)

    def _follow(self, change: Change) -> None:
        if change.value is not None:
            self._latest = term_of(KeyValue(change.key, change.value, change.create_revision, change.mod_revision, 1))
            return
        self._vacant_since = self._clock.monotonic()
        if self._latest is not None:
            self._latest.ended.CopyFrom(to_micro_time(self._clock.time()))
            self._latest.reason, self._latest.presumed = RAN_OUT, True

    def previous_term(self, token: int) -> Term | None:
        """The latest earlier term that this server saw end, for the election history. The reason is presumed."""
        latest = self._latest
        return latest if latest is not None and latest.token < token and latest.HasField("ended") else None

    @property
    def is_empty(self) -> bool:
        return not self._members


def term_of(record: KeyValue) -> Term:
    """The term of the key, not ended."""
    election = election_of(record)
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)


RETRY = 0.1
"""Seconds between two attempts to delete the key of a dead leader when etcd does not answer."""


class CandidateIdentity(NamedTuple):
    """The identity of a candidate. A key belongs to the candidate only if it has the session's lease and this identity, so
    knowing the id of a lease is not enough."""

    holder: str
    user: str
    secret: bytes
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods it may bind."""
    configuration: str = ""
    """Digest of its configuration, for readers of the election."""


class LeaderKey:
    """`held` is what this server knows the candidate to hold; None: nothing yet, or it was deposed from here. That the key has
    gone since, only etcd knows: see `Candidates.verdict`."""

    def __init__(
        self,
        candidates: Candidates,
        identity: CandidateIdentity,
        storage: Storage,
        committer: Committer,
        terms: TermLog,
        ttl: float,
        clock: Clock,
    ) -> None:
        """`ttl`: seconds that the lease of a session lives without a beat."""
        self.held: HeldKey | None = None
        self._candidates = candidates
        self._identity = identity
        self._holder = identity.holder
        self._storage = storage
        self._committer = committer
        self._terms = terms
        self._ttl = ttl
        self._clock = clock
        self._term: Term
        self._candidate = CandidateRecord()

    def stand(self, session: int) -> None:
        """Records the candidate and its session."""
        self._candidate = CandidateRecord(
            election=self._candidates.name, holder=self._holder, since=self._now(), session=session
        )
        self._terms.note(Stands(self._candidate))

    def leave(self) -> None:
        """Records that the candidate has left."""
        if self._candidate.session:
            self._terms.note(Stands(self._candidate, gone=True))

    async def find(self, session: int) -> KeyValue | None:
        """The election's key as etcd has it, if it is attached to this session's lease. Raises StorageError."""
        record = await self._storage.get(self._candidates.key)
        return record if record is not None and record.lease == session else None

    def is_own(self, record: KeyValue | None, session: int) -> TypeGuard[KeyValue]:
        if record is None or record.lease != session:
            return False
        election, identity = read(Election, record.value) or Election(), self._identity
        return election.holder == identity.holder and is_holder(election, identity.user, identity.secret)

    async def create(self, session: int) -> HeldKey:
        """Creates the key: the candidate leads. Raises Conflict if another candidate leads, LeaseNotFound if the session has
        expired, and other StorageErrors. After OutcomeUnknown the key may exist, or appear later."""
        holder, user, secret, scheduler_names, configuration = self._identity
        record = Election(name=self._candidates.name, holder=holder, session=session, user=user, secret_hash=hashed(secret))
        record.scheduler_names.extend(scheduler_names)
        record.configuration = configuration
        record.since.CopyFrom(self._now())
        write = Write(self._candidates.key, record.SerializeToString(), expected=0, lease=session)
        revision = await self._committer.commit(write)
        term = Term(election=self._candidates.name, holder=self._holder, token=revision, began=record.since)
        return self._hold(HeldKey(revision, revision), term)

    async def take_over(self, record: KeyValue, session: int, left: Callable[[], bool]) -> HeldKey:
        """Puts the key of this session again, so that the previous server sees the change and leaves the key alone. `left`
        returns whether the candidate has left meanwhile. Raises Conflict if the key is gone or another candidate's, or if
        another server has put it and the candidate is there now; LeaseNotFound if the session has expired; and other
        StorageErrors."""
        token = record.create_revision
        while True:
            write = Write(record.key, record.value, expected=record.mod_revision, lease=session)
            try:
                revision = await self._committer.commit(write)
            except Conflict as conflict:  # perhaps a write of another server that the candidate has left
                current = conflict.current
                if left() or not self.is_own(current, session) or current.create_revision != token:
                    raise
                record = current
            else:
                return self._hold(HeldKey(token, revision), term_of(record))

    def _hold(self, held: HeldKey, term: Term) -> HeldKey:
        log.info('election "%s": %s leads with token %d', self._candidates.name, self._holder, held.token)
        self.held, self._term = held, term
        if before := self._candidates.previous_term(held.token):
            self._terms.note(before)
        self._terms.note(term)
        return held

    async def accept(self, asked: KeyValue, nomination: Nomination, session: int) -> None:
        """Accepts the nomination for this candidate. Conflicts and errors are ignored."""
        nomination.holder, nomination.session = self._holder, session
        write = Write(asked.key, nomination.SerializeToString(), expected=asked.mod_revision)
        with suppress(Conflict, StorageError):
            await self._committer.commit(write)

    async def depose(self, why: str) -> None:
        """Deletes the key if it is held, unless its mod_revision has changed. Retries for up to `ttl` seconds while etcd does
        not answer."""
        held, self.held = self.held, None
        if held is not None:
            log.info('election "%s": %s with token %d: %s', self._candidates.name, self._holder, held.token, why)
            await self._delete(held, ended(self._term, why, self._now()))

    async def delete_forsaken(self, session: int, ago: float | None) -> None:
        """Deletes the key of a term that the candidate ended by its own clock, so that others need not wait for the lease.
        `ago`: seconds since then; None: unknown. Takes as long as `depose`. Raises StorageError if the key cannot be read."""
        at = to_micro_time(max(self._clock.time() - max(ago or 0.0, 0.0), 0.0))
        record = await self.find(session)
        if self.is_own(record, session):
            over = ended(term_of(record), STOOD_DOWN, at, presumed=ago is None)
            await self._delete(HeldKey(record.create_revision, record.mod_revision), over)

    async def _delete(self, held: HeldKey, over: Term) -> None:
        """Deletes the key, until the lease must have expired. `over`: the ended term, for the election history."""
        deadline = self._clock.monotonic() + self._ttl
        while self._clock.monotonic() < deadline:
            try:
                revision = await self._committer.commit(Write(self._candidates.key, None, expected=held.mod_revision))
            except Conflict:
                return
            except StorageError as error:
                log.warning('election "%s": cannot delete the key yet: %s', self._candidates.name, error)
                await self._clock.sleep(RETRY)
            else:
                self._candidates.vacated(revision)
                self._terms.note(over)
                return

    def ran_out(self) -> None:
        """Records that a held term is over. The key is presumed to have expired with its lease."""
        if self.held is not None:
            self._terms.note(ended(self._term, RAN_OUT, self._now(), presumed=True))

    def _now(self) -> MicroTime:
        return to_micro_time(self._clock.time())


log = logging.getLogger(__name__)


class Candidate:
    def __init__(
        self,
        stream: SessionStream[CampaignRequest, CampaignResponse],
        candidates: Candidates,
        opening: CampaignRequest.Open,
        leader_key: LeaderKey,
        storage: Storage,
        timing: Timing,
        clock: Clock,
    ) -> None:
        self._stream = stream
        self._candidates = candidates
        self._opening = opening
        self._names = opening.scheduler_names
        self._key = leader_key
        self._storage = storage
        self._timing = timing
        self._clock = clock
        self._observed = 0
        self._observed_at = 0.0
        self._session: LeaseSession

    async def run(self) -> None:
        """Runs until the stream ends. Raises StorageError if the session cannot be opened, and ShuttingDown."""
        self._candidates.join(self._stream)
        try:
            if await self._open():
                await race(self._session.keep(self._acknowledge, self._expire), self._converse())
        finally:
            self._candidates.leave(self._stream)

    async def _converse(self) -> None:
        while await self._act() and await self._react():
            pass

    async def _open(self) -> bool:
        """Opens or resumes the session, and takes over the key if the candidate holds it."""
        opening = self._opening
        if opening.forsaken:
            ago = opening.forsaken_ago_ms / 1000 if opening.HasField("forsaken_ago_ms") else None
            await self._key.delete_forsaken(opening.forsaken, ago)
        record = await self._key.find(opening.session) if opening.session else None
        foreign = record is not None and not self._key.is_own(record, opening.session)
        if foreign or (opening.token and (record is None or record.create_revision != opening.token)):
            return self._lose("leadership has ended meanwhile")  # a foreign session is not kept alive from here
        try:
            self._session = await self._open_session(opening.session)
            if self._left():  # its new server has the key
                return False
            if record is not None and self._session.id == opening.session:  # else the key's session has just expired
                await self._key.take_over(record, self._session.id, self._left)
        except (LeaseNotFound, Conflict) as error:
            return self._lose(f"leadership has ended meanwhile: {error}")
        self._stream.send(
            CampaignResponse(
                opened=CampaignResponse.Opened(
                    session=self._session.id,
                    interval_ms=round(self._timing.interval * 1000),
                    validity_ms=round(self._timing.validity * 1000),
                    secret_fences=True,
                )
            )
        )
        self._key.stand(self._session.id)
        if self._key.held is not None:
            self._elected(self._key.held)
        return True

    async def _open_session(self, lease: int) -> LeaseSession:
        """Resumes or opens a session. Raises LeaseNotFound if the lease of a leader has expired; a waiting candidate gets a new
        lease instead."""
        if lease:
            try:
                return await LeaseSession.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                if self._opening.token:
                    raise
        return await LeaseSession.open(self._storage, self._timing, self._clock)

    async def _act(self) -> bool:
        """Takes the next step of the state machine; False at the end."""
        if self._key.held is not None:
            return self._check(self._key.held)
        record = self._candidates.record()
        if record is not None:
            self._observe(record)
            if self._key.is_own(record, self._session.id):
                return await self._adopt(record)
            await self._consider(record)
        elif self._candidates.may_stand(self._stream, self._session.id) and not self._candidates.rival(self._names):
            return await self._stand()
        return True

    def _check(self, held: HeldKey) -> bool:
        """Whether the candidate still leads with this server. Otherwise ends the session."""
        match self._candidates.key_state(held):
            case KeyState.OURS:
                return True
            case KeyState.LOST:
                self._key.ran_out()
                return self._lose("the election's key was deleted or has run out")
            case KeyState.MOVED:
                return self._lose("the session goes on with another API server")

    def _observe(self, record: KeyValue) -> None:
        if record.create_revision != self._observed:
            self._observed, self._observed_at = record.create_revision, self._clock.monotonic()
            observed = CampaignResponse.Observed(holder=election_of(record).holder, token=record.create_revision)
            self._stream.send(CampaignResponse(observed=observed))

    async def _adopt(self, record: KeyValue) -> bool:
        """Takes over a key that another server created for this session, or a create with an unknown outcome. The session sends
        its beats here, so the lease of the key would never expire. Waits first: if the candidate leads with another server, its
        stream to this one ends soon."""
        if self._clock.monotonic() - self._observed_at < self._timing.silence or not self._stream.recent:
            return True
        try:
            held = await self._key.take_over(record, self._session.id, self._left)
        except Conflict:
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:
            log.warning('election "%s": cannot take over the key: %s', self._candidates.name, error)
            return True
        self._elected(held)
        return True

    async def _consider(self, record: KeyValue) -> None:
        """Accepts a nomination of this candidate, or of any candidate if it is the next in the queue."""
        found = self._candidates.nomination()
        if found is None or found[1].session or found[1].token != record.create_revision or not self._stream.recent:
            return
        asked, nomination = found
        if nomination.holder == self._opening.holder or (not nomination.holder and self._candidates.is_next(self._stream)):
            await self._key.accept(asked, nomination, self._session.id)

    async def _stand(self) -> bool:
        """Tries to create the key."""
        try:
            held = await self._key.create(self._session.id)
        except Conflict as conflict:  # another candidate was faster: wait until the cache shows it
            await self._candidates.catch_up(conflict.current.mod_revision if conflict.current else 0, self._timing.interval)
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:  # also OutcomeUnknown: if the key appears later, it is adopted
            log.warning('election "%s": %s', self._candidates.name, error)
            return True
        self._elected(held)
        return True

    def _elected(self, held: HeldKey) -> None:
        self._candidates.won(self._stream, held)
        self._stream.send(CampaignResponse(elected=CampaignResponse.Elected(token=held.token)))

    async def _react(self) -> bool:
        """Waits for the next request or event and handles it; False at the end."""
        match await self._stream.receive():
            case StreamEvent.CHANGED:
                return True
            case StreamEvent.GONE:
                if self._key.held and self._stream.was_late:  # it may be moving to another server
                    await self._clock.sleep(self._timing.silence)
                await self._abandon(BROKE)
                return False
            case StreamEvent.EXPIRED:
                self._key.ran_out()
                return self._lose("the session has run out")
            case StreamEvent.SILENT:
                await self._abandon(SILENT)
                return self._lose(f"no heartbeat for {self._timing.silence:g} s")
            case StreamEvent.DRAINED:
                raise ShuttingDown
            case StreamEvent.RESTORED:
                await self._key.depose(RESTORED)  # it may have been won after the restore, on the basis of old state
                return self._lose(RESTORED)
            case CampaignRequest() as request if request.HasField("heartbeat"):
                self._session.beat(request.heartbeat.sequence)
                return True
            case CampaignRequest() as request if request.HasField("resign"):
                await self._key.depose(RESIGNED)
                self._key.leave()
                self._stream.send(CampaignResponse(resigned=CampaignResponse.Resigned()))
                return False
            case _:
                await self._key.depose(NONSENSE)
                return self._lose("expected a heartbeat or a resignation")

    def _left(self) -> bool:
        return self._stream.gone

    def _acknowledge(self, sequence: int) -> None:
        self._stream.send(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def _expire(self) -> None:
        self._stream.post(StreamEvent.EXPIRED)

    async def _abandon(self, why: str) -> None:
        """Handles a candidate that has gone. If its beats were not answered because of etcd, it may be moving to another
        server: then the key is left to its lease."""
        if self._key.held and self._session.overdue:
            log.warning('election "%s": %s: %s, while the store is away', self._candidates.name, self._opening.holder, why)
        else:
            await self._key.depose(why)
            self._key.leave()

    def _lose(self, reason: str) -> bool:
        """Ends the session; always False, the end."""
        self._stream.send(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))
        return False
