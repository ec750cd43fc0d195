"""The records of elections: terms, waiting candidates and Lease objects; and the end of old terms after a restore of etcd.

**Records** are for users. No decision of an election depends on them.

    queue_record(record) --> bounded queue --> run(): merge with the stored record, with compare-and-swap
                                        '---> after a new term: end the earlier terms, and delete the oldest

`queue_record` only appends to a queue, so elections and depositions do not wait for writes. Writes are idempotent, and records
of several servers about one term can be merged in any order. An observed end replaces a presumed one. Of two observed ends, the
first is kept. The records can be incomplete: a record is lost if the storage is unavailable for longer than WRITE_TIMEOUT, or
if the server stops. If the server of a leader stops, the server of the next leader presumes that the lease expired, at the
latest when the next term began. Times are from the wall clocks of servers. If a leader stepped down by its clock, the time is
that of the step down, even if the candidate could report it only later.

The Lease object of an election is in kube-system, as in Kubernetes (services/leases.py). It is kept without a holder after the
end of a term, and counts the terms. A Lease with this name that was not created for the election is not changed.

**Restore.** After etcd was restored from a backup, `BackupTermsEnder` ends the terms in the backup, because their leaders have
state of the lost history. It does not end later terms. The first server that notices the restore adds an ID to the restore
note, a key in etcd. The revision of the note separates the two kinds of terms:

    a: the last known note of the lost history
    b: the current note --a begins with b--> put b + ID, if b is unchanged --> bound: the revision of this put
           ^              '--otherwise: another server has added an ID ------> bound: the revision of b
           '--- WriteConflict: another server was faster

All election keys with a create_revision up to the bound are deleted before the server accepts calls.

Guarantees: when `end_backup_terms` returns, all terms in the backup have ended (except after two restores, see below). A term
that began after the first note continues, unless its server had not noticed the restore: this server ends the term
(apiserver.election.campaign).

A note in the backup is not mistaken for a new one, although revisions are reused. A note contains the IDs of all restores of
its history, and IDs are only appended. The state up to the backup is also part of the lost history, which this server has
received. So the note of the backup is a prefix of `a`. An ID that is not in `a` was written after the restore, and its revision
is higher than those of all terms in the backup.

- Two servers at the same time: the put compares the note. The server that loses reads the note again and uses its revision.
- A second restore of the same backup, or of one with the first note: `a` contains the previous IDs, so an ID is added again.
- A server that was disconnected during two restores finds unknown IDs and uses the revision of the last one. If no server has
  noted the second restore yet, terms between the two restores are kept. The servers that were connected end them.
- A server that stops after its note: every other server ends the terms itself before it accepts calls.
- If etcd has no space for the note, all terms end. Elections fail then in any case.

Not guaranteed: that the leader of a term after the note has noticed the restore. See docs/design/restore.md.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.elections_pb2 import Candidate, Term
from pinnace.api.integers import parse_natural
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.names import new_uid
from pinnace.api.resources import (
    ELECTIONS_PREFIX,
    LEASES,
    RESTORES_KEY,
    SYSTEM_NAMESPACE,
    candidate_key,
    term_key,
    terms_prefix,
)
from pinnace.api.scalars import to_seconds, to_time
from pinnace.api.wellknown import ELECTION_LEASES, FENCE_ANNOTATION
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.services.sessions import decode_record
from pinnace.apiserver.storage.committer import Committer, WriteConflict
from pinnace.apiserver.storage.interface import (
    KeyChange,
    KeyValue,
    LeaseNotFound,
    OutOfSpace,
    Storage,
    StorageError,
    TooLarge,
    Write,
)
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

MAX_STORED_TERMS = 100
"""Maximum number of stored terms of an election."""
MAX_PENDING_RECORDS = 1000
"""Maximum number of pending records. Above it, the oldest ones are dropped."""
WRITE_TIMEOUT = 30.0
"""Seconds for which the write of a record is retried."""
WRITE_DELAY = 0.2
"""Seconds for which records are delayed, so that they do not compete with the next election for etcd and CPU time."""
RETRY_INTERVAL = 0.2
"""Seconds between two attempts."""

RESIGNED = "resigned"
STREAM_CLOSED = "stream closed"
NO_HEARTBEATS = "no heartbeats"
PROTOCOL_ERROR = "protocol error"
NOT_ACKNOWLEDGED = "heartbeats not acknowledged"
LEASE_EXPIRED = "lease expired"
ETCD_RESTORED = "etcd was restored from a backup"
RESTORE_RETRY = 0.1
"""Seconds between two attempts while etcd is unavailable."""


def merge_terms(stored: Term | None, reported: Term) -> Term:
    """Merge two records of one term."""
    merged = Term()
    if stored is None:
        merged.CopyFrom(reported)
        return merged
    merged.CopyFrom(stored)
    if reported.HasField("ended") and (not stored.HasField("ended") or (stored.presumed and not reported.presumed)):
        merged.ended.CopyFrom(reported.ended)
        merged.reason, merged.presumed = reported.reason, reported.presumed
        merged.ClearField("last_heartbeat")
        if reported.HasField("last_heartbeat"):
            merged.last_heartbeat.CopyFrom(reported.last_heartbeat)
    return merged


def end_term(
    term: Term, reason: str, at: MicroTime, *, presumed: bool = False, last_heartbeat: MicroTime | None = None
) -> Term:
    """Return the term with an end at `at`, or at its start if that is later. `last_heartbeat`: see Term in proto/."""
    over = Term()
    over.CopyFrom(term)
    over.ended.CopyFrom(max(at, term.began, key=to_seconds))
    if last_heartbeat is not None:
        over.last_heartbeat.CopyFrom(min(max(last_heartbeat, term.began, key=to_seconds), over.ended, key=to_seconds))
    over.reason, over.presumed = reason, presumed
    return over


def presume_ends_before(terms: list[Term], seen: Term) -> list[Term]:
    """Return the terms before `seen` without an end, with a presumed end: the start of the next term."""
    terms = sorted([*(term for term in terms if term.token != seen.token), seen], key=lambda term: term.token)
    result = []
    for term, following in pairwise(terms):
        if not term.HasField("ended"):
            result.append(end_term(term, LEASE_EXPIRED, following.began, presumed=True))
    return result


def terms_with_presumed_ends(terms: Sequence[Term], token: int, now: MicroTime) -> list[Term]:
    """Return the terms, the oldest first, with a presumed end of each ended term without a recorded end. `token` is the token
    of the current term; 0 if there is none."""
    result = []
    for number, term in enumerate(terms):
        if not term.HasField("ended") and term.token != token:
            following = terms[number + 1].began if number + 1 < len(terms) else now
            term = end_term(term, LEASE_EXPIRED, following, presumed=True)
        result.append(term)
    return result


def decode_terms(records: Iterable[KeyValue]) -> list[Term]:
    """Decode the records in order. Invalid records are omitted."""
    return [term for record in records if (term := decode_record(Term, record.value)) is not None]


def is_history_complete(terms: Sequence[Term], token: int) -> bool:
    """Report whether the records contain the start of the term with this token, and the end of all others. A token of 0 means
    that no term is current."""
    unended = {term.token for term in terms if not term.HasField("ended")}
    return unended == ({token} if token else set())


def lease_after_change(stored: Lease | None, term: Term, ttl: int, uid: str) -> Lease | None:
    """Return the Lease object of the election after the start or end of a term; None if the stored one does not change."""
    token = _token_of_lease(stored, term.election) if stored is not None else 0
    lease = Lease()
    if stored is None:
        lease.metadata.name, lease.metadata.namespace = lease_name(term.election), SYSTEM_NAMESPACE
        lease.metadata.uid = uid
        lease.metadata.creationTimestamp.CopyFrom(to_time(to_seconds(term.began)))
    else:
        lease.CopyFrom(stored)
    spec = lease.spec
    if term.HasField("ended"):
        if token != term.token or not spec.holderIdentity:
            return None
        spec.holderIdentity, spec.leaseDurationSeconds = "", 1
        spec.renewTime.CopyFrom(term.ended)
        return lease
    if token is None or token >= term.token:
        return None
    lease.metadata.annotations[FENCE_ANNOTATION] = f"{term.election}/{term.token}"
    spec.holderIdentity, spec.leaseDurationSeconds = term.holder, ttl
    spec.leaseTransitions += stored is not None
    for moment in (spec.acquireTime, spec.renewTime):
        moment.CopyFrom(term.began)
    return lease


def lease_name(election: str) -> str:
    """Return the name of the Lease object of an election."""
    return ELECTION_LEASES.get(election, election)


def _token_of_lease(lease: Lease, election: str) -> int | None:
    """Return the token in a Lease object; None if the Lease does not belong to the election."""
    shows, _, token = lease.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    return parse_natural(token) if shows == election else None


class CandidateChange(NamedTuple):
    """The record of a candidate that has joined or, if `departed`, left."""

    candidate: Candidate
    departed: bool = False

    @property
    def election(self) -> str:
        return self.candidate.election


class HistoryWriter:
    """Writes the records of all elections of this server."""

    def __init__(self, storage: Storage, committer: Committer, clock: Clock, ttl: int, rng: random.Random) -> None:
        """`ttl` is the TTL of a session's lease in seconds."""
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._ttl = ttl
        self._rng = rng
        self._candidate_revisions: dict[int, int] = {}
        """The mod_revision of each candidate's record that this server wrote, by session."""
        self._pending: deque[tuple[Term | CandidateChange, float]] = deque(maxlen=MAX_PENDING_RECORDS)
        """The records with their deadlines."""
        self._record_queued = asyncio.Event()

    def queue_record(self, record: Term | CandidateChange) -> None:
        """Queue the record of a candidate, or of a term that has begun or (with `ended`) ended."""
        self._pending.append((record, self._clock.monotonic() + WRITE_TIMEOUT))
        self._record_queued.set()

    async def run(self) -> None:
        """Write queued records until cancelled."""
        while True:
            await self._record_queued.wait()
            await self._clock.sleep(WRITE_DELAY)
            self._record_queued.clear()
            while self._pending:
                await self._write_with_retries(*self._pending.popleft())

    async def _write_with_retries(self, record: Term | CandidateChange, deadline: float) -> None:
        while True:
            try:
                if isinstance(record, CandidateChange):
                    await self._apply_candidate_change(record.candidate, departed=record.departed)
                else:
                    await self._write_term(record)
                    await self._write_lease(record)
                    if not record.HasField("ended"):
                        await self._end_previous_terms(record)
                return
            except LeaseNotFound:  # the session of the candidate has expired
                return
            except StorageError as error:
                if isinstance(error, OutOfSpace | TooLarge) or self._clock.monotonic() >= deadline:
                    log.warning('election "%s": cannot write the election history: %s', record.election, error)
                    return
                await self._clock.sleep(RETRY_INTERVAL)

    async def _apply_candidate_change(self, candidate: Candidate, *, departed: bool) -> None:
        """Write or delete the record of a candidate. The record of another server is not deleted. Idempotent. Raises
        StorageError."""
        key, value = candidate_key(candidate.election, candidate.session), candidate.SerializeToString()
        if departed:
            if revision := self._candidate_revisions.pop(candidate.session, 0):
                with suppress(WriteConflict):
                    await self._committer.commit(Write(key, None, revision))
            return
        result = await self._storage.get(key)
        while True:
            expected = result.mod_revision if result else 0
            try:
                self._candidate_revisions[candidate.session] = await self._committer.commit(
                    Write(key, value, expected, lease=candidate.session)
                )
                return
            except WriteConflict as conflict:
                result = conflict.current

    async def _write_lease(self, term: Term) -> None:
        """Write the Lease object. Idempotent. Raises StorageError."""
        key = LEASES.key(SYSTEM_NAMESPACE, lease_name(term.election))
        result = await self._storage.get(key)
        while True:
            stored = decode_record(Lease, result.value) if result is not None else None
            lease = (
                lease_after_change(stored, term, self._ttl, new_uid(self._rng))
                if stored is not None or result is None
                else None
            )
            if lease is None:
                return
            try:
                await self._committer.commit(Write(key, lease.SerializeToString(), result.mod_revision if result else 0))
                return
            except WriteConflict as conflict:
                result = conflict.current

    async def _write_term(self, term: Term) -> None:
        """Write the record of a term. Idempotent. Raises StorageError."""
        key = term_key(term.election, term.token)
        result = await self._storage.get(key)
        while (write := _term_merge_write(key, result, term)) is not None:
            try:
                await self._committer.commit(write)
                return
            except WriteConflict as conflict:
                result = conflict.current

    async def _end_previous_terms(self, latest: Term) -> None:
        """Record the end of all terms before the latest one, and delete the oldest terms. Raises StorageError."""
        page = await self._storage.page(terms_prefix(latest.election), limit=MAX_STORED_TERMS * 2)
        for over in presume_ends_before(decode_terms(page.items), latest):
            await self._write_term(over)
        for item in page.items[:-MAX_STORED_TERMS]:
            try:
                await self._committer.commit(Write(item.key, None, item.mod_revision))
            except WriteConflict:
                log.debug("%s has changed and will be deleted later", item.key)


def _term_merge_write(key: str, found: KeyValue | None, term: Term) -> Write | None:
    """Return the write that merges `term` into the stored record; None if nothing changes."""
    stored = decode_record(Term, found.value) if found else None
    merged = merge_terms(stored, term)
    if merged == stored:
        return None
    return Write(key, merged.SerializeToString(), found.mod_revision if found else 0)


class BackupTermsEnder:
    """Ends the terms of a backup after a restore of etcd."""

    def __init__(self, storage: Storage, committer: Committer, cacher: Cacher, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._rng = rng
        self._current_note = b""  # the current note by the cache
        self._lost_note = b""  # the last note of the lost history
        cacher.subscribe(RESTORES_KEY, self._update_restore_note)

    def record_restore(self) -> None:
        """Record that the storage was restored. Call it before the cache sends changes of the new history."""
        self._lost_note = self._current_note

    async def end_backup_terms(self) -> None:
        """End the terms in the backup. Retry until it succeeds."""
        while True:
            try:
                await self._end_terms_until(await self._write_restore_note())
                return
            except (WriteConflict, StorageError) as error:  # a conflict: another server has written the note or an election key
                log.warning("cannot end the terms from before the restore: %s", error)
                await self._clock.sleep(RESTORE_RETRY)

    async def _write_restore_note(self) -> int:
        """Write the note unless another server has written it. Return the last revision of terms to end. Raises WriteConflict
        and StorageError."""
        result = await self._storage.get(RESTORES_KEY)
        value, revision = (result.value, result.mod_revision) if result is not None else (b"", 0)
        if not self._lost_note.startswith(value):
            return revision
        value += new_uid(self._rng).encode() + b"\n"
        try:
            return await self._committer.commit(Write(RESTORES_KEY, value, revision))
        except OutOfSpace:
            return await self._storage.current_revision()

    async def _end_terms_until(self, bound: int) -> None:
        after, more = "", True
        while more:
            page = await self._storage.page(ELECTIONS_PREFIX, after=after)
            for record in page.items:
                if record.create_revision <= bound:
                    log.warning("%s: ending the term with token %d: etcd was restored", record.key, record.create_revision)
                    await self._committer.commit(Write(record.key, None, expected=record.mod_revision))
            after, more = page.items[-1].key if page.items else "", page.more

    def _update_restore_note(self, change: KeyChange) -> None:
        self._current_note = change.value or b""
