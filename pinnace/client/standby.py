"""A replica that is a hot standby, and leads when it is elected.

    standby --elected--> barrier --informers have reached the token--> leading --lost--> standby
                            |                                                    ^
                            +---------------------- lost ------------------------+

* A standby is hot: its informers run whether it leads or not. It becomes a candidate once they are synced.
* The barrier: a term begins when the informers have reached the revision of the election, which is its token. The writes of
  earlier leaders are known then, and nothing is done twice because a replica was behind.
* When leadership is lost, `on_lost` is called at once, and the term is cancelled. The next term begins after it has ended.
* A leader resigns if its term ends early (it returns, raises, or is cancelled from within), or if it makes no progress for the
  time of its ProgressTimeout. The log and /readyz say why, and another replica leads at once. `run` raises TermFailed, and the
  component is restarted (RestartSupervisor in informer.py).

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
from pinnace.client.election import Candidate
from pinnace.client.informer import RestartRequired
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import LeadershipAbandoned
from pinnace.runtime.supervise import LOG_INTERVAL, EndedEarly, describe, unending

log = logging.getLogger(__name__)

SYNC_TIMEOUT = 5.0
"""Seconds for which informers may be behind before it is logged."""
CHECK_INTERVAL = 0.9
"""Seconds between two checks of a leader's progress. Not a whole second, like backoffs, so that the two do not coincide."""
FAILED_TERMS = Counter("leader_election_failed_terms", "Terms that this process gave up because it made no progress.", ["name"])


class TermFailed(RestartRequired):
    """A term ended early, or made no progress."""


@dataclass(slots=True)
class ProgressTimeout:
    """The time without progress, in seconds, after which a leader resigns. It doubles with each term that is given up, up to
    `longest`: if no replica can make progress, leadership must not move all the time. A term that makes progress for twice
    `first` resets it.

    It outlives the Standby: pass the same one to the next."""

    first: float = 10.0
    longest: float = 600.0
    failures: int = 0

    @property
    def seconds(self) -> float:
        return min(self.longest, self.first * 2.0 ** min(self.failures, 32))


class Informed(Protocol):
    """Several informers. `timeout` is in seconds, for each; a TimeoutError names the informer that is behind."""

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
        informers: Informed,
        *,
        lead: Callable[[int], Coroutine[Any, Any, None]],
        on_lost: Callable[[], None],
        scheduler_names: Sequence[str] = (),
        configuration: str = "",
        stuck: Callable[[], str | None] = lambda: None,
        patience: ProgressTimeout | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`lead(token)`: the leader's work in one term, from the barrier on; cancelled when leadership is lost. `on_lost` is
        called before that, also for a term that has not passed the barrier, and must not block. `scheduler_names`,
        `configuration`: as Candidate's. `stuck` returns why the leader makes no progress, or None. It is called every
        CHECK_INTERVAL seconds while this replica leads."""
        self._election = election
        self._clock = clock
        self._stuck = stuck
        self._patience = patience or ProgressTimeout()
        self._complaint: str | None = None
        self._elected_at = 0.0
        self._begun: asyncio.Task[None] | None = None
        """The term that has passed the barrier."""
        self._behind = ""
        self._failed: str | None = None
        self._ending = False
        self._informers = informers
        self._lead = lead
        self._on_lost = on_lost
        self._candidate = Candidate(
            connection,
            election,
            holder,
            on_elected=self._elected,
            on_lost=self._lost,
            scheduler_names=scheduler_names,
            configuration=configuration,
            clock=clock,
        )
        self._terms = asyncio.TaskGroup()
        self._term: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of /readyz. A replica is ready if it could lead at once."""
        return {
            "informers": lambda: self._informers.healthy,
            "election": lambda: self._candidate.healthy,
            "progress": lambda: self._failed or self._complaint,
        }

    @property
    def token(self) -> int | None:
        """The token of the present term while this replica may act in it, or else None."""
        return self._candidate.token if self._term is not None else None

    @property
    def fence(self) -> Fence | None:
        """The fence for writes that are sent now; None if this replica does not lead."""
        return self._candidate.fence

    def fence_of(self, token: int) -> Fence:
        """As Candidate's."""
        return self._candidate.fence_of(token)

    async def run(self) -> None:
        """Runs until cancelled or resigned. Raises TermFailed, in a group."""
        patience = SYNC_TIMEOUT
        async with self._terms:
            try:
                while not self._informers.synced:
                    try:
                        await self._informers.wait_synced(patience)
                    except TimeoutError as error:
                        log.warning("not a candidate yet: %s", error)
                        patience = LOG_INTERVAL
                watching = self._terms.create_task(unending("watch over the leader", self._watch))
                await self._candidate.run()
                watching.cancel()
            finally:
                self._ending = True

    async def resign(self) -> None:
        """Resigns, so that another replica leads at once, and stops campaigning."""
        await self._candidate.resign()

    def fenced(self, token: int) -> None:
        """Call it when a write under this token was refused. Ends the term if it is the present one. Usually another replica
        leads already, and the candidate does not know yet."""
        self._candidate.give_up(token, "its writes are fenced")

    def _stand_down(self) -> None:
        """Ends the term, if there is one."""
        if self._term is not None:
            self._term.cancel()
            self._term = None
            self._on_lost()

    def _elected(self, token: int) -> None:
        self._elected_at, self._behind = self._clock.monotonic(), "the term before has not ended"
        self._term = self._terms.create_task(self._serve(token))

    def _lost(self, reason: str) -> None:
        self._stand_down()

    async def _serve(self, token: int) -> None:
        async with self._one_at_a_time:
            if not await self._reached(token):
                return
            self._begun = self._term
            problem: BaseException = EndedEarly("it has returned")
            try:
                await self._lead(token)
                if self.token != token:  # it has expired, and `_lost` has not been called yet
                    return
            except BaseException as error:  # SystemExit, and a CancelledError from within, would end it silently
                if self._ending or self._term is not asyncio.current_task():
                    raise
                problem = error
            if self._term is asyncio.current_task() and not self._ending:
                self._term = None  # otherwise this task would be cancelled now
                self._on_lost()
                await self._give_up(f"the term with token {token} ended early: {describe(problem)}", problem)

    async def _watch(self) -> None:
        """Gives up a term that makes no progress."""
        since = went_on = self._clock.monotonic()
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            now = self._clock.monotonic()
            before, self._complaint = self._complaint, self._look()
            if self.token is None or self._complaint is None:
                since = now
                if self.token is None:
                    went_on = now
                elif now - went_on >= 2 * self._patience.first:
                    self._patience.failures = 0
                continue
            went_on = now
            if before is None:
                log.warning("this leader makes no progress: %s", self._complaint)
            if now - since >= self._patience.seconds:
                problem = f"no progress for {now - since:.0f} s: {self._complaint}"
                self._stand_down()
                await self._give_up(problem, None)

    def _look(self) -> str | None:
        """Why the leader makes no progress; None if it does, or this replica does not lead."""
        if self.token is None:
            return None
        if self._begun is not self._term:
            late = self._clock.monotonic() - self._elected_at >= SYNC_TIMEOUT
            return f"the term has not begun: {self._behind}" if late else None
        return self._stuck() or self._informers.healthy

    async def _give_up(self, problem: str, cause: BaseException | None) -> NoReturn:
        """Resigns, so that another replica leads. Raises TermFailed."""
        self._failed = problem
        self._patience.failures += 1
        FAILED_TERMS.labels(self._election).inc()
        abandoned = LeadershipAbandoned(self._election, problem).extra
        log.critical('resigning from election "%s": %s', self._election, problem, exc_info=cause, extra=abandoned)
        await self._candidate.resign()
        raise TermFailed(problem) from cause

    async def _reached(self, token: int) -> bool:
        """The barrier: waits until the writes of earlier leaders are known. Returns False if the term ends meanwhile."""
        while self.token == token:
            try:
                await self._informers.wait_for(token, SYNC_TIMEOUT)
            except TimeoutError as error:
                self._behind = str(error)
                log.warning("the term cannot begin yet: %s", error)
            else:
                return self.token == token
        return False
