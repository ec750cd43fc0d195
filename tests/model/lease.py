"""Clocks: may a leader act by its own clock when its lease may have run out?

    candidate: sends a beat --.                                    .--> may act until `sent + validity`
    server:                    '-> asks etcd to renew --.      .--'    answers the beats that had come when it asked
    etcd:                                                '----'        the lease lives until `then + ttl`

Whatever is on its way takes as long as it likes. Time is monotonic and goes on at the same pace for all; the code's MARGIN is
for clocks that do not tick alike. Times are kept as differences to now, so that there are finitely many states.

Abstracts apiserver.services.sessions (Session.beat, Session.keep, Timing), pinnace.client.election (Candidate._extend, Term)
and etcd's leases.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from tests.model.checker import Step


class Rule(Enum):
    """What the proof rests on, apart from the numbers."""

    COUNT_FROM_SENT = "count-from-answer", "the candidate counts from when it sent the beat, not from when the answer came"
    ANSWER_EARLIER = "answer-later", "a renewal answers only the beats that had come when it was asked for"
    ANSWER_RENEWED = "answer-anyway", "a beat is answered only once the lease was renewed for it"

    def __init__(self, breaking: str, statement: str) -> None:
        self.breaking = breaking
        self.statement = statement


class Clocks(NamedTuple):
    """All times are ticks from now: what is past is negative. None: there is no such thing."""

    lease: int
    """When the lease runs out."""
    until: int
    """Until when the candidate may act."""
    beat: int | None = None
    """When the beat that is on its way was sent."""
    latest: int | None = None
    """When the last beat that has come to the server, and was not answered, was sent."""
    asked: int | None = None
    """The same of the beat for which etcd was asked to renew."""
    granted: bool = False
    """etcd has renewed the lease; the server does not know yet."""
    answered: int | None = None
    """When the beat whose answer is on its way was sent."""


TEXTS = {
    "tick": "a tick passes",
    "beat": "the candidate sends a beat",
    "arrive": "the beat comes to the server",
    "ask": "the server asks etcd to renew the lease",
    "answer-anyway": "the server answers the beat, whatever etcd says",
    "grant": "etcd renews the lease",
    "told": "the server is told, and answers the beat",
    "hear": "the candidate hears the answer",
}


class LeaseModel:
    """`ttl` and `validity` as in apiserver.services.sessions.Timing, in ticks."""

    def __init__(self, ttl: int, validity: int, *, broken: Iterable[Rule] = ()) -> None:
        self._ttl = ttl
        self._validity = validity
        self._rules = frozenset(Rule) - frozenset(broken)

    def initial(self) -> Iterable[Clocks]:
        """The session has just been opened, and its opening counts as a beat that was answered."""
        yield Clocks(lease=self._ttl, until=self._validity)

    def steps(self, state: Clocks) -> Iterator[Step[Clocks]]:
        yield Step(("tick",), Clocks._make(_earlier(value) for value in state))
        if state.until <= 0 or state.lease <= 0:
            return  # a lapse is final, and so is the end of a lease
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
        """What is so long ago that it makes no difference how long."""
        floor = -self._ttl - 1
        return Clocks._make(value if value is None or value > floor else floor for value in state)

    def wrong(self, state: Clocks) -> str | None:
        return "the candidate may act, and its lease has run out" if state.until > 0 >= state.lease else None

    def good(self, state: Clocks) -> bool:
        """There is nothing to recover to: a candidate whose term has lapsed begins a new session."""
        return True


def _earlier(value: int | None) -> int | None:
    """A time, a tick later. What is no time stays what it is."""
    return value if value is None or isinstance(value, bool) else value - 1
