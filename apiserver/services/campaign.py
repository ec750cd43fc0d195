"""One candidate, from its first message to its last.

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, broken off, silent: delete the key, if it is still at our mod_revision
      |  |         |                        |  likewise, but the store has been away: leave the key to its lease
      |  |         |                        |  the key is gone or another's: tell the candidate that it has lost
      |  +-- resumed with session (and token) from another server: put the key again, under compare-and-swap
      |  |         '-- the key turns out to be this session's: likewise
      +-- refused                           +  the server stops: leave the key alone, send the candidate on

Guarantees: the key exists only while a session that beats holds it, and its create_revision is the token. A key that another
server has taken over (its mod_revision has moved) is never deleted from here. Candidates of one server are served in the order
in which they came, those that hang left out; those of several servers race in etcd, and the losers go on waiting.
"""

import logging
from contextlib import suppress
from typing import TypeGuard

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheError, ShuttingDown
from apiserver.services.contest import Contest, Held, Verdict, election_of, term_of
from apiserver.services.conversation import Conversation, Sign
from apiserver.services.terms import BROKE, NONSENSE, RAN_OUT, RESIGNED, SILENT, STOOD_DOWN, TermLog
from apiserver.sessions import Session, Timing
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError, Write
from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse, Election, Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.times import to_micro_time
from pinnace.runtime.clock import Clock
from pinnace.runtime.race import race

log = logging.getLogger(__name__)

RETRY = 0.1
"""Seconds between two attempts to delete the key of a dead leader when etcd does not answer."""


class Campaign:
    def __init__(
        self,
        conversation: Conversation[CampaignRequest, CampaignResponse],
        contest: Contest,
        opening: CampaignRequest.Open,
        storage: Storage,
        committer: Committer,
        cacher: Cacher,
        timing: Timing,
        clock: Clock,
        terms: TermLog,
    ) -> None:
        self._conversation = conversation
        self._contest = contest
        self._opening = opening
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._timing = timing
        self._clock = clock
        self._terms = terms
        self._held: Held | None = None
        self._term: Term
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
            await self._delete_forsaken(opening.forsaken)
        record = await self._own_record()
        if opening.token and (record is None or record.create_revision != opening.token):
            return self._lose("leadership has ended meanwhile")
        try:
            self._session = await self._open_session(opening.session)
            if self._conversation.gone:  # it has not waited: whoever it is with now has the key
                return False
            if record is not None:
                self._held = await self._take_over(record)
        except (LeaseNotFound, Conflict) as error:
            return self._lose(f"leadership has ended meanwhile: {error}")
        self._conversation.say(
            CampaignResponse(
                opened=CampaignResponse.Opened(
                    session=self._session.id,
                    interval_ms=round(self._timing.interval * 1000),
                    validity_ms=round(self._timing.validity * 1000),
                )
            )
        )
        if self._held is not None and record is not None:
            self._elected(self._held, election_of(record).since)
        return True

    async def _own_record(self) -> KeyValue | None:
        """The election's key, if it is that of the session to be resumed."""
        if not self._opening.session:
            return None
        record = await self._storage.get(self._contest.key)
        return record if self._is_own(record, self._opening.session) else None

    def _is_own(self, record: KeyValue | None, session: int) -> TypeGuard[KeyValue]:
        return record is not None and record.lease == session and election_of(record).holder == self._opening.holder

    async def _delete_forsaken(self, session: int) -> None:
        """Deletes the key of a term that the candidate has stood down from by its own clock: nobody need wait for the lease."""
        record = await self._storage.get(self._contest.key)
        if self._is_own(record, session):
            await self._delete(Held(record.create_revision, record.mod_revision), term_of(record), STOOD_DOWN)

    async def _open_session(self, lease: int) -> Session:
        """Raises LeaseNotFound when the lease of a leader has run out; a candidate that waits simply gets a new one."""
        if lease:
            try:
                return await Session.resume(self._storage, self._clock, lease)
            except LeaseNotFound:
                if self._opening.token:
                    raise
        return await Session.open(self._storage, self._timing, self._clock)

    async def _take_over(self, record: KeyValue) -> Held:
        """Puts the key again, so that the server where the session was finds it changed and lets it be. Raises Conflict."""
        token = record.create_revision
        while True:
            write = Write(record.key, record.value, expected=record.mod_revision, lease=self._session.id)
            try:
                return Held(token, await self._committer.commit(write))
            except Conflict as conflict:  # perhaps by a server that the candidate has tried, and left, before this one
                current = conflict.current
                if not self._is_own(current, self._session.id) or current.create_revision != token:
                    raise
                record = current

    async def _act(self) -> bool:
        """What can be done without waiting for anybody; False at the end."""
        if self._held is not None:
            return self._check(self._held)
        record = self._contest.record()
        if record is not None:
            self._observe(record)
            if self._is_own(record, self._session.id):
                return await self._adopt(record)
            await self._consider(record)
        elif self._contest.may_stand(self._conversation, self._session.id):
            return await self._stand()
        return True

    def _check(self, held: Held) -> bool:
        """Does the candidate still lead, and from here?"""
        match self._contest.verdict(held):
            case Verdict.OURS:
                return True
            case Verdict.LOST:
                self._note_end(self._term, RAN_OUT, self._now(), presumed=True)
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
            self._held = await self._take_over(record)
        except Conflict:
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:
            log.warning('election "%s": cannot take over the key: %s', self._contest.name, error)
            return True
        self._elected(self._held, election_of(record).since)
        return True

    async def _consider(self, record: KeyValue) -> None:
        """Accepts a nomination that asks for this candidate, or for anybody and it is the first in line."""
        found = self._contest.nomination()
        if found is None or found[1].session or found[1].token != record.create_revision or not self._conversation.recent:
            return
        asked, nomination = found
        if nomination.holder == self._opening.holder or (not nomination.holder and self._contest.turn_of(self._conversation)):
            nomination.holder, nomination.session = self._opening.holder, self._session.id
            write = Write(asked.key, nomination.SerializeToString(), expected=asked.mod_revision)
            with suppress(Conflict, StorageError):  # another was faster, or it is too late
                await self._committer.commit(write)

    async def _stand(self) -> bool:
        """Tries to create the key."""
        record = Election(name=self._contest.name, holder=self._opening.holder, session=self._session.id)
        record.since.CopyFrom(self._now())
        write = Write(self._contest.key, record.SerializeToString(), expected=0, lease=self._session.id)
        try:
            revision = await self._committer.commit(write)
        except Conflict as conflict:  # somebody was faster: wait until the cache shows who
            with suppress(CacheError):
                await self._cacher.wait_for(conflict.current.mod_revision if conflict.current else 0, self._timing.interval)
            return True
        except LeaseNotFound:
            return self._lose("the session has run out")
        except StorageError as error:  # also when its outcome is unknown: if it comes late, the key will be seen, and adopted
            log.warning('election "%s": %s', self._contest.name, error)
            return True
        self._held = Held(revision, revision)
        self._elected(self._held, self._now())
        return True

    def _elected(self, held: Held, began: MicroTime) -> None:
        log.info('election "%s": %s leads with token %d', self._contest.name, self._opening.holder, held.token)
        self._contest.step_out(self._conversation)
        self._conversation.say(CampaignResponse(elected=CampaignResponse.Elected(token=held.token)))
        self._term = Term(election=self._contest.name, holder=self._opening.holder, token=held.token, began=began)
        if before := self._contest.before(held.token):
            self._terms.note(before)
        self._terms.note(self._term)

    async def _react(self) -> bool:
        """Waits for what comes next; False at the end."""
        match await self._conversation.hear():
            case Sign.NEWS:
                return True
            case Sign.GONE:
                if self._held and self._conversation.was_late:  # it may be on its way to another server, for good reason
                    await self._clock.sleep(self._timing.silence)
                await self._abandon(BROKE)
                return False
            case Sign.EXPIRED:
                if self._held:
                    self._note_end(self._term, RAN_OUT, self._now(), presumed=True)
                return self._lose("the session has run out")
            case Sign.SILENT:
                await self._abandon(SILENT)
                return self._lose(f"no heartbeat for {self._timing.silence:g} s")
            case Sign.DRAINED:
                raise ShuttingDown
            case CampaignRequest() as request if request.HasField("heartbeat"):
                self._session.beat(request.heartbeat.sequence)
                return True
            case CampaignRequest() as request if request.HasField("resign"):
                await self._depose(RESIGNED)
                self._conversation.say(CampaignResponse(resigned=CampaignResponse.Resigned()))
                return False
            case _:
                await self._depose(NONSENSE)
                return self._lose("expected a heartbeat or a resignation")

    def _acknowledge(self, sequence: int) -> None:
        self._conversation.say(CampaignResponse(heartbeat=CampaignResponse.HeartbeatAck(sequence=sequence)))

    def _expire(self) -> None:
        self._conversation.post(Sign.EXPIRED)

    async def _abandon(self, why: str) -> None:
        """The candidate has gone, or seems to have. If the store has left its beats without an answer it had good reason,
        and is on its way to another server: then the key is left to it, and to its lease."""
        if self._held and self._session.overdue:
            log.warning('election "%s": %s: %s, while the store is away', self._contest.name, self._opening.holder, why)
        else:
            await self._depose(why)

    async def _depose(self, why: str) -> None:
        """Deletes the key, unless it has moved on."""
        held, self._held = self._held, None
        if held is not None:
            log.info('election "%s": %s with token %d: %s', self._contest.name, self._opening.holder, held.token, why)
            await self._delete(held, self._term, why)

    async def _delete(self, held: Held, term: Term, why: str) -> None:
        """Gives up when the lease must have run out anyway."""
        ended = self._now()
        deadline = self._clock.monotonic() + self._timing.ttl
        while self._clock.monotonic() < deadline:
            try:
                await self._committer.commit(Write(self._contest.key, None, expected=held.mod_revision))
            except Conflict:
                return
            except StorageError as error:
                log.warning('election "%s": cannot delete the key yet: %s', self._contest.name, error)
                await self._clock.sleep(RETRY)
            else:
                self._note_end(term, why, ended)
                return

    def _note_end(self, term: Term, reason: str, ended: MicroTime, *, presumed: bool = False) -> None:
        over = Term(ended=ended, reason=reason, presumed=presumed)
        over.MergeFrom(term)
        self._terms.note(over)

    def _now(self) -> MicroTime:
        return to_micro_time(self._clock.time())

    def _lose(self, reason: str) -> bool:
        """Ends the session; always False, the end."""
        self._conversation.say(CampaignResponse(lost=CampaignResponse.Lost(reason=reason)))
        return False
