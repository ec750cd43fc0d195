"""Mark pods whose scheduling attempt may have ended a leader's term, so that the next leader schedules other pods first.

A plugin that blocks forever or crashes the process leaves no time to report the pod. The leader therefore writes a mark before
the attempt. It writes marks only after two failed terms, because a mark for each pod doubles the writes of the scheduler.

    two consecutive terms were short, and no leader resigned
        |
        v
    for CAREFUL seconds, the next leader marks each pod, waits for the response, and schedules the pod
        |
        +-- the attempt ends: the condition PodScheduled removes the mark. A bound pod keeps its mark, which has no effect
        '-- the term ends during the attempt: the mark remains. Every replica delays the pod for FIRST seconds and schedules
            other pods. The next attempt is always marked. The delay doubles with each attempt, up to MOST seconds

The mark is a condition of the pod, written under the leader's fence. Informers deliver it to every replica.
lastTransitionTime is the start of the first unfinished attempt, and lastProbeTime the start of the most recent attempt.

A background task reads the results of earlier terms from the API servers every INTERVAL seconds, so that an election does not
wait for them. A leader with outdated results may lose one more term to the pod.
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
"""The condition type. Unknown: an attempt has begun and no end is recorded. False: the attempt has ended."""
CAREFUL = 10.0
"""Seconds after the start of a term during which a careful leader marks each pod."""
SHORT = 5.0
"""Seconds. A shorter term counts as failed. A blocked leader loses its lease after two to three seconds."""
INTERVAL = 2.0
FIRST, MOST = 10.0, 600.0
"""Minimum and maximum delay of a marked pod, in seconds."""
RESIGNED = "resigned"
"""The reason of a term that its leader ended."""


class AttemptMarks:
    def __init__(self, history: Callable[[], Awaitable[Sequence[Term]]], clock: Clock) -> None:
        """`history` returns the last terms of the election, oldest first. It may raise ApiError."""
        self._history = history
        self._clock = clock
        self.terms: Sequence[Term] = ()
        """The terms of the last successful refresh."""
        self._careful_until = 0.0

    async def run(self) -> None:
        """Refresh the terms periodically until cancelled."""
        while True:
            await self.refresh_terms()
            await self._clock.sleep(INTERVAL)

    async def refresh_terms(self) -> None:
        """Read the terms of the election. On an error the previous terms remain."""
        with suppress(ApiError):
            self.terms = await self._history()

    def begin_term(self, token: int) -> bool:
        """Begin a term. Return True if the leader marks each pod at first."""
        careful = last_terms_were_short([term for term in self.terms if term.token < token], self._clock.time())
        self._careful_until = self._clock.monotonic() + CAREFUL if careful else 0.0
        return careful

    def must_mark(self, pod: Pod, now: float) -> bool:
        """Return True if an attempt that begins at `now`, in monotonic seconds, needs a mark."""
        return now < self._careful_until or has_attempt_mark(pod)


def last_terms_were_short(terms: Sequence[Term], now: float) -> bool:
    """Return True if the last two terms were short and no leader resigned.

    A term without a recorded end counts as ended at `now`, in Unix time.
    """
    return len(terms) >= 2 and all(_was_short(term, now) for term in terms[-2:])


def _was_short(term: Term, now: float) -> bool:
    ended = to_seconds(term.ended) if term.HasField("ended") else now
    return term.reason != RESIGNED and ended - to_seconds(term.began) < SHORT


def has_attempt_mark(pod: Pod) -> bool:
    """Return True if the pod has an attempt without a recorded end."""
    mark = conditions.find_condition(pod.status.conditions, MARK)
    return mark is not None and mark.status == "Unknown"


def remaining_delay(pod: Pod, now: float) -> float:
    """Return the remaining delay of the pod, in seconds. `now` is Unix time."""
    mark = conditions.find_condition(pod.status.conditions, MARK)
    if mark is None or mark.status != "Unknown":
        return 0.0
    first, last = to_seconds(mark.lastTransitionTime), to_seconds(mark.lastProbeTime)
    wait = min(max(2 * (last - first), FIRST), MOST)
    return min(max(last + wait - now, 0.0), MOST)


def with_attempt_mark(pod: Pod, now: float) -> Pod:
    """Return the pod's status with the mark of an attempt that begins at `now`, in Unix time."""
    changed = status_of(pod)
    message = "a scheduling attempt has begun; if it does not complete, the pod is retried later"
    mark = conditions.set_condition(changed.status.conditions, MARK, "Unknown", "AttemptBegun", message, now)
    mark.lastProbeTime.CopyFrom(to_time(now))
    return changed


def record_attempt_end(changed: Pod, now: float) -> None:
    """Record the end of the attempt in the mark."""
    conditions.set_condition(changed.status.conditions, MARK, "False", "AttemptEnded", "", now)
