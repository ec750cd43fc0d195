"""Clocks: can a leader act by its own clock after its lease has expired?

    candidate: sends a heartbeat --.                                .--> may act until `sent + validity`
    server:                         '-> sends a renewal --.     .--'    answers heartbeats that preceded the renewal
    etcd:                                                  '---'        the lease expires at `then + ttl`

Messages can take any time. Time is monotonic and runs at the same rate for all processes. The MARGIN of the code covers clocks
that differ in rate. Times are relative to the current time, so that the number of states is finite.

Abstracts apiserver.services.sessions (LeaseSession.record_heartbeat and keep_alive, Timing), pinnace.client.election
(LeaderElector._extend_term, LocalTerm) and etcd's leases.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from tests.model.checker import Step


class Rule(Enum):
    """Conditions for the safety of a term, besides the timing."""

    COUNT_FROM_SENT = (
        "count-from-answer",
        "the validity of a term starts when the candidate sends a heartbeat, not when it receives the response",
    )
    ANSWER_EARLIER = "answer-later", "a renewal acknowledges only heartbeats that arrived before it was sent"
    ANSWER_RENEWED = "answer-anyway", "the server acknowledges a heartbeat only after a renewal of the lease"

    def __init__(self, breaking: str, statement: str) -> None:
        self.breaking = breaking
        self.statement = statement


class Clocks(NamedTuple):
    """All times are ticks relative to now, negative in the past. None means that there is no such event."""

    lease: int
    """When the lease expires."""
    until: int
    """When the candidate's term ends."""
    beat: int | None = None
    """When the heartbeat in flight was sent."""
    latest: int | None = None
    """When the last unanswered heartbeat that has arrived at the server was sent."""
    asked: int | None = None
    """When the heartbeat that caused the pending renewal was sent."""
    granted: bool = False
    """etcd has renewed the lease, and the response is in flight."""
    answered: int | None = None
    """When the heartbeat whose response is in flight was sent."""


TEXTS = {
    "tick": "time advances by one tick",
    "beat": "the candidate sends a heartbeat",
    "arrive": "the heartbeat arrives at the server",
    "ask": "the server sends the renewal of the lease to etcd",
    "answer-anyway": "the server acknowledges the heartbeat without a renewal",
    "grant": "etcd renews the lease",
    "told": "the server receives the response and acknowledges the heartbeat",
    "hear": "the candidate receives the acknowledgment",
}


class LeaseModel:
    """`ttl` and `validity` as in apiserver.services.sessions.Timing, in ticks."""

    def __init__(self, ttl: int, validity: int, *, broken: Iterable[Rule] = ()) -> None:
        self._ttl = ttl
        self._validity = validity
        self._rules = frozenset(Rule) - frozenset(broken)

    def initial(self) -> Iterable[Clocks]:
        """The session has just been opened. Its opening counts as an acknowledged heartbeat."""
        yield Clocks(lease=self._ttl, until=self._validity)

    def steps(self, state: Clocks) -> Iterator[Step[Clocks]]:
        yield Step(("tick",), Clocks._make(_earlier(value) for value in state))
        if state.until <= 0 or state.lease <= 0:
            return  # the end of a term and the expiry of a lease are final
        if state.beat is None:
            yield Step(("beat",), state._replace(beat=0))
        else:
            yield Step(("arrive",), state._replace(beat=None, latest=state.beat))
        if state.latest is not None and state.asked is None:
            yield Step(("ask",), state._replace(asked=state.latest))
        if state.latest is not None and Rule.ANSWER_RENEWED not in self._rules:
            yield Step(("answer-anyway",), state._replace(answered=state.latest))
        if state.asked is not None and not state.granted:
            yield Step(("grant",), state._replace(granted=True, lease=self._ttl))
        if state.granted:
            answered = state.asked if Rule.ANSWER_EARLIER in self._rules else state.latest
            latest = None if state.latest == answered else state.latest
            yield Step(("told",), state._replace(asked=None, granted=False, answered=answered, latest=latest))
        if state.answered is not None:
            sent = state.answered if Rule.COUNT_FROM_SENT in self._rules else 0
            yield Step(("hear",), state._replace(answered=None, until=max(state.until, sent + self._validity)))

    def ample(self, state: Clocks) -> Iterator[Step[Clocks]]:
        return self.steps(state)

    def canonical(self, state: Clocks) -> Clocks:
        """Limit times in the past to the earliest relevant one."""
        floor = -self._ttl - 1
        return Clocks._make(value if value is None or value > floor else floor for value in state)

    def wrong(self, state: Clocks) -> str | None:
        return "the candidate may act after its lease has expired" if state.until > 0 >= state.lease else None

    def good(self, state: Clocks) -> bool:
        """Recovery is not modeled: a candidate whose term has ended opens a new session."""
        return True


def _earlier(value: int | None) -> int | None:
    """Shift a time by one tick. Other values are unchanged."""
    return value if value is None or isinstance(value, bool) else value - 1
