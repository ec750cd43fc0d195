"""One election: its candidates on this server (Contest), one candidate (Campaign), and the key in etcd (Leadership).

Contest: the candidate that has waited longest goes first, if it has sent a beat just now. While a transfer is under way, the
nominated candidate goes first, and the others wait for it up to NOMINEE_FIRST seconds. This order is a courtesy; only the key
decides which candidate leads. Candidates of several servers race in etcd, and the losers go on waiting.

Campaign:

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, broken off, silent: delete the key, if it is still at our mod_revision
      |  |         |                        |  likewise, but etcd has been away: leave the key to its lease
      |  |         |                        |  the key is gone or another's: report the loss to the candidate
      |  +-- resumed with session (and token) from another server: put the key again, under compare-and-swap
      |  |         '-- the key turns out to be this session's: likewise
      +-- refused                           +  the server stops: leave the key alone, send the candidate on

Leadership:

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
from apiserver.cacher.errors import CacheError, ShuttingDown
from apiserver.election.history import BROKE, NONSENSE, RAN_OUT, RESIGNED, RESTORED, SILENT, STOOD_DOWN, Stands, TermLog, ended
from apiserver.registry.fencing import hashed, is_holder
from apiserver.services.sessions import Conversation, Session, Sign, Timing, election_of, read
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import Change, KeyValue, LeaseNotFound, Storage, StorageError, Write
from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Candidate, Election, Nomination, Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.resources import ELECTIONS_PREFIX, election_key, nomination_key
from pinnace.api.scalars import to_micro_time
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import race

Member = Conversation[Any, Any]

NOMINEE_FIRST = 1.0
"""Seconds after the key is gone for which a nominee has the right of way."""
UNSEEN = 1.0
"""Seconds for which a write of this server counts before the cache shows it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A leadership that this server knows to be a candidate's: the key's create_revision and mod_revision."""

    token: int
    mod_revision: int


class Verdict(Enum):
    OURS = auto()
    LOST = auto()
    """The key is gone, or another candidate's."""
    MOVED = auto()
    """The key was put again by another server: the candidate has gone on there."""


def judge(held: Held, record: KeyValue | None, cache_revision: int) -> Verdict:
    """What the cached key says about a leadership. A cache that has not seen the key's last write from here says nothing."""
    if cache_revision < held.mod_revision:
        return Verdict.OURS
    if record is None or record.create_revision != held.token:
        return Verdict.LOST
    return Verdict.OURS if record.mod_revision == held.mod_revision else Verdict.MOVED


class Contest:
    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self.name = name
        self.key = election_key(name)
        self.nomination_key = nomination_key(name)
        self._cacher = cacher
        self._clock = clock
        self._vacant_since = float("-inf")
        self._deleted = 0
        """The revision of the key's last deletion from here."""
        self._members: list[Member] = []
        self._line: list[Member] = []
        self._latest = term_of(record) if (record := self.record()) else None
        self._written = 0
        """The revision of the key's last put from here: until the cache has it, somebody leads of whom it knows nothing."""
        self._written_at = float("-inf")

    def record(self) -> KeyValue | None:
        """The key, as the cache has it, unless it has been deleted from here just now."""
        if self._cacher.revision < self._deleted and self._clock.monotonic() - self._vacant_since < UNSEEN:
            return None
        return self._cacher.raw(self.key)

    async def catch_up(self, revision: int, timeout: float) -> None:
        """Waits until the cache has seen `revision`, `timeout` seconds at most."""
        with suppress(CacheError):
            await self._cacher.wait_for(revision, timeout)

    def verdict(self, held: Held) -> Verdict:
        return judge(held, self.record(), self._cacher.revision)

    def join(self, member: Member) -> None:
        """Its news concern `member` from now on; it stands at the end of the line."""
        self._members.append(member)
        self._line.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        self.step_out(member)

    def won(self, member: Member, held: Held) -> None:
        """It leads, by a put from here."""
        self._written, self._written_at = held.mod_revision, self._clock.monotonic()
        self.step_out(member)

    def vacated(self, revision: int) -> None:
        """The key was deleted from here, at this revision: the next one need not wait until the cache shows it."""
        self._deleted = revision
        self._vacant_since = self._clock.monotonic()
        self._tell_all()

    def step_out(self, member: Member) -> None:
        """It leads, or has gone: it is the next one's turn."""
        if member in self._line:
            self._line.remove(member)
            for following in self._line[:1]:
                following.post(Sign.NEWS)

    def turn_of(self, member: Member) -> bool:
        """Is it the first of those that wait and are well?"""
        return next((each for each in self._line if each.recent), None) is member

    def nomination(self) -> tuple[KeyValue, Nomination] | None:
        """The transfer that is under way. One whose record cannot be read is none."""
        record = self._cacher.raw(self.nomination_key)
        nomination = read(Nomination, record.value) if record else None
        return (record, nomination) if record and nomination else None

    def may_stand(self, member: Member, session: int) -> bool:
        """Nobody leads, as far as the cache knows: may this candidate stand now?"""
        if self._cacher.revision < self._written and self._clock.monotonic() - self._written_at < UNSEEN:
            return False
        nomination = self.nomination()
        if nomination is not None and (nominee := nomination[1].session):
            if nominee == session:
                return True
            if self._clock.monotonic() - self._vacant_since < NOMINEE_FIRST:
                return False
        return self.turn_of(member)

    def rival(self, scheduler_names: Sequence[str]) -> Election | None:
        """Another election whose leader binds the pods of one of these schedulers, as far as the cache knows. Two of them would
        place pods without knowing of each other. This finds a wrong configuration; it is no lock."""
        names = set(scheduler_names)
        elections = (election_of(record) for record in self._cacher.raw_items(ELECTIONS_PREFIX) if record.key != self.key)
        return next((each for each in elections if not names.isdisjoint(each.scheduler_names)), None) if names else None

    def announce(self, change: Change) -> None:
        """The key or the nomination has changed."""
        if change.key == self.key:
            self._follow(change)
        self._tell_all()

    def _tell_all(self) -> None:
        for member in self._members:
            member.post(Sign.NEWS)

    def _follow(self, change: Change) -> None:
        if change.value is not None:
            self._latest = term_of(KeyValue(change.key, change.value, change.create_revision, change.mod_revision, 1))
            return
        self._vacant_since = self._clock.monotonic()
        if self._latest is not None:
            self._latest.ended.CopyFrom(to_micro_time(self._clock.time()))
            self._latest.reason, self._latest.presumed = RAN_OUT, True

    def before(self, token: int) -> Term | None:
        """The latest earlier term that was seen to end from here; why it did is presumed. For the record."""
        latest = self._latest
        return latest if latest is not None and latest.token < token and latest.HasField("ended") else None

    @property
    def deserted(self) -> bool:
        return not self._members


def term_of(record: KeyValue) -> Term:
    """The term that the key stands for, not ended."""
    election = election_of(record)
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)


RETRY = 0.1
"""Seconds between two attempts to delete the key of a dead leader when etcd does not answer."""


class Identity(NamedTuple):
    """Who campaigns. A key is the candidate's own only if it has the session's lease and this identity: another candidate that
    learns the lease's number gains nothing."""

    holder: str
    user: str
    secret: bytes
    scheduler_names: tuple[str, ...] = ()
    """Of the pods that it may bind."""
    configuration: str = ""
    """Digest of its configuration, for readers of the election."""


class Leadership:
    """`held` is what this server knows the candidate to hold; None: nothing yet, or it was deposed from here. That the key has
    gone since, only etcd knows: see `Contest.verdict`."""

    def __init__(
        self,
        contest: Contest,
        identity: Identity,
        storage: Storage,
        committer: Committer,
        terms: TermLog,
        ttl: float,
        clock: Clock,
    ) -> None:
        """`ttl`: seconds that the lease of a session lives without a beat."""
        self.held: Held | None = None
        self._contest = contest
        self._identity = identity
        self._holder = identity.holder
        self._storage = storage
        self._committer = committer
        self._terms = terms
        self._ttl = ttl
        self._clock = clock
        self._term: Term
        self._candidate = Candidate()

    def stand(self, session: int) -> None:
        """Notes that the candidate stands, with this session."""
        self._candidate = Candidate(election=self._contest.name, holder=self._holder, since=self._now(), session=session)
        self._terms.note(Stands(self._candidate))

    def leave(self) -> None:
        """Notes that the candidate stands no more."""
        if self._candidate.session:
            self._terms.note(Stands(self._candidate, gone=True))

    async def find(self, session: int) -> KeyValue | None:
        """The election's key as etcd has it, if it is attached to this session's lease. Raises StorageError."""
        record = await self._storage.get(self._contest.key)
        return record if record is not None and record.lease == session else None

    def is_own(self, record: KeyValue | None, session: int) -> TypeGuard[KeyValue]:
        if record is None or record.lease != session:
            return False
        election, identity = read(Election, record.value) or Election(), self._identity
        return election.holder == identity.holder and is_holder(election, identity.user, identity.secret)

    async def create(self, session: int) -> Held:
        """The candidate leads from now on. Raises Conflict when somebody does already, LeaseNotFound when the session has run
        out, and other StorageErrors; after OutcomeUnknown the key may be there, or appear."""
        holder, user, secret, scheduler_names, configuration = self._identity
        record = Election(name=self._contest.name, holder=holder, session=session, user=user, secret_hash=hashed(secret))
        record.scheduler_names.extend(scheduler_names)
        record.configuration = configuration
        record.since.CopyFrom(self._now())
        write = Write(self._contest.key, record.SerializeToString(), expected=0, lease=session)
        revision = await self._committer.commit(write)
        term = Term(election=self._contest.name, holder=self._holder, token=revision, began=record.since)
        return self._hold(Held(revision, revision), term)

    async def take_over(self, record: KeyValue, session: int, left: Callable[[], bool]) -> Held:
        """Puts the key of this session again, so that the server where it was finds it changed and lets it be. `left`: has the
        candidate gone meanwhile? Raises Conflict when the key is gone or another's, or another server has put it and the
        candidate is with that one now; LeaseNotFound when the session has run out, and other StorageErrors."""
        token = record.create_revision
        while True:
            write = Write(record.key, record.value, expected=record.mod_revision, lease=session)
            try:
                revision = await self._committer.commit(write)
            except Conflict as conflict:  # perhaps by a server that the candidate has tried, and left, before this one
                current = conflict.current
                if left() or not self.is_own(current, session) or current.create_revision != token:
                    raise
                record = current
            else:
                return self._hold(Held(token, revision), term_of(record))

    def _hold(self, held: Held, term: Term) -> Held:
        log.info('election "%s": %s leads with token %d', self._contest.name, self._holder, held.token)
        self.held, self._term = held, term
        if before := self._contest.before(held.token):
            self._terms.note(before)
        self._terms.note(term)
        return held

    async def accept(self, asked: KeyValue, nomination: Nomination, session: int) -> None:
        """Accepts the nomination for this candidate, unless another was faster or it is too late: that does no harm."""
        nomination.holder, nomination.session = self._holder, session
        write = Write(asked.key, nomination.SerializeToString(), expected=asked.mod_revision)
        with suppress(Conflict, StorageError):
            await self._committer.commit(write)

    async def depose(self, why: str) -> None:
        """Deletes the key if it is held, unless it has moved on. Takes up to `ttl` seconds while etcd does not answer."""
        held, self.held = self.held, None
        if held is not None:
            log.info('election "%s": %s with token %d: %s', self._contest.name, self._holder, held.token, why)
            await self._delete(held, ended(self._term, why, self._now()))

    async def delete_forsaken(self, session: int, ago: float | None) -> None:
        """Deletes the key of a term that the candidate has stood down from by its own clock: nobody need wait for the lease.
        `ago`: seconds since then; None: not known. Takes as long as `depose`. Raises StorageError when the key is not read."""
        at = to_micro_time(max(self._clock.time() - max(ago or 0.0, 0.0), 0.0))
        record = await self.find(session)
        if self.is_own(record, session):
            over = ended(term_of(record), STOOD_DOWN, at, presumed=ago is None)
            await self._delete(Held(record.create_revision, record.mod_revision), over)

    async def _delete(self, held: Held, over: Term) -> None:
        """Gives up when the lease must have run out anyway. `over`: what is noted of the term then."""
        deadline = self._clock.monotonic() + self._ttl
        while self._clock.monotonic() < deadline:
            try:
                revision = await self._committer.commit(Write(self._contest.key, None, expected=held.mod_revision))
            except Conflict:
                return
            except StorageError as error:
                log.warning('election "%s": cannot delete the key yet: %s', self._contest.name, error)
                await self._clock.sleep(RETRY)
            else:
                self._contest.vacated(revision)
                self._terms.note(over)
                return

    def ran_out(self) -> None:
        """Notes that the term is over if one was held: the key has gone without us, as may be presumed with its lease."""
        if self.held is not None:
            self._terms.note(ended(self._term, RAN_OUT, self._now(), presumed=True))

    def _now(self) -> MicroTime:
        return to_micro_time(self._clock.time())


log = logging.getLogger(__name__)


class Campaign:
    def __init__(
        self,
        conversation: Conversation[CampaignRequest, CampaignResponse],
        contest: Contest,
        opening: CampaignRequest.Open,
        leadership: Leadership,
        storage: Storage,
        timing: Timing,
        clock: Clock,
    ) -> None:
        self._conversation = conversation
        self._contest = contest
        self._opening = opening
        self._names = opening.scheduler_names
        self._leadership = leadership
        self._storage = storage
        self._timing = timing
        self._clock = clock
        self._observed = 0
        self._observed_at = 0.0
        self._session: Session

    async def run(self) -> None:
        """To the end of the conversation. Raises StorageError when the session cannot be opened, ShuttingDown."""
        self._contest.join(self._conversation)
        try:
            if await self._open():
                await race(self._session.keep(self._acknowledge, self._expire), self._converse())
        finally:
            self._contest.leave(self._conversation)

    async def _converse(self) -> None:
        while await self._act() and await self._react():
            pass

    async def _open(self) -> bool:
        """Opens or resumes the session, and takes over the key if the candidate holds it."""
        opening = self._opening
        if opening.forsaken:
            ago = opening.forsaken_ago_ms / 1000 if opening.HasField("forsaken_ago_ms") else None
            await self._leadership.delete_forsaken(opening.forsaken, ago)
        record = await self._leadership.find(opening.session) if opening.session else None
        foreign = record is not None and not self._leadership.is_own(record, opening.session)
        if foreign or (opening.token and (record is None or record.create_revision != opening.token)):
            return self._lose("leadership has ended meanwhile")  # a foreign session is not kept alive from here
        try:
            self._session = await self._open_session(opening.session)
            if self._left():  # it has not waited: whoever it is with now has the key
                return False
            if record is not None and self._session.id == opening.session:  # not the key of a session that has run out just now
                await self._leadership.take_over(record, self._session.id, self._left)
        except (LeaseNotFound, Conflict) as error:
            return self._lose(f"leadership has ended meanwhile: {error}")
        self._conversation.say(
            CampaignResponse(
                opened=CampaignResponse.Opened(
                    session=self._session.id,
                    interval_ms=round(self._timing.interval * 1000),
                    validity_ms=round(self._timing.validity * 1000),
                    secret_fences=True,
                )
            )
        )
        self._leadership.stand(self._session.id)
        if self._leadership.held is not None:
            self._elected(self._leadership.held)
        return True

    async def _open_session(self, lease: int) -> Session:
        """Raises LeaseNotFound when the lease of a leader has run out; a candidate that waits simply gets a new one."""
        if lease:
            try:
                return await Session.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                if self._opening.token:
                    raise
        return await Session.open(self._storage, self._timing, self._clock)

    async def _act(self) -> bool:
        """What can be done without waiting for anybody; False at the end."""
        if self._leadership.held is not None:
            return self._check(self._leadership.held)
        record = self._contest.record()
        if record is not None:
            self._observe(record)
            if self._leadership.is_own(record, self._session.id):
                return await self._adopt(record)
            await self._consider(record)
        elif self._contest.may_stand(self._conversation, self._session.id) and not self._contest.rival(self._names):
            return await self._stand()
        return True

    def _check(self, held: Held) -> bool:
        """Does the candidate still lead, and from here?"""
        match self._contest.verdict(held):
            case Verdict.OURS:
                return True
            case Verdict.LOST:
                self._leadership.ran_out()
                return self._lose("the election's key was deleted or has run out")
            case Verdict.MOVED:
                return self._lose("the session goes on with another API server")

    def _observe(self, record: KeyValue) -> None:
        if record.create_revision != self._observed:
            self._observed, self._observed_at = record.create_revision, self._clock.monotonic()
            observed = CampaignResponse.Observed(holder=election_of(record).holder, token=record.create_revision)
            self._conversation.say(CampaignResponse(observed=observed))

    async def _adopt(self, record: KeyValue) -> bool:
        """Takes over a key that was created for this session, but not from here: by a server that has died, or by a create that
        came late. Its session beats here, so its lease would never run out. Not at once: if the candidate leads with
        another server, we shall hear soon that it has left us."""
        if self._clock.monotonic() - self._observed_at < self._timing.silence or not self._conversation.recent:
            return True
        try:
            held = await self._leadership.take_over(record, self._session.id, self._left)
        except Conflict:
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:
            log.warning('election "%s": cannot take over the key: %s', self._contest.name, error)
            return True
        self._elected(held)
        return True

    async def _consider(self, record: KeyValue) -> None:
        """Accepts a nomination that asks for this candidate, or for anybody and it is the first in line."""
        found = self._contest.nomination()
        if found is None or found[1].session or found[1].token != record.create_revision or not self._conversation.recent:
            return
        asked, nomination = found
        if nomination.holder == self._opening.holder or (not nomination.holder and self._contest.turn_of(self._conversation)):
            await self._leadership.accept(asked, nomination, self._session.id)

    async def _stand(self) -> bool:
        """Tries to create the key."""
        try:
            held = await self._leadership.create(self._session.id)
        except Conflict as conflict:  # somebody was faster: wait until the cache shows who
            await self._contest.catch_up(conflict.current.mod_revision if conflict.current else 0, self._timing.interval)
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:  # also when its outcome is unknown: if it comes late, the key will be seen, and adopted
            log.warning('election "%s": %s', self._contest.name, error)
            return True
        self._elected(held)
        return True

    def _elected(self, held: Held) -> None:
        self._contest.won(self._conversation, held)
        self._conversation.say(CampaignResponse(elected=CampaignResponse.Elected(token=held.token)))

    async def _react(self) -> bool:
        """Waits for what comes next; False at the end."""
        match await self._conversation.hear():
            case Sign.NEWS:
                return True
            case Sign.GONE:
                if self._leadership.held and self._conversation.was_late:  # it may be on its way to another server, rightly
                    await self._clock.sleep(self._timing.silence)
                await self._abandon(BROKE)
                return False
            case Sign.EXPIRED:
                self._leadership.ran_out()
                return self._lose("the session has run out")
            case Sign.SILENT:
                await self._abandon(SILENT)
                return self._lose(f"no heartbeat for {self._timing.silence:g} s")
            case Sign.DRAINED:
                raise ShuttingDown
            case Sign.RESTORED:
                await self._leadership.depose(RESTORED)  # it may have been won since, from what is known here of before
                return self._lose(RESTORED)
            case CampaignRequest() as request if request.HasField("heartbeat"):
                self._session.beat(request.heartbeat.sequence)
                return True
            case CampaignRequest() as request if request.HasField("resign"):
                await self._leadership.depose(RESIGNED)
                self._leadership.leave()
                self._conversation.say(CampaignResponse(resigned=CampaignResponse.Resigned()))
                return False
            case _:
                await self._leadership.depose(NONSENSE)
                return self._lose("expected a heartbeat or a resignation")

    def _left(self) -> bool:
        return self._conversation.gone

    def _acknowledge(self, sequence: int) -> None:
        self._conversation.say(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def _expire(self) -> None:
        self._conversation.post(Sign.EXPIRED)

    async def _abandon(self, why: str) -> None:
        """The candidate has gone, or seems to have. If the store has left its beats without an answer it had good reason,
        and is on its way to another server: then the key is left to it, and to its lease."""
        if self._leadership.held and self._session.overdue:
            log.warning('election "%s": %s: %s, while the store is away', self._contest.name, self._opening.holder, why)
        else:
            await self._leadership.depose(why)
            self._leadership.leave()

    def _lose(self, reason: str) -> bool:
        """Ends the session; always False, the end."""
        self._conversation.say(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))
        return False
