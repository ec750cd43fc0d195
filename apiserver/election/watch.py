"""The watch of elections: a stream of the changes of leaders, candidates and terms.

    etcd --one watch--> Cacher --raw keys--> ElectionWatch of each stream --> ElectionWatchResponse

All streams share the etcd watch of the cache. The first response contains the current state of all elections. Later responses
contain all changes in order. A stream with more than MAX_UNSENT unsent changes ends with OUT_OF_RANGE.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from pinnace.api.elections_pb2 import Candidate, Election, ElectionState, ElectionWatchResponse, Term
from pinnace.api.resources import (
    CANDIDATES_PREFIX,
    ELECTIONS_PREFIX,
    TERMS_PREFIX,
    candidates_prefix,
    election_key,
    terms_prefix,
)
from pinnace.api.scalars import to_micro_time, to_seconds
from pinnace.api.status import Code, Refusal
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.election.term_history import MAX_STORED_TERMS, decode_terms, terms_with_presumed_ends
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.sessions import decode_record, election_of
from pinnace.apiserver.storage.interface import KeyChange, KeyValue
from pinnace.runtime.clock import Clock

MAX_UNSENT = 1000
"""Maximum number of unsent changes of a stream."""
IDLE_INTERVAL = 2.0
"""Seconds after which a response without changes is sent."""


def election_with_candidates(cacher: Cacher, name: str, record: KeyValue | None) -> Election:
    """Return the election with its waiting candidates. `record` is None if the election has no leader."""
    election = election_of(record) if record is not None else Election(name=name)
    lease = record.lease if record is not None else 0
    standing = (raw_item for raw_item in cacher.raw_keys(candidates_prefix(name)) if raw_item.lease != lease)
    candidates = filter(None, (decode_record(Candidate, item.value) for item in standing))
    for candidate in sorted(candidates, key=lambda item: to_seconds(item.since)):
        candidate.ClearField("session")
        election.candidates.append(candidate)
    return election


def election_names(cacher: Cacher) -> list[str]:
    """Return the names of all elections with a leader or stored terms."""
    led = {raw_item.key.removeprefix(ELECTIONS_PREFIX) for raw_item in cacher.raw_keys(ELECTIONS_PREFIX)}
    past = {raw_item.key.removeprefix(TERMS_PREFIX).rpartition("/")[0] for raw_item in cacher.raw_keys(TERMS_PREFIX)}
    return sorted(led | past)


def election_state(cacher: Cacher, name: str, now: float) -> ElectionState:
    """Return the election with its stored terms. `now` is in Unix seconds."""
    record, records = cacher.raw_key(election_key(name)), cacher.raw_keys(terms_prefix(name))
    election = election_with_candidates(cacher, name, record)
    terms = terms_with_presumed_ends(decode_terms(records), election.token, to_micro_time(now))
    if election.token and all(term.token != election.token for term in terms):
        terms.append(_started_term(election))
    revision = max((item.mod_revision for item in (*records, *filter(None, [record]))), default=0)
    return ElectionState(election=election, terms=terms[-MAX_STORED_TERMS:], revision=revision)


class ElectionWatch:
    """The watch of one stream. `name` is the name of an election; "" for all elections."""

    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self._name = name
        self._cacher = cacher
        self._clock = clock
        self._tokens: dict[str, int] = {}
        """The token of the last leader that was sent, by election."""
        self._unsent: list[ElectionState] = []
        self._overflowed = False
        self._ended = False
        self._changed = asyncio.Event()

    async def responses(self) -> AsyncGenerator[ElectionWatchResponse, None]:
        """Yield the responses. Raises Rejected."""
        stops = self._subscribe()
        try:
            names = [self._name] if self._name else election_names(self._cacher)
            states = [election_state(self._cacher, name, self._clock.time()) for name in names]
            self._tokens = {state.election.name: state.election.token for state in states}
            yield ElectionWatchResponse(events=[item for item in states if item.revision], revision=self._cacher.revision)
            while not self._ended:
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_INTERVAL):
                        await self._changed.wait()
                self._changed.clear()
                if self._overflowed:
                    raise Rejected(Refusal(Code.OUT_OF_RANGE, "Expired", f"more than {MAX_UNSENT} unsent changes: watch again"))
                events, self._unsent = self._unsent, []
                yield ElectionWatchResponse(events=events, revision=self._cacher.revision)
        finally:
            for stop in stops:
                stop()

    def end_stream(self) -> None:
        """End the stream without an error, because the server stops."""
        self._ended = True
        self._changed.set()

    def _subscribe(self) -> list[Callable[[], None]]:
        name, subscribe = self._name, self._cacher.subscribe
        return [
            subscribe(election_key(name) if name else ELECTIONS_PREFIX, self._on_election),
            subscribe(terms_prefix(name) if name else TERMS_PREFIX, self._on_term),
            subscribe(candidates_prefix(name) if name else CANDIDATES_PREFIX, self._on_candidate),
        ]

    def _on_election(self, change: KeyChange) -> None:
        name = change.key.removeprefix(ELECTIONS_PREFIX)
        if self._name not in ("", name):
            return
        record = None
        if change.value is not None:
            record = KeyValue(change.key, change.value, change.create_revision, change.mod_revision, 1, change.lease)
        election = election_with_candidates(self._cacher, name, record)
        is_new, self._tokens[name] = election.token != self._tokens.get(name, 0), election.token
        terms = [_started_term(election)] if election.token and is_new else []
        self._queue_state(ElectionState(election=election, terms=terms, revision=change.mod_revision))

    def _on_term(self, change: KeyChange) -> None:
        term = decode_record(Term, change.value) if change.value is not None else None
        if term is not None:
            name = change.key.removeprefix(TERMS_PREFIX).rpartition("/")[0]
            self._queue_state(ElectionState(election=self._current_election(name), terms=[term], revision=change.mod_revision))

    def _on_candidate(self, change: KeyChange) -> None:
        name = change.key.removeprefix(CANDIDATES_PREFIX).rpartition("/")[0]
        self._queue_state(ElectionState(election=self._current_election(name), revision=change.mod_revision))

    def _current_election(self, name: str) -> Election:
        return election_with_candidates(self._cacher, name, self._cacher.raw_key(election_key(name)))

    def _queue_state(self, state: ElectionState) -> None:
        if len(self._unsent) >= MAX_UNSENT:
            self._overflowed = True
        else:
            self._unsent.append(state)
        self._changed.set()


def _started_term(election: Election) -> Term:
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)
