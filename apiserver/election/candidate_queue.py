"""The candidates of one election on one server (CandidateQueue).

Candidates of one server are ordered: the one that has waited longest campaigns first, if its last heartbeat is recent. During a
transfer, the nominated candidate is first, and the others wait for up to NOMINEE_PRECEDENCE seconds. The order is best effort,
and only the key determines the leader. Candidates of several servers race in etcd; the losers continue to wait.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pinnace.api.elections_pb2 import Election, Nomination, Term
from pinnace.api.resources import ELECTIONS_PREFIX, election_key, nomination_key
from pinnace.api.scalars import to_micro_time
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.store import CacheError
from pinnace.apiserver.election.term_history import (
    LEASE_EXPIRED,
)
from pinnace.apiserver.services.sessions import SessionStream, StreamEvent, decode_record, election_of
from pinnace.apiserver.storage.interface import KeyChange, KeyValue
from pinnace.runtime.clock import Clock

CandidateStream = SessionStream[Any, Any]

NOMINEE_PRECEDENCE = 1.0
"""Seconds after the deletion of the key for which other candidates wait for the nominee."""
CACHE_LAG = 1.0
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


class CandidateQueue:
    """The candidates of one election on this server."""

    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self.name = name
        self.key = election_key(name)
        self.nomination_key = nomination_key(name)
        self._cacher = cacher
        self._clock = clock
        self._vacant_since = float("-inf")
        self._last_delete = 0
        """The revision of this server's last deletion of the key."""
        self._streams: list[CandidateStream] = []
        self._queue: list[CandidateStream] = []
        self._latest_term = term_of_key(record) if (record := self.cached_key()) else None
        self._last_put = 0
        """The revision of this server's last put of the key. Until the cache has reached it, the cache has no current
        leader."""
        self._last_put_at = float("-inf")

    def cached_key(self) -> KeyValue | None:
        """Return the key in the cache; None if it does not exist or this server has just deleted it."""
        if self._cacher.revision < self._last_delete and self._clock.monotonic() - self._vacant_since < CACHE_LAG:
            return None
        return self._cacher.raw_key(self.key)

    async def wait_for_revision(self, revision: int, timeout: float) -> None:
        """Wait until the cache has reached `revision`, for at most `timeout` seconds."""
        with suppress(CacheError):
            await self._cacher.wait_for(revision, timeout)

    def key_state(self, held: HeldKey) -> KeyState:
        return key_state(held, self.cached_key(), self._cacher.revision)

    def add_candidate(self, stream: CandidateStream) -> None:
        """Add a candidate to the end of the queue. Its stream receives the changes of the election."""
        self._streams.append(stream)
        self._queue.append(stream)

    def remove_candidate(self, stream: CandidateStream) -> None:
        self._streams.remove(stream)
        self.remove_from_queue(stream)

    def record_leader(self, stream: CandidateStream, held: HeldKey) -> None:
        """Record that a candidate leads after a put of this server."""
        self._last_put, self._last_put_at = held.mod_revision, self._clock.monotonic()
        self.remove_from_queue(stream)

    def record_deletion(self, revision: int) -> None:
        """Record that this server deleted the key at `revision`. The next candidate then does not wait for the cache."""
        self._last_delete = revision
        self._vacant_since = self._clock.monotonic()
        self._notify_all()

    def remove_from_queue(self, stream: CandidateStream) -> None:
        """Remove a candidate that leads or has left, and notify the next one."""
        if stream in self._queue:
            self._queue.remove(stream)
            for next_stream in self._queue[:1]:
                next_stream.post_event(StreamEvent.CHANGED)

    def is_next(self, stream: CandidateStream) -> bool:
        """Report whether the stream belongs to the first waiting candidate with a recent heartbeat."""
        return next((waiting for waiting in self._queue if waiting.recent), None) is stream

    def nomination(self) -> tuple[KeyValue, Nomination] | None:
        """Return the nomination of the current transfer; None if there is none or it cannot be decoded."""
        record = self._cacher.raw_key(self.nomination_key)
        nomination = decode_record(Nomination, record.value) if record else None
        return (record, nomination) if record and nomination else None

    def may_create_key(self, stream: CandidateStream, session: int) -> bool:
        """Report whether a candidate may try to create the key now. The cache must not contain a key."""
        if self._cacher.revision < self._last_put and self._clock.monotonic() - self._last_put_at < CACHE_LAG:
            return False
        nomination = self.nomination()
        if nomination is not None and (nominee := nomination[1].session):
            if nominee == session:
                return True
            if self._clock.monotonic() - self._vacant_since < NOMINEE_PRECEDENCE:
                return False
        return self.is_next(stream)

    def find_rival(self, scheduler_names: Sequence[str]) -> Election | None:
        """Return another election, by the cache, whose leader binds pods of one of these schedulers. Two such leaders would
        schedule the same pods independently. This check detects wrong configurations. It is not a lock."""
        names = set(scheduler_names)
        elections = (election_of(record) for record in self._cacher.raw_keys(ELECTIONS_PREFIX) if record.key != self.key)
        return next((other for other in elections if not names.isdisjoint(other.scheduler_names)), None) if names else None

    def apply_change(self, change: KeyChange) -> None:
        """Apply a change of the key or the nomination, and notify all candidates."""
        if change.key == self.key:
            self._update_latest_term(change)
        self._notify_all()

    def _notify_all(self) -> None:
        for stream in self._streams:
            stream.post_event(StreamEvent.CHANGED)

    def _update_latest_term(self, change: KeyChange) -> None:
        if change.value is not None:
            self._latest_term = term_of_key(KeyValue(change.key, change.value, change.create_revision, change.mod_revision, 1))
            return
        self._vacant_since = self._clock.monotonic()
        if self._latest_term is not None:
            self._latest_term.ended.CopyFrom(to_micro_time(self._clock.time()))
            self._latest_term.reason, self._latest_term.presumed = LEASE_EXPIRED, True

    def previous_term(self, token: int) -> Term | None:
        """Return the last ended term that this server observed, if its token is lower. Its reason is presumed."""
        latest = self._latest_term
        return latest if latest is not None and latest.token < token and latest.HasField("ended") else None

    @property
    def is_empty(self) -> bool:
        return not self._streams


def term_of_key(record: KeyValue) -> Term:
    """Return the term of the key, without an end."""
    election = election_of(record)
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)
