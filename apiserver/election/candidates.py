"""One election: its candidates on this server (Candidates), one candidate (Candidate), and the key in etcd (LeaderKey).

Candidates of one server are ordered: the one that has waited longest campaigns first, if its last heartbeat is recent. During a
transfer, the nominated candidate is first, and the others wait for up to NOMINEE_FIRST seconds. The order is best effort, and
only the key determines the leader. Candidates of several servers race in etcd; the losers continue to wait.

Candidate:

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, disconnected, silent: delete the key if its mod_revision is unchanged
      |  |         |                        |  the same while etcd is unavailable: let the lease of the key expire
      |  |         |                        |  the key is deleted or belongs to another candidate: send Lost
      |  +-- resumed with session (and token) from another server: put the key again with compare-and-swap
      |  |         '-- the key already belongs to this session: the same
      +-- refused                           +  the server stops: keep the key; the candidate uses another server

LeaderKey:

    none --create: if no key exists--> held --depose: delete, if the mod_revision is that of our last put--> none
      |                                  ^
      '--take_over: put again, if the mod_revision is the one that was read

Guarantees: there is at most one leader, and no term is ended by a stale request:

- The key is created only if it does not exist, so a term ends before the next one begins. The create_revision is the fencing
  token. It is greater than all previous tokens.
- Every put attaches the key to the lease of the session. etcd refuses the put if the lease has expired. So a key of a silent
  session is deleted after at most the TTL of the lease.
- When a session moves to another server, this server puts the same value again: the token stays the same, and the mod_revision
  changes. A server deletes the key only at the mod_revision of its own last put (for a forsaken term: at the one that was
  read). A mod_revision is never reused, so a late or repeated delete has no effect on another term.
- `held` is set only after etcd has confirmed the write.

Not guaranteed: a create with an unknown outcome can still succeed later. The server of the session then takes over the key. If
etcd is unavailable, a key is not deleted, and its lease expires instead.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, TypeGuard

from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Election, Nomination, Term
from pinnace.api.elections_pb2 import Candidate as CandidateRecord
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.resources import ELECTIONS_PREFIX, election_key, nomination_key
from pinnace.api.scalars import to_micro_time
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheError, ShuttingDown
from pinnace.apiserver.election.history import (
    BROKE,
    NONSENSE,
    RAN_OUT,
    RESIGNED,
    RESTORED,
    SILENT,
    STOOD_DOWN,
    Stands,
    TermLog,
    ended,
)
from pinnace.apiserver.registry.fencing import hash_secret, is_holder
from pinnace.apiserver.services.sessions import LeaseSession, SessionStream, StreamEvent, Timing, election_of, read
from pinnace.apiserver.storage.committer import Committer, Conflict
from pinnace.apiserver.storage.interface import Change, KeyValue, LeaseNotFound, Storage, StorageError, Write
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import race

Member = SessionStream[Any, Any]

NOMINEE_FIRST = 1.0
"""Seconds after the deletion of the key for which other candidates wait for the nominee."""
UNSEEN = 1.0
"""Maximum seconds for which a write of this server overrides the cache, until the cache contains it."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """The create_revision (the token) and mod_revision of a key that a candidate of this server holds."""

    token: int
    mod_revision: int


class KeyState(Enum):
    OURS = auto()
    LOST = auto()
    """The key was deleted, or another candidate has created it."""
    MOVED = auto()
    """Another server has put the key again, because the session has moved to this server."""


def key_state(held: HeldKey, record: KeyValue | None, cache_revision: int) -> KeyState:
    """Return the state of a held key by the cache. The result is OURS while the cache does not contain this server's last
    write.
    """
    if cache_revision < held.mod_revision:
        return KeyState.OURS
    if record is None or record.create_revision != held.token:
        return KeyState.LOST
    return KeyState.OURS if record.mod_revision == held.mod_revision else KeyState.MOVED


class Candidates:
    """The candidates of one election on this server."""

    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self.name = name
        self.key = election_key(name)
        self.nomination_key = nomination_key(name)
        self._cacher = cacher
        self._clock = clock
        self._vacant_since = float("-inf")
        self._deleted = 0
        """The revision of this server's last deletion of the key."""
        self._members: list[Member] = []
        self._queue: list[Member] = []
        self._latest = term_of(record) if (record := self.record()) else None
        self._written = 0
        """The revision of this server's last put of the key. Until the cache has reached it, the cache has no current
        leader."""
        self._written_at = float("-inf")

    def record(self) -> KeyValue | None:
        """Return the key in the cache; None if it does not exist or this server has just deleted it."""
        if self._cacher.revision < self._deleted and self._clock.monotonic() - self._vacant_since < UNSEEN:
            return None
        return self._cacher.raw(self.key)

    async def catch_up(self, revision: int, timeout: float) -> None:
        """Wait until the cache has reached `revision`, for at most `timeout` seconds."""
        with suppress(CacheError):
            await self._cacher.wait_for(revision, timeout)

    def key_state(self, held: HeldKey) -> KeyState:
        return key_state(held, self.record(), self._cacher.revision)

    def join(self, member: Member) -> None:
        """Add a candidate to the end of the queue. Its stream receives the changes of the election."""
        self._members.append(member)
        self._queue.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        self.remove_from_queue(member)

    def won(self, member: Member, held: HeldKey) -> None:
        """Record that a candidate leads after a put of this server."""
        self._written, self._written_at = held.mod_revision, self._clock.monotonic()
        self.remove_from_queue(member)

    def vacated(self, revision: int) -> None:
        """Record that this server deleted the key at `revision`. The next candidate then does not wait for the cache."""
        self._deleted = revision
        self._vacant_since = self._clock.monotonic()
        self._tell_all()

    def remove_from_queue(self, member: Member) -> None:
        """Remove a candidate that leads or has left, and notify the next one."""
        if member in self._queue:
            self._queue.remove(member)
            for following in self._queue[:1]:
                following.post(StreamEvent.CHANGED)

    def is_next(self, member: Member) -> bool:
        """Report whether the member is the first waiting candidate with a recent heartbeat."""
        return next((each for each in self._queue if each.recent), None) is member

    def nomination(self) -> tuple[KeyValue, Nomination] | None:
        """Return the nomination of the current transfer; None if there is none or it cannot be decoded."""
        record = self._cacher.raw(self.nomination_key)
        nomination = read(Nomination, record.value) if record else None
        return (record, nomination) if record and nomination else None

    def may_stand(self, member: Member, session: int) -> bool:
        """Report whether a candidate may try to create the key now. The cache must not contain a key."""
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
        """Return another election, by the cache, whose leader binds pods of one of these schedulers. Two such leaders would
        schedule the same pods independently. This check detects wrong configurations. It is not a lock."""
        names = set(scheduler_names)
        elections = (election_of(record) for record in self._cacher.raw_items(ELECTIONS_PREFIX) if record.key != self.key)
        return next((each for each in elections if not names.isdisjoint(each.scheduler_names)), None) if names else None

    def announce(self, change: Change) -> None:
        """Apply a change of the key or the nomination, and notify all candidates."""
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
        """Return the last ended term that this server observed, if its token is lower. Its reason is presumed."""
        latest = self._latest
        return latest if latest is not None and latest.token < token and latest.HasField("ended") else None

    @property
    def is_empty(self) -> bool:
        return not self._members


def term_of(record: KeyValue) -> Term:
    """Return the term of the key, without an end."""
    election = election_of(record)
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)


RETRY = 0.1
"""Seconds between two attempts to delete the key while etcd is unavailable."""


class CandidateIdentity(NamedTuple):
    """The identity of a candidate. A key belongs to the candidate only if it has the session's lease and this identity. The
    lease ID alone is not sufficient, because it is not secret."""

    holder: str
    user: str
    secret: bytes
    scheduler_names: tuple[str, ...] = ()
    """The schedulers whose pods the candidate binds."""
    configuration: str = ""
    """The digest of the candidate's configuration, for clients that read the election."""


class LeaderKey:
    """The election's key for one candidate. `held` is the key that this server has put; None before that and after `depose`.
    etcd can have deleted the key since then: see `Candidates.key_state`."""

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
        """`ttl` is the TTL of a session's lease in seconds."""
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
        """Record the candidate and its session."""
        self._candidate = CandidateRecord(
            election=self._candidates.name, holder=self._holder, since=self._now(), session=session
        )
        self._terms.note(Stands(self._candidate))

    def leave(self) -> None:
        """Record that the candidate has left."""
        if self._candidate.session:
            self._terms.note(Stands(self._candidate, gone=True))

    async def find(self, session: int) -> KeyValue | None:
        """Read the election's key from etcd. Return None unless it is attached to this session's lease. Raises StorageError."""
        record = await self._storage.get(self._candidates.key)
        return record if record is not None and record.lease == session else None

    def is_own(self, record: KeyValue | None, session: int) -> TypeGuard[KeyValue]:
        if record is None or record.lease != session:
            return False
        election, identity = read(Election, record.value) or Election(), self._identity
        return election.holder == identity.holder and is_holder(election, identity.user, identity.secret)

    async def create(self, session: int) -> HeldKey:
        """Create the key, so that the candidate leads. Raises Conflict if another candidate leads, LeaseNotFound if the session
        has expired, and other StorageErrors. After OutcomeUnknown the key may exist, or be created later."""
        holder, user, secret, scheduler_names, configuration = self._identity
        record = Election(
            name=self._candidates.name, holder=holder, session=session, user=user, secret_hash=hash_secret(secret)
        )
        record.scheduler_names.extend(scheduler_names)
        record.configuration = configuration
        record.since.CopyFrom(self._now())
        write = Write(self._candidates.key, record.SerializeToString(), expected=0, lease=session)
        revision = await self._committer.commit(write)
        term = Term(election=self._candidates.name, holder=self._holder, token=revision, began=record.since)
        return self._hold(HeldKey(revision, revision), term)

    async def take_over(self, record: KeyValue, session: int, left: Callable[[], bool]) -> HeldKey:
        """Put the key of this session again. The previous server then no longer deletes it. `left` reports whether the
        candidate has left this server. Raises Conflict if the key does not exist or belongs to another candidate, or if the
        candidate has left and another server has put the key; LeaseNotFound if the session has expired; and other
        StorageErrors."""
        token = record.create_revision
        while True:
            write = Write(record.key, record.value, expected=record.mod_revision, lease=session)
            try:
                revision = await self._committer.commit(write)
            except Conflict as conflict:  # possibly a late write of the previous server
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
        """Accept the nomination for this candidate. Conflicts and errors are ignored."""
        nomination.holder, nomination.session = self._holder, session
        write = Write(asked.key, nomination.SerializeToString(), expected=asked.mod_revision)
        with suppress(Conflict, StorageError):
            await self._committer.commit(write)

    async def depose(self, why: str, silent: float | None = None) -> None:
        """Delete the key if it is held and its mod_revision is unchanged. While etcd is unavailable, retry for up to `ttl`
        seconds. `silent`: the seconds since the last message of the leader; None if it leads until now."""
        held, self.held = self.held, None
        if held is not None:
            log.info('election "%s": %s with token %d: %s', self._candidates.name, self._holder, held.token, why)
            last_heartbeat = to_micro_time(self._clock.time() - silent) if silent is not None else None
            await self._delete(held, ended(self._term, why, self._now(), last_heartbeat=last_heartbeat))

    async def delete_forsaken(self, session: int, ago: float | None) -> None:
        """Delete the key of a term that the candidate ended by its clock, so that other candidates do not wait for the lease to
        expire. `ago` is the number of seconds since the end of the term; None if unknown. Retries as `depose`. Raises
        StorageError if the key cannot be read."""
        at = to_micro_time(max(self._clock.time() - max(ago or 0.0, 0.0), 0.0))
        record = await self.find(session)
        if self.is_own(record, session):
            over = ended(term_of(record), STOOD_DOWN, at, presumed=ago is None)
            await self._delete(HeldKey(record.create_revision, record.mod_revision), over)

    async def _delete(self, held: HeldKey, over: Term) -> None:
        """Delete the key. Retry until the lease must have expired. `over` is the ended term for the election history."""
        deadline = self._clock.monotonic() + self._ttl
        while self._clock.monotonic() < deadline:
            try:
                revision = await self._committer.commit(Write(self._candidates.key, None, expected=held.mod_revision))
            except Conflict:
                return
            except StorageError as error:
                log.warning('election "%s": cannot delete the key: %s', self._candidates.name, error)
                await self._clock.sleep(RETRY)
            else:
                self._candidates.vacated(revision)
                self._terms.note(over)
                return

    def ran_out(self) -> None:
        """Record the end of a held term. The reason is presumed to be the expiry of its lease."""
        if self.held is not None:
            self._terms.note(ended(self._term, RAN_OUT, self._now(), presumed=True))

    def _now(self) -> MicroTime:
        return to_micro_time(self._clock.time())


log = logging.getLogger(__name__)


class Candidate:
    """One campaign of a candidate on a stream."""

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
        """Run until the stream ends. Raises StorageError if the session cannot be opened, and ShuttingDown."""
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
        """Open or resume the session, and take over the candidate's key if it exists. Return False if the campaign ends."""
        opening = self._opening
        if opening.forsaken:
            ago = opening.forsaken_ago_ms / 1000 if opening.HasField("forsaken_ago_ms") else None
            await self._key.delete_forsaken(opening.forsaken, ago)
        record = await self._key.find(opening.session) if opening.session else None
        foreign = record is not None and not self._key.is_own(record, opening.session)
        if foreign or (opening.token and (record is None or record.create_revision != opening.token)):
            return self._lose("the term has ended")  # do not renew the lease of another candidate
        try:
            self._session = await self._open_session(opening.session)
            if self._left():  # another server takes over the key
                return False
            if record is not None and self._session.id == opening.session:  # otherwise, the old session has just expired
                await self._key.take_over(record, self._session.id, self._left)
        except (LeaseNotFound, Conflict) as error:
            return self._lose(f"the term has ended: {error}")
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
        """Resume or open a session. If its lease has expired, a waiting candidate gets a new lease. Raises LeaseNotFound if the
        lease of a leader has expired."""
        if lease:
            try:
                return await LeaseSession.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                if self._opening.token:
                    raise
        return await LeaseSession.open(self._storage, self._timing, self._clock)

    async def _act(self) -> bool:
        """Execute the next step of the state machine. Return False at the end of the campaign."""
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
        """Report whether the candidate still leads through this server. Otherwise, send Lost."""
        match self._candidates.key_state(held):
            case KeyState.OURS:
                return True
            case KeyState.LOST:
                self._key.ran_out()
                return self._lose("the election's key was deleted or has expired")
            case KeyState.MOVED:
                return self._lose("the session has moved to another API server")

    def _observe(self, record: KeyValue) -> None:
        if record.create_revision != self._observed:
            self._observed, self._observed_at = record.create_revision, self._clock.monotonic()
            observed = CampaignResponse.Observed(holder=election_of(record).holder, token=record.create_revision)
            self._stream.send(CampaignResponse(observed=observed))

    async def _adopt(self, record: KeyValue) -> bool:
        """Take over a key of this session that another server created, or that a create with an unknown outcome created. This
        server renews the lease, so the key would never expire. Before that, wait for Timing.silence: if the candidate leads
        through another server, its stream to this server ends within this time."""
        if self._clock.monotonic() - self._observed_at < self._timing.silence or not self._stream.recent:
            return True
        try:
            held = await self._key.take_over(record, self._session.id, self._left)
        except Conflict:
            return True
        except LeaseNotFound:
            return self._lose("the session has expired")
        except StorageError as error:
            log.warning('election "%s": cannot take over the key: %s', self._candidates.name, error)
            return True
        self._elected(held)
        return True

    async def _consider(self, record: KeyValue) -> None:
        """Accept a nomination of this candidate, or of any candidate if this one is next in the queue."""
        found = self._candidates.nomination()
        if found is None or found[1].session or found[1].token != record.create_revision or not self._stream.recent:
            return
        asked, nomination = found
        if nomination.holder == self._opening.holder or (not nomination.holder and self._candidates.is_next(self._stream)):
            await self._key.accept(asked, nomination, self._session.id)

    async def _stand(self) -> bool:
        """Try to create the key."""
        try:
            held = await self._key.create(self._session.id)
        except Conflict as conflict:  # another candidate was faster: wait until the cache contains its key
            await self._candidates.catch_up(conflict.current.mod_revision if conflict.current else 0, self._timing.interval)
            return True
        except LeaseNotFound:
            return self._lose("the session has expired")
        except StorageError as error:  # includes OutcomeUnknown: if the key is created later, `_adopt` takes it over
            log.warning('election "%s": %s', self._candidates.name, error)
            return True
        self._elected(held)
        return True

    def _elected(self, held: HeldKey) -> None:
        self._candidates.won(self._stream, held)
        self._stream.send(CampaignResponse(elected=CampaignResponse.Elected(token=held.token)))

    async def _react(self) -> bool:
        """Wait for the next request or event and handle it. Return False at the end of the campaign."""
        match await self._stream.receive():
            case StreamEvent.CHANGED:
                return True
            case StreamEvent.GONE:
                if self._key.held and self._stream.was_late:  # the candidate may be moving to another server
                    await self._clock.sleep(self._timing.silence)
                await self._abandon(BROKE)
                return False
            case StreamEvent.EXPIRED:
                self._key.ran_out()
                return self._lose("the session has expired")
            case StreamEvent.SILENT:
                await self._abandon(SILENT)
                return self._lose(f"no heartbeat for {self._timing.silence:g} s")
            case StreamEvent.DRAINED:
                raise ShuttingDown
            case StreamEvent.RESTORED:
                await self._key.depose(RESTORED)  # the term may have begun after the restore, with state from before
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
                return self._lose("expected heartbeat or resign")

    def _left(self) -> bool:
        return self._stream.gone

    def _acknowledge(self, sequence: int) -> None:
        self._stream.send(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def _expire(self) -> None:
        self._stream.post(StreamEvent.EXPIRED)

    async def _abandon(self, why: str) -> None:
        """Handle a candidate that has disconnected or is silent. If etcd delays the responses to its heartbeats, it may be
        moving to another server. Then the key is not deleted, and its lease expires."""
        if self._key.held and self._session.overdue:
            log.warning('election "%s": %s: %s, while etcd is unavailable', self._candidates.name, self._opening.holder, why)
        else:
            await self._key.depose(why, self._clock.monotonic() - self._stream.last_message)
            self._key.leave()

    def _lose(self, reason: str) -> bool:
        """Send Lost, and return False for the end of the campaign."""
        self._stream.send(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))
        return False
