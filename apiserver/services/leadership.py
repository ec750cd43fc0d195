"""The leadership of one candidate: the election's key in etcd, and all that is written for the candidate there.

    nothing --create: no key may exist--> held --depose: delete, at our mod_revision--> nothing
       |                                    ^
       '--take_over: put again, at the mod_revision that it was read at

Why there is one leader, and it is not deposed by mistake:

- The key is created only where there is none, so one term ends before the next begins. Its create_revision is the token:
  greater than every token before.
- Every put attaches the key to the session's lease, and etcd refuses it when the lease has run out: no key outlives a session
  that does not beat by more than the lease.
- A session that goes on with another server has its key put again from there, with the same bytes: the token stays, the
  mod_revision moves. Only the key at the very mod_revision of our own last put is deleted (that of a forsaken term: at the one
  that was read), and no mod_revision ever comes back: however late or often a delete arrives, it is of the leadership that it
  was meant for, or does nothing.
- `held` is set only by a write that etcd has confirmed.

Does not promise that a create whose outcome is unknown never happens: its key may appear later, and is taken over by whoever
holds the session then (campaign.py). Nor that the key is deleted: when etcd stays away, its lease runs out instead.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeGuard

from apiserver.registry.fencing import hashed, is_holder
from apiserver.services.contest import Contest, Held, term_of
from apiserver.services.records import read
from apiserver.services.terms import RAN_OUT, STOOD_DOWN, Stands, TermLog, ended
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import KeyValue, Storage, StorageError, Write
from pinnace.api.elections_pb2 import Candidate, Election, Nomination, Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.times import to_micro_time
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

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
