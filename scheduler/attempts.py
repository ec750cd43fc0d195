"""Marks pods whose scheduling attempt may have ended a leader's term, so that the next leader does not start with the same pod.

A plugin that never returns, or that crashes the process, leaves no time to report the pod. So the leader writes a mark before
the attempt, but only if there is a reason: a mark for each pod would double the writes of a scheduler.

    two terms in a row were short, and no leader resigned
        |
        v
    the next leader is careful for CAREFUL seconds: it marks each pod, waits for the answer, and schedules it
        |
        +-- the attempt ends: the condition PodScheduled removes the mark; on a bound pod the mark stays, without meaning
        '-- the term ends during the attempt: the mark stays. Every replica holds the pod back for FIRST seconds and schedules
            others. The next attempt is always marked, and the delay doubles each time, up to MOST

The mark is a condition of the pod, written under the leader's fence. Informers bring it to every replica. lastTransitionTime is
the start of the first attempt that has not ended, lastProbeTime the start of the last one.

How earlier terms ended is read from the API servers every INTERVAL seconds, in the background: an election does not wait for
it. A leader with outdated knowledge may lose one more term to the pod.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.elections_pb2 import Term
from pinnace.api.pods import status_of
from pinnace.api.scalars import to_seconds, to_time
from pinnace.client.errors import ApiError
from pinnace.runtime.clock import Clock

MARK = "pinnace.io/SchedulingAttempt"
"""The type of the condition. Unknown: an attempt has begun, and nobody has said that it ended. False: it has."""
CAREFUL = 10.0
"""Seconds at the beginning of a term."""
SHORT = 5.0
"""Seconds. A leader that meets such a pod first leads for two to three: until its silence is noticed."""
INTERVAL = 2.0
FIRST, MOST = 10.0, 600.0
"""Seconds for which a marked pod is held back."""
RESIGNED = "resigned"
"""The reason of a term that ended as it should."""


class AttemptMarks:
    def __init__(self, history: Callable[[], Awaitable[Sequence[Term]]], clock: Clock) -> None:
        """`history`: the last terms of the election, oldest first. May raise ApiError."""
        self._history = history
        self._clock = clock
        self.terms: Sequence[Term] = ()
        """As far as it knows."""
        self._careful_until = 0.0

    async def run(self) -> None:
        """Follows the election's history, until cancelled."""
        while True:
            await self.refresh()
            await self._clock.sleep(INTERVAL)

    async def refresh(self) -> None:
        """Asks how terms ended. Without an answer it keeps what it knows."""
        with suppress(ApiError):
            self.terms = await self._history()

    def begin(self, token: int) -> bool:
        """A term begins. Is its leader careful?"""
        careful = ended_soon([term for term in self.terms if term.token < token], self._clock.time())
        self._careful_until = self._clock.monotonic() + CAREFUL if careful else 0.0
        return careful

    def must_mark(self, pod: Pod, now: float) -> bool:
        """Is the attempt to be marked that begins `now`, in monotonic seconds?"""
        return now < self._careful_until or is_marked(pod)


def ended_soon(terms: Sequence[Term], now: float) -> bool:
    """Were the last two terms short, and did nobody resign? They end `now`, in Unix time, where their end is not known."""
    return len(terms) >= 2 and all(_ended_soon(term, now) for term in terms[-2:])


def _ended_soon(term: Term, now: float) -> bool:
    ended = to_seconds(term.ended) if term.HasField("ended") else now
    return term.reason != RESIGNED and ended - to_seconds(term.began) < SHORT


def is_marked(pod: Pod) -> bool:
    """Has an attempt begun of which nobody has said that it ended?"""
    mark = conditions.find(pod.status.conditions, MARK)
    return mark is not None and mark.status == "Unknown"


def held_back(pod: Pod, now: float) -> float:
    """Seconds for which nobody tries the pod. `now`: Unix time."""
    mark = conditions.find(pod.status.conditions, MARK)
    if mark is None or mark.status != "Unknown":
        return 0.0
    first, last = to_seconds(mark.lastTransitionTime), to_seconds(mark.lastProbeTime)
    wait = min(max(2 * (last - first), FIRST), MOST)
    return min(max(last + wait - now, 0.0), MOST)


def marked(pod: Pod, now: float) -> Pod:
    """The pod's status, with the mark of an attempt that begins `now`, in Unix time."""
    changed = status_of(pod)
    message = "an attempt to schedule the pod has begun; if it does not end, the pod waits, and is tried again later"
    mark = conditions.say(changed.status.conditions, MARK, "Unknown", "AttemptBegun", message, now)
    mark.lastProbeTime.CopyFrom(to_time(now))
    return changed


def take_back(changed: Pod, now: float) -> None:
    """The attempt has ended."""
    conditions.say(changed.status.conditions, MARK, "False", "AttemptEnded", "", now)
