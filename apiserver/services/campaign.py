"""One candidate, from its first message to its last: what it hears, and what it is told.

    opening --> waiting --key created--> leading
      |  ^         |                        |  resigned, broken off, silent: delete the key, if it is still at our mod_revision
      |  |         |                        |  likewise, but the store has been away: leave the key to its lease
      |  |         |                        |  the key is gone or another's: tell the candidate that it has lost
      |  +-- resumed with session (and token) from another server: put the key again, under compare-and-swap
      |  |         '-- the key turns out to be this session's: likewise
      +-- refused                           +  the server stops: leave the key alone, send the candidate on

Guarantees: the key exists only while a session that beats holds it, and its create_revision is the token. A key that another
server has taken over (its mod_revision has moved) is never deleted from here. How etcd is written so that this is true is in
leadership.py. Candidates of one server are served in the order in which they came, those that hang left out; those of several
servers race in etcd, and the losers go on waiting.
"""

import logging

from apiserver.cacher.errors import ShuttingDown
from apiserver.services.contest import Contest, Held, Verdict, election_of
from apiserver.services.conversation import Conversation, Sign
from apiserver.services.leadership import Leadership
from apiserver.services.terms import BROKE, NONSENSE, RESIGNED, RESTORED, SILENT
from apiserver.sessions import Session, Timing
from apiserver.storage.committer import Conflict
from apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError
from pinnace.api.elections_pb2 import CampaignRequest, CampaignResponse
from pinnace.runtime.clock import Clock
from pinnace.runtime.race import race

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
