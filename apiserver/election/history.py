"""The terms of elections: who led, from when to when, and why it ended; who waits; and the Lease objects that show who leads.
For people; nothing is decided by it.

    note(term) --> bounded queue --> run(): merged into what is stored, under compare-and-swap
                                      '---> a new term: the earlier ones are over, and the oldest are forgotten

Guarantees: an election and a deposition wait for none of this: `note` only puts into a queue. What several servers note of one
term comes together whatever the order, and noting a thing twice changes nothing; so a lost answer is simply tried again. An end
that somebody saw wins over one that is presumed, and the first of two that were seen over the second.

Does not promise completeness: what is noted while the store is away for longer than PATIENCE, or dies with its server, is lost.
Of a term whose server died, the next leader's server presumes the end: the lease ran out, when the next term began at the
latest. How long nobody led before that is not known.

The Lease object of an election is in kube-system, where users of Kubernetes look for it (services/leases.py). It stays when a
term ends, without a holder, and counts the terms. A Lease of that name which somebody else made is left alone.

Times are those of the servers' wall clocks; a gap between two terms is as exact as these agree. That of a leader which stood
down unanswered is when it did, however much later it could say so: it says how long ago that was.

After a restore: ends the terms that the backup has, and only these, whichever servers notice it, and when.

A term of before is to end, as its leader knows what has not happened. One that was won since is not: who leads by it began in
the history that there is now. So the first server notes that the store was restored, in a key of the store, and the revision of
the note divides the two:

    a: the note in the history that was parted from, as it was last told
    b: the note as it is now --a begins with b--> write b + id, compared with b --> bound: the revision of that
           ^                   '--otherwise: somebody has noted it----------------> bound: the revision of b
           '--- Conflict: another was first

Each key of an election whose create_revision is not above the bound is deleted; then calls are taken.

Guarantees: when `end_terms` returns, no term goes on that the store had when it was restored (but see the server that was away
for two restores). A term that was won after the first server has noted the restore goes on, unless it was won through a server
that had not noticed yet: that one ends it (apiserver.election.candidates).

Why a backup's own note does no harm, though its revision says nothing: revisions come again. A note has the ids of all restores
of its history, and only grows at its end. Everything up to the backup is also in the history that we part from, and we had been
told of it, else we would not have noticed. So the backup's note is a beginning of `a`. An id that is not in `a` was written
after the backup, by a server that parted from its history too; and what the backup has elected has a lower revision than that.

- Two servers at once: the note is compared with what was read. Who loses reads the other's, and takes that.
- A second restore, of the same backup or of one that has the first note: `a` has the ids of before, so it is noted anew.
- A server that was away for two restores finds ids that it does not know, and takes the revision of the last. If the second
  restore has not been noted yet, it leaves terms of between the two: the servers that were there then end those, and it has
  told their leaders nothing.
- A server that dies after its note: each of the others ends the terms by itself before it takes calls.
- Without space for the note every term ends: nobody can be elected then in any case.

What it does not promise: that a term of after the note is of somebody who has been told: see docs/design/restore.md.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from apiserver.cacher.cacher import Cacher
from apiserver.services.sessions import read
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import Change, KeyValue, LeaseNotFound, OutOfSpace, Storage, StorageError, TooLarge, Write
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.elections_pb2 import Candidate, Term
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
from pinnace.api.scalars import natural, to_seconds, to_time
from pinnace.api.wellknown import ELECTION_LEASES, FENCE_ANNOTATION
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

KEPT = 100
"""Terms of one election that are remembered."""
MAX_NOTES = 1000
"""Notes that wait to be written; beyond, the oldest are dropped."""
PATIENCE = 30.0
"""Seconds for which a note is tried again."""
AFTER = 0.2
"""Seconds for which notes wait: first the next leader is to begin, which needs the same store and the same processor."""
RETRY = 0.2
"""Seconds between two attempts."""

RESIGNED = "resigned"
BROKE = "its stream broke"
SILENT = "fell silent"
NONSENSE = "broke the protocol"
STOOD_DOWN = "stood down unanswered"
RAN_OUT = "its lease ran out"
RESTORED = "etcd was restored from a backup"


def merge(stored: Term | None, noted: Term) -> Term:
    """What is known of one term by two accounts of it."""
    merged = Term()
    if stored is None:
        merged.CopyFrom(noted)
        return merged
    merged.CopyFrom(stored)
    if noted.HasField("ended") and (not stored.HasField("ended") or (stored.presumed and not noted.presumed)):
        merged.ended.CopyFrom(noted.ended)
        merged.reason, merged.presumed = noted.reason, noted.presumed
    return merged


def ended(term: Term, reason: str, at: MicroTime, *, presumed: bool = False) -> Term:
    """The term, over since `at`, though not before it began."""
    over = Term()
    over.CopyFrom(term)
    over.ended.CopyFrom(max(at, term.began, key=to_seconds))
    over.reason, over.presumed = reason, presumed
    return over


def presume(terms: list[Term], seen: Term) -> list[Term]:
    """The terms before `seen` that nobody has ended, ended as may be presumed: when the next one began, at the latest."""
    terms = sorted([*(term for term in terms if term.token != seen.token), seen], key=lambda term: term.token)
    found = []
    for term, following in pairwise(terms):
        if not term.HasField("ended"):
            found.append(ended(term, RAN_OUT, following.began, presumed=True))
    return found


def up_to_date(terms: Sequence[Term], token: int, now: MicroTime) -> list[Term]:
    """The terms, oldest first, with the presumed end of each term that is over but has no recorded end. `token`: of the term
    that has not ended; 0: all have."""
    found = []
    for number, term in enumerate(terms):
        if not term.HasField("ended") and term.token != token:
            following = terms[number + 1].began if number + 1 < len(terms) else now
            term = ended(term, RAN_OUT, following, presumed=True)
        found.append(term)
    return found


def terms_in(records: Iterable[KeyValue]) -> list[Term]:
    """Those that can be read, in the same order."""
    return [term for record in records if (term := read(Term, record.value)) is not None]


def accounted_for(terms: Sequence[Term], token: int) -> bool:
    """Is it written down that the term of this token has begun, and that all others are over? 0: there is no such term."""
    going_on = {term.token for term in terms if not term.HasField("ended")}
    return going_on == ({token} if token else set())


def shown(stored: Lease | None, term: Term, ttl: int, uid: str) -> Lease | None:
    """The Lease object that shows the election after this news; None: it stays as it is. `stored`: as it is."""
    token = _token(stored, term.election) if stored is not None else 0
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
    """Of the Lease object that shows an election."""
    return ELECTION_LEASES.get(election, election)


def _token(lease: Lease, election: str) -> int | None:
    """Of the latest term of the election that a Lease object shows; None: it shows something else."""
    shows, _, token = lease.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/")
    return natural(token) if shows == election else None


class Stands(NamedTuple):
    """A candidate has begun to stand, or (`gone`) has left."""

    candidate: Candidate
    gone: bool = False

    @property
    def election(self) -> str:
        return self.candidate.election


class TermLog:
    def __init__(self, storage: Storage, committer: Committer, clock: Clock, ttl: int, rng: random.Random) -> None:
        """`ttl`: seconds that a leader's session lives without a beat."""
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._ttl = ttl
        self._rng = rng
        self._standing: dict[int, int] = {}  # by session: the mod_revision of its candidate, written from here
        self._notes: deque[tuple[Term | Stands, float]] = deque(maxlen=MAX_NOTES)  # each with the time when it is given up
        self._noted = asyncio.Event()

    def note(self, news: Term | Stands) -> None:
        """A term that has begun, or (with `ended`) one that is over; a candidate that stands."""
        self._notes.append((news, self._clock.monotonic() + PATIENCE))
        self._noted.set()

    async def run(self) -> None:
        """Writes down what is noted, until cancelled."""
        while True:
            await self._noted.wait()
            await self._clock.sleep(AFTER)
            self._noted.clear()
            while self._notes:
                await self._write_down(*self._notes.popleft())

    async def _write_down(self, news: Term | Stands, deadline: float) -> None:
        while True:
            try:
                if isinstance(news, Stands):
                    await self._stand(news.candidate, gone=news.gone)
                else:
                    await self._put(news)
                    await self._show(news)
                    if not news.HasField("ended"):
                        await self._tidy(news)
                return
            except LeaseNotFound:  # the candidate's session has run out meanwhile
                return
            except StorageError as error:
                if isinstance(error, OutOfSpace | TooLarge) or self._clock.monotonic() >= deadline:
                    log.warning('election "%s": cannot write down what has happened: %s', news.election, error)
                    return
                await self._clock.sleep(RETRY)

    async def _stand(self, candidate: Candidate, *, gone: bool) -> None:
        """Raises StorageError; trying again does no harm. A candidate that has gone on with another server is that one's."""
        key, value = candidate_key(candidate.election, candidate.session), candidate.SerializeToString()
        if gone:
            if revision := self._standing.pop(candidate.session, 0):
                with suppress(Conflict):
                    await self._committer.commit(Write(key, None, revision))
            return
        found = await self._storage.get(key)
        while True:
            expected = found.mod_revision if found else 0
            try:
                self._standing[candidate.session] = await self._committer.commit(
                    Write(key, value, expected, lease=candidate.session)
                )
                return
            except Conflict as conflict:
                found = conflict.current

    async def _show(self, term: Term) -> None:
        """Raises StorageError; trying again does no harm."""
        key = LEASES.key(SYSTEM_NAMESPACE, lease_name(term.election))
        found = await self._storage.get(key)
        while True:
            stored = read(Lease, found.value) if found is not None else None
            lease = shown(stored, term, self._ttl, new_uid(self._rng)) if stored is not None or found is None else None
            if lease is None:
                return
            try:
                await self._committer.commit(Write(key, lease.SerializeToString(), found.mod_revision if found else 0))
                return
            except Conflict as conflict:
                found = conflict.current

    async def _put(self, term: Term) -> None:
        """Raises StorageError; trying again does no harm."""
        key = term_key(term.election, term.token)
        found = await self._storage.get(key)
        while (write := _writing(key, found, term)) is not None:
            try:
                await self._committer.commit(write)
                return
            except Conflict as conflict:
                found = conflict.current

    async def _tidy(self, latest: Term) -> None:
        """Ends the terms before the latest, and forgets the oldest. Raises StorageError."""
        page = await self._storage.page(terms_prefix(latest.election), limit=KEPT * 2)
        for over in presume(terms_in(page.items), latest):
            await self._put(over)
        for item in page.items[:-KEPT]:
            try:
                await self._committer.commit(Write(item.key, None, item.mod_revision))
            except Conflict:
                log.debug("%s has changed: it is forgotten later", item.key)


def _writing(key: str, found: KeyValue | None, term: Term) -> Write | None:
    """None: the store knows as much already."""
    stored = read(Term, found.value) if found else None
    merged = merge(stored, term)
    if merged == stored:
        return None
    return Write(key, merged.SerializeToString(), found.mod_revision if found else 0)


RESTORE_RETRY = 0.1
"""Seconds between two attempts when etcd does not answer."""


class Restores:
    def __init__(self, storage: Storage, committer: Committer, cacher: Cacher, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._rng = rng
        self._followed = b""  # the note, as the cache has told it
        self._before = b""  # the same, of the history that was parted from last
        cacher.subscribe(RESTORES_KEY, self._changed)

    def part(self) -> None:
        """The store has another history. To be called before the cache tells of it."""
        self._before = self._followed

    async def end_terms(self) -> None:
        """Ends the terms that the backup has. Tries until it is done."""
        while True:
            try:
                await self._end_until(await self._note())
                return
            except (Conflict, StorageError) as error:  # another server has noted it; has put a key, or deleted it
                log.warning("the terms of before cannot be ended yet: %s", error)
                await self._clock.sleep(RESTORE_RETRY)

    async def _note(self) -> int:
        """Notes the restore unless that is done: the last revision of terms that are to end. Raises Conflict, StorageError."""
        found = await self._storage.get(RESTORES_KEY)
        value, revision = (found.value, found.mod_revision) if found is not None else (b"", 0)
        if not self._before.startswith(value):
            return revision
        value += new_uid(self._rng).encode() + b"\n"
        try:
            return await self._committer.commit(Write(RESTORES_KEY, value, revision))
        except OutOfSpace:
            return await self._storage.current_revision()

    async def _end_until(self, bound: int) -> None:
        after, more = "", True
        while more:
            page = await self._storage.page(ELECTIONS_PREFIX, after=after)
            for record in page.items:
                if record.create_revision <= bound:
                    log.warning("%s: etcd was restored, token %d ends", record.key, record.create_revision)
                    await self._committer.commit(Write(record.key, None, expected=record.mod_revision))
            after, more = page.items[-1].key if page.items else "", page.more

    def _changed(self, change: Change) -> None:
        self._followed = change.value or b""
