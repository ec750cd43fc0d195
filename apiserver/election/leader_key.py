"""The key of an election in etcd, for one candidate (LeaderKey).

    none --create_key: if no key exists--> held --depose_leader: delete, if the mod_revision is that of our last put--> none
      |                                       ^
      '--take_over_key: put again, if the mod_revision is the one that was read

Guarantees: there is at most one leader, and no term is ended by a stale request:

- The key is created only if it does not exist, so a term ends before the next one begins. The create_revision is the fencing
  token. It is greater than all previous tokens.
- Every put attaches the key to the lease of the session. etcd refuses the put if the lease has expired. So a key of a silent
  session is deleted after at most the TTL of the lease.
- When a session moves to another server, this server puts the same value again: the token stays the same, and the mod_revision
  changes. A server deletes the key only at the mod_revision of its own last put (for an abandoned term: at the one that was
  read). A mod_revision is never reused, so a late or repeated delete has no effect on another term.
- `held` is set only after etcd has confirmed the write.

Not guaranteed: a create with an unknown outcome can still succeed later. The server of the session then takes over the key. If
etcd is unavailable, a key is not deleted, and its lease expires instead.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeGuard

from pinnace.api.elections_pb2 import Candidate as CandidateRecord
from pinnace.api.elections_pb2 import Election, Nomination, Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.scalars import to_micro_time
from pinnace.apiserver.election.candidate_queue import CandidateQueue, HeldKey, term_of_key
from pinnace.apiserver.election.term_history import (
    LEASE_EXPIRED,
    NOT_ACKNOWLEDGED,
    CandidateChange,
    HistoryWriter,
    end_term,
)
from pinnace.apiserver.registry.fencing import hash_secret, is_holder
from pinnace.apiserver.services.sessions import decode_record
from pinnace.apiserver.storage.committer import Committer, WriteConflict
from pinnace.apiserver.storage.interface import KeyValue, Storage, StorageError, Write
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

DELETE_RETRY_INTERVAL = 0.1
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
    """The election's key for one candidate. `held` is the key that this server has put; None before that and after
    `depose_leader`. etcd can have deleted the key since then: see `CandidateQueue.key_state`."""

    def __init__(
        self,
        queue: CandidateQueue,
        identity: CandidateIdentity,
        storage: Storage,
        committer: Committer,
        history: HistoryWriter,
        ttl: float,
        clock: Clock,
    ) -> None:
        """`ttl` is the TTL of a session's lease in seconds."""
        self.held: HeldKey | None = None
        self._queue = queue
        self._identity = identity
        self._holder = identity.holder
        self._storage = storage
        self._committer = committer
        self._history = history
        self._ttl = ttl
        self._clock = clock
        self._term: Term
        self._candidate = CandidateRecord()

    def record_candidate(self, session: int) -> None:
        """Record the candidate and its session."""
        self._candidate = CandidateRecord(
            election=self._queue.name, holder=self._holder, since=self._micro_time_now(), session=session
        )
        self._history.queue_record(CandidateChange(self._candidate))

    def record_departure(self) -> None:
        """Record that the candidate has left."""
        if self._candidate.session:
            self._history.queue_record(CandidateChange(self._candidate, departed=True))

    async def read_session_key(self, session: int) -> KeyValue | None:
        """Read the election's key from etcd. Return None unless it is attached to this session's lease. Raises StorageError."""
        record = await self._storage.get(self._queue.key)
        return record if record is not None and record.lease == session else None

    def is_own_key(self, record: KeyValue | None, session: int) -> TypeGuard[KeyValue]:
        if record is None or record.lease != session:
            return False
        election, identity = decode_record(Election, record.value) or Election(), self._identity
        return election.holder == identity.holder and is_holder(election, identity.user, identity.secret)

    async def create_key(self, session: int) -> HeldKey:
        """Create the key, so that the candidate leads. Raises WriteConflict if another candidate leads, LeaseNotFound if the
        session has expired, and other StorageErrors. After CommitOutcomeUnknown the key may exist, or be created later."""
        holder, user, secret, scheduler_names, configuration = self._identity
        record = Election(name=self._queue.name, holder=holder, session=session, user=user, secret_hash=hash_secret(secret))
        record.scheduler_names.extend(scheduler_names)
        record.configuration = configuration
        record.since.CopyFrom(self._micro_time_now())
        write = Write(self._queue.key, record.SerializeToString(), expected=0, lease=session)
        revision = await self._committer.commit(write)
        term = Term(election=self._queue.name, holder=self._holder, token=revision, began=record.since)
        return self._record_held(HeldKey(revision, revision), term)

    async def take_over_key(self, record: KeyValue, session: int, has_left: Callable[[], bool]) -> HeldKey:
        """Put the key of this session again. The previous server then no longer deletes it. `has_left` reports whether the
        candidate has left this server. Raises WriteConflict if the key does not exist or belongs to another candidate, or if
        the candidate has left and another server has put the key; LeaseNotFound if the session has expired; and other
        StorageErrors."""
        token = record.create_revision
        while True:
            write = Write(record.key, record.value, expected=record.mod_revision, lease=session)
            try:
                revision = await self._committer.commit(write)
            except WriteConflict as conflict:  # possibly a late write of the previous server
                current = conflict.current
                if has_left() or not self.is_own_key(current, session) or current.create_revision != token:
                    raise
                record = current
            else:
                return self._record_held(HeldKey(token, revision), term_of_key(record))

    def _record_held(self, held: HeldKey, term: Term) -> HeldKey:
        log.info('election "%s": %s leads with token %d', self._queue.name, self._holder, held.token)
        self.held, self._term = held, term
        if previous := self._queue.previous_term(held.token):
            self._history.queue_record(previous)
        self._history.queue_record(term)
        return held

    async def accept_nomination(self, request: KeyValue, nomination: Nomination, session: int) -> None:
        """Accept the nomination for this candidate. Conflicts and errors are ignored."""
        nomination.holder, nomination.session = self._holder, session
        write = Write(request.key, nomination.SerializeToString(), expected=request.mod_revision)
        with suppress(WriteConflict, StorageError):
            await self._committer.commit(write)

    async def depose_leader(self, reason: str, silence: float | None = None) -> None:
        """Delete the key if it is held and its mod_revision is unchanged. While etcd is unavailable, retry for up to `ttl`
        seconds. `silence`: the seconds since the last message of the leader; None if it leads until now."""
        held, self.held = self.held, None
        if held is not None:
            log.info('election "%s": %s with token %d: %s', self._queue.name, self._holder, held.token, reason)
            last_heartbeat = to_micro_time(self._clock.time() - silence) if silence is not None else None
            await self._delete_key(held, end_term(self._term, reason, self._micro_time_now(), last_heartbeat=last_heartbeat))

    async def delete_abandoned(self, session: int, seconds_ago: float | None) -> None:
        """Delete the key of a term that the candidate ended by its clock, so that other candidates do not wait for the lease
        to expire. `seconds_ago` is the number of seconds since the end of the term; None if unknown. Retries as
        `depose_leader`. Raises StorageError if the key cannot be read."""
        at = to_micro_time(max(self._clock.time() - max(seconds_ago or 0.0, 0.0), 0.0))
        record = await self.read_session_key(session)
        if self.is_own_key(record, session):
            ended_term = end_term(term_of_key(record), NOT_ACKNOWLEDGED, at, presumed=seconds_ago is None)
            await self._delete_key(HeldKey(record.create_revision, record.mod_revision), ended_term)

    async def _delete_key(self, held: HeldKey, ended_term: Term) -> None:
        """Delete the key. Retry until the lease must have expired. `ended_term` is for the election history."""
        deadline = self._clock.monotonic() + self._ttl
        while self._clock.monotonic() < deadline:
            try:
                revision = await self._committer.commit(Write(self._queue.key, None, expected=held.mod_revision))
            except WriteConflict:
                return
            except StorageError as error:
                log.warning('election "%s": cannot delete the key: %s', self._queue.name, error)
                await self._clock.sleep(DELETE_RETRY_INTERVAL)
            else:
                self._queue.record_deletion(revision)
                self._history.queue_record(ended_term)
                return

    def record_expiry(self) -> None:
        """Record the end of a held term. The reason is presumed to be the expiry of its lease."""
        if self.held is not None:
            self._history.queue_record(end_term(self._term, LEASE_EXPIRED, self._micro_time_now(), presumed=True))

    def _micro_time_now(self) -> MicroTime:
        return to_micro_time(self._clock.time())
