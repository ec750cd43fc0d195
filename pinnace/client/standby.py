"""A replica that stands by, and leads when it is elected.

    standby --elected--> barrier --informers have reached the token--> leading --lost--> standby
                            |                                                    ^
                            +---------------------- lost ------------------------+

* A standby is hot: its informers run whether it leads or not. It stands for election once there is something to lead with. It
  lacks only the token.
* The barrier: a term begins when the informers have reached the revision of the election, which is its token. What earlier
  leaders wrote is then known, and nothing is done twice because a replica was behind.
* When the lead is lost that is told at once, and the term is cancelled. The next one does not begin before it has ended.
* A leader works, or gives the election up: when its term ends early (it returns, raises, or is cancelled by itself), and when
  it has not gone on with its work for the seconds of its Patience. It then says so in the log and on /readyz, and resigns, so
  that another replica leads at once. `run` raises TermFailed, after which the component restarts (informer.py).

The token may run out by the clock before anybody has been told: whoever acts asks for it each time.
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
from pinnace.client.informer import BeginAnew
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import LeadershipAbandoned
from pinnace.runtime.supervise import QUIET, EndedEarly, describe, unending

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds for which informers may be behind before it is told."""
LOOK = 0.9
"""Seconds between looks at whether a leader goes on with its work. No whole second, as backoffs are: they share no moment."""
FAILED_TERMS = Counter("leader_election_failed_terms", "Terms that this process gave up since they did not go on.", ["name"])


class TermFailed(BeginAnew):
    """A term has ended early, or did not go on."""


@dataclass(slots=True)
class Patience:
    """For how long a leader may not go on, in seconds. It doubles with each term that was given up, up to `longest`: where no
    replica can go on, the election must not be handed round without end. A term that goes on for twice `first` resets it.

    It outlives the Standby: give the same one to the next."""

    first: float = 10.0
    longest: float = 600.0
    failures: int = 0

    @property
    def seconds(self) -> float:
        return min(self.longest, self.first * 2.0 ** min(self.failures, 32))


class Informed(Protocol):
    """Several informers. `timeout` is in seconds, for each; TimeoutError names the one that is behind."""

    @property
    def synced(self) -> bool: ...

    @property
    def healthy(self) -> str | None:
        """None, or which one does not follow, and why."""
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
        patience: Patience | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`lead(token)`: what a leader does in one term, from the barrier on; cancelled when the lead is lost. `on_lost` is
        called before it notices, also for a term that has not reached the barrier, and must not block. `scheduler_names`,
        `configuration`: as Candidate's. `stuck`: what keeps a leader from going on with its work; None: nothing. It is asked
        every LOOK seconds while this replica leads."""
        self._election = election
        self._clock = clock
        self._stuck = stuck
        self._patience = patience or Patience()
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
        """For /readyz. Ready is who could lead at once; it need not lead."""
        return {
            "informers": lambda: self._informers.healthy,
            "election": lambda: self._candidate.healthy,
            "progress": lambda: self._failed or self._complaint,
        }

    @property
    def token(self) -> int | None:
        """Of the present term, while this replica may act in it; else None."""
        return self._candidate.token if self._term is not None else None

    @property
    def fence(self) -> Fence | None:
        """For what is written now; None when this replica does not lead."""
        return self._candidate.fence

    def fence_of(self, token: int) -> Fence:
        """As Candidate's."""
        return self._candidate.fence_of(token)

    async def run(self) -> None:
        """Until cancelled or resigned. Raises TermFailed, in a group."""
        patience = PATIENCE
        async with self._terms:
            try:
                while not self._informers.synced:
                    try:
                        await self._informers.wait_synced(patience)
                    except TimeoutError as error:
                        log.warning("cannot stand for election yet: %s", error)
                        patience = QUIET
                watching = self._terms.create_task(unending("watch over the leader", self._watch))
                await self._candidate.run()
                watching.cancel()
            finally:
                self._ending = True

    async def resign(self) -> None:
        """Gives up the lead, so that another replica leads at once, and stands no more."""
        await self._candidate.resign()

    def fenced(self, token: int) -> None:
        """A write under this token was refused: ends its term, if that is the present one. Another replica leads, most
        often, and the candidate has not been told yet."""
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
                if self.token != token:  # it has run out by the clock, and the candidate has not been told yet
                    return
            except BaseException as error:  # SystemExit, and a CancelledError of its own, would end it without a word
                if self._ending or self._term is not asyncio.current_task():
                    raise
                problem = error
            if self._term is asyncio.current_task() and not self._ending:
                self._term = None  # else it would be cancelled now
                self._on_lost()
                await self._give_up(f"the term with token {token} has ended early: {describe(problem)}", problem)

    async def _watch(self) -> None:
        """Gives up a term that does not go on."""
        since = went_on = self._clock.monotonic()
        while True:
            await self._clock.sleep(LOOK)
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
                log.warning("this leader does not go on: %s", self._complaint)
            if now - since >= self._patience.seconds:
                problem = f"it has not gone on for {now - since:.0f} s: {self._complaint}"
                self._stand_down()
                await self._give_up(problem, None)

    def _look(self) -> str | None:
        """What keeps a leader from going on; None: nothing, or this replica does not lead."""
        if self.token is None:
            return None
        if self._begun is not self._term:
            late = self._clock.monotonic() - self._elected_at >= PATIENCE
            return f"the term has not begun: {self._behind}" if late else None
        return self._stuck() or self._informers.healthy

    async def _give_up(self, problem: str, cause: BaseException | None) -> NoReturn:
        """Resigns, so that another replica leads. Raises TermFailed."""
        self._failed = problem
        self._patience.failures += 1
        FAILED_TERMS.labels(self._election).inc()
        abandoned = LeadershipAbandoned(self._election, problem).extra
        log.critical('election "%s" is given up: %s', self._election, problem, exc_info=cause, extra=abandoned)
        await self._candidate.resign()
        raise TermFailed(problem) from cause

    async def _reached(self, token: int) -> bool:
        """The barrier: waits until all is known that earlier leaders wrote; False when the term is over meanwhile."""
        while self.token == token:
            try:
                await self._informers.wait_for(token, PATIENCE)
            except TimeoutError as error:
                self._behind = str(error)
                log.warning("cannot begin yet: %s", error)
            else:
                return self.token == token
        return False
