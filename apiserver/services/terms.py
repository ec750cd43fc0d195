"""The terms of elections: who led, from when to when, and why it ended. For people; nothing is decided by it.

    note(term) --> bounded queue --> run(): merged into what is stored, under compare-and-swap
                                      '---> a new term: the earlier ones are over, and the oldest are forgotten

Guarantees: an election and a deposition wait for none of this: `note` only puts into a queue. What several servers note of one
term comes together whatever the order, and noting a thing twice changes nothing; so a lost answer is simply tried again. An end
that somebody saw wins over one that is presumed, and the first of two that were seen over the second.

Does not promise completeness: what is noted while the store is away for longer than PATIENCE, or dies with its server, is lost.
Of a term whose server died, the next leader's server presumes the end: the lease ran out, when the next term began at the
latest. How long nobody led before that is not known.

Times are those of the servers' wall clocks; a gap between two terms is as exact as these agree. That of a leader which stood
down unanswered is when it did, however much later it could say so: it says how long ago that was.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from apiserver.services.records import read
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import KeyValue, OutOfSpace, Storage, StorageError, TooLarge, Write
from pinnace.api.elections_pb2 import Term
from pinnace.api.meta_v1_pb2 import MicroTime
from pinnace.api.resources import term_key, terms_prefix
from pinnace.api.times import to_seconds
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


def terms_in(records: Iterable[KeyValue]) -> list[Term]:
    """Those that can be read, in the same order."""
    return [term for record in records if (term := read(Term, record.value)) is not None]


def accounted_for(terms: Sequence[Term], token: int) -> bool:
    """Is it written down that the term of this token has begun, and that all others are over? 0: there is no such term."""
    going_on = {term.token for term in terms if not term.HasField("ended")}
    return going_on == ({token} if token else set())


class TermLog:
    def __init__(self, storage: Storage, committer: Committer, clock: Clock) -> None:
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._notes: deque[tuple[Term, float]] = deque(maxlen=MAX_NOTES)  # each with the time after which it is given up
        self._noted = asyncio.Event()

    def note(self, term: Term) -> None:
        """A term that has begun, or (with `ended`) one that is over."""
        self._notes.append((term, self._clock.monotonic() + PATIENCE))
        self._noted.set()

    async def run(self) -> None:
        """Writes down what is noted, until cancelled."""
        while True:
            await self._noted.wait()
            await self._clock.sleep(AFTER)
            self._noted.clear()
            while self._notes:
                await self._write_down(*self._notes.popleft())

    async def _write_down(self, term: Term, deadline: float) -> None:
        while True:
            try:
                await self._put(term)
                if not term.HasField("ended"):
                    await self._tidy(term)
                return
            except StorageError as error:
                if isinstance(error, OutOfSpace | TooLarge) or self._clock.monotonic() >= deadline:
                    log.warning('election "%s": cannot write down the term of token %d: %s', term.election, term.token, error)
                    return
                await self._clock.sleep(RETRY)

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
