"""A replica that is a hot standby, and leads when it is elected.

    standby --elected--> barrier --informers have reached the token--> leading --lost--> standby
                            |                                                    ^
                            +---------------------- lost ------------------------+

* A standby is hot: its informers run even if it does not lead. It becomes a candidate when they are synced.
* The barrier: a term starts when the informers have reached the revision of the election, which is its token. The informers
  then contain all writes of earlier leaders, so the new leader repeats none of their work.
* If leadership is lost, `on_lost` is called immediately and the term is cancelled. The next term starts after it has ended.
* A leader resigns if its term ends early (it returns, raises, or cancels itself), or if it makes no progress for the duration
  of its ProgressTimeout. The log and /readyz report the reason. `run` raises TermFailed, and RestartSupervisor in informer.py
  restarts the component.

The token may expire before `on_lost` is called: read it before each action.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from prometheus_client import Counter

from pinnace.api.pods_pb2 import Fence
from pinnace.client.channel import Caller
from pinnace.client.election import LeaderElector
from pinnace.client.informer import RestartRequired
from pinnace.runtime.backoff import exponential_delay
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import LeadershipAbandoned
from pinnace.runtime.supervise import LOG_INTERVAL, EndedEarly, describe_error, run_unending

log = logging.getLogger(__name__)

SYNC_TIMEOUT = 5.0
"""Seconds after which informers that are behind are logged."""
CHECK_INTERVAL = 0.9
"""Seconds between two checks of a leader's progress. The value is not a whole second, so that checks and backoffs do not
coincide."""
FAILED_TERMS = Counter("leader_election_failed_terms", "Terms that ended early or made no progress.", ["name"])


class TermFailed(RestartRequired):
    """A term ended early or made no progress."""


@dataclass(slots=True)
class ProgressTimeout:
    """The time without progress, in seconds, after which a leader resigns.

    It doubles with each failed term, up to `longest`, so that leadership does not move continuously if no replica can make
    progress. A term that makes progress for twice `first` resets it. Pass the same instance to each new Standby."""

    first: float = 10.0
    longest: float = 600.0
    failures: int = 0

    @property
    def seconds(self) -> float:
        return exponential_delay(self.first, self.longest, self.failures)


class InformerSet(Protocol):
    """A set of informers. `timeout` is in seconds and applies to each informer. A TimeoutError names the informer that is
    behind."""

    @property
    def synced(self) -> bool: ...

    @property
    def healthy(self) -> str | None:
        """None, or the problem of an informer."""
        ...

    async def wait_synced(self, timeout: float) -> None: ...

    async def wait_for(self, revision: int, timeout: float) -> None: ...


class Standby:
    def __init__(
        self,
        connection: Caller,
        election: str,
        holder: str,
        informers: InformerSet,
        *,
        lead: Callable[[int], Coroutine[Any, Any, None]],
        on_lost: Callable[[], None],
        scheduler_names: Sequence[str] = (),
        configuration: str = "",
        find_stall: Callable[[], str | None] = lambda: None,
        progress_timeout: ProgressTimeout | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`lead(token)`: the leader's work in one term, started after the barrier and cancelled when leadership is lost.
        `on_lost` is called before the cancellation, even if the term has not passed the barrier. It must not block.
        `scheduler_names` and `configuration`: see LeaderElector. `find_stall` returns the reason why the leader makes no
        progress, or None. It is called every CHECK_INTERVAL seconds during a term."""
        self._election = election
        self._clock = clock
        self._find_stall = find_stall
        self._progress_timeout = progress_timeout or ProgressTimeout()
        self._problem: str | None = None
        self._elected_at = 0.0
        self._started_term: asyncio.Task[None] | None = None
        """The task of the term that has passed the barrier."""
        self._delay_reason = ""
        self._failure: str | None = None
        self._ending = False
        self._informers = informers
        self._lead = lead
        self._on_lost = on_lost
        self._elector = LeaderElector(
            connection,
            election,
            holder,
            on_elected=self._start_term,
            on_lost=lambda reason: self._end_term(),
            scheduler_names=scheduler_names,
            configuration=configuration,
            clock=clock,
        )
        self._tasks = asyncio.TaskGroup()
        self._term: asyncio.Task[None] | None = None
        self._term_lock = asyncio.Lock()

    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of /readyz. A replica is ready if it can lead immediately."""
        return {
            "informers": lambda: self._informers.healthy,
            "election": lambda: self._elector.healthy,
            "progress": lambda: self._failure or self._problem,
        }

    @property
    def token(self) -> int | None:
        """The token of the current term if this replica leads, otherwise None."""
        return self._elector.token if self._term is not None else None

    @property
    def fence(self) -> Fence | None:
        """The fence for writes that are sent now, or None if this replica does not lead."""
        return self._elector.fence

    def fence_of(self, token: int) -> Fence:
        """See LeaderElector.fence_of."""
        return self._elector.fence_of(token)

    async def run(self) -> None:
        """Run until cancelled or resigned. Raises TermFailed in an exception group."""
        timeout = SYNC_TIMEOUT
        async with self._tasks:
            try:
                while not self._informers.synced:
                    try:
                        await self._informers.wait_synced(timeout)
                    except TimeoutError as error:
                        log.warning("waiting to become a candidate: %s", error)
                        timeout = LOG_INTERVAL
                watching = self._tasks.create_task(run_unending("watch over the leader", self._resign_if_stuck))
                await self._elector.run()
                watching.cancel()
            finally:
                self._ending = True

    async def resign(self) -> None:
        """Resign, so that another replica leads immediately, and stop campaigning."""
        await self._elector.release()

    def end_fenced_term(self, token: int) -> None:
        """End the term with this token if it is the current one. Call it when a write is rejected as Fenced: usually another
        replica already leads, and the candidate has not received the event."""
        self._elector.abandon_term(token, "its writes are rejected as fenced")

    def _end_term(self) -> None:
        """End the term, if there is one."""
        if self._term is not None:
            self._term.cancel()
            self._term = None
            self._on_lost()

    def _start_term(self, token: int) -> None:
        self._elected_at, self._delay_reason = self._clock.monotonic(), "the previous term has not ended"
        self._term = self._tasks.create_task(self._run_term(token))

    async def _run_term(self, token: int) -> None:
        async with self._term_lock:
            if not await self._wait_at_barrier(token):
                return
            self._started_term = self._term
            problem: BaseException = EndedEarly("the term has returned")
            try:
                await self._lead(token)
                if self.token != token:  # the token has expired, but `_end_term` has not been called
                    return
            except BaseException as error:  # a SystemExit or CancelledError from `lead` would end the term silently
                if self._ending or self._term is not asyncio.current_task():
                    raise
                problem = error
            if self._term is asyncio.current_task() and not self._ending:
                self._term = None  # otherwise `resign` would cancel this task
                self._on_lost()
                await self._abandon_leadership(f"the term with token {token} ended early: {describe_error(problem)}", problem)

    async def _resign_if_stuck(self) -> None:
        """Resign if a term makes no progress."""
        since = stalled_until = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            now = self._clock.monotonic()
            before, self._problem = self._problem, self._find_problem()
            if self.token is None or self._problem is None:
                since = now
                if self.token is None:
                    stalled_until = now
                elif now - stalled_until >= 2 * self._progress_timeout.first:
                    self._progress_timeout.failures = 0
                continue
            stalled_until = now
            if before is None:
                log.warning("this leader makes no progress: %s", self._problem)
            if now - since >= self._progress_timeout.seconds:
                problem = f"no progress for {now - since:.0f} s: {self._problem}"
                self._end_term()
                await self._abandon_leadership(problem, None)

    def _find_problem(self) -> str | None:
        """Return the reason why the leader makes no progress, or None if it does or this replica does not lead."""
        if self.token is None:
            return None
        if self._started_term is not self._term:
            late = self._clock.monotonic() - self._elected_at >= SYNC_TIMEOUT
            return f"the term has not started: {self._delay_reason}" if late else None
        return self._find_stall() or self._informers.healthy

    async def _abandon_leadership(self, problem: str, cause: BaseException | None) -> NoReturn:
        """Resign, so that another replica leads. Raises TermFailed."""
        self._failure = problem
        self._progress_timeout.failures += 1
        FAILED_TERMS.labels(self._election).inc()
        abandoned = LeadershipAbandoned(self._election, problem).extra
        log.critical('resigning from election "%s": %s', self._election, problem, exc_info=cause, extra=abandoned)
        await self._elector.release()
        raise TermFailed(problem) from cause

    async def _wait_at_barrier(self, token: int) -> bool:
        """Wait at the barrier until the informers contain the writes of earlier leaders. Return False if the term ends
        first."""
        while self.token == token:
            try:
                await self._informers.wait_for(token, SYNC_TIMEOUT)
            except TimeoutError as error:
                self._delay_reason = str(error)
                log.warning("waiting to start the term: %s", error)
            else:
                return self.token == token
        return False
