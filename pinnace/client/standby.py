"""A replica that stands by, and leads when it is elected.

    standby --elected--> barrier --informers have reached the token--> leading --lost--> standby
                            |                                                    ^
                            +---------------------- lost ------------------------+

* A standby is hot: its informers run whether it leads or not. It stands for election once there is something to lead with. It
  lacks only the token.
* The barrier: a term begins when the informers have reached the revision of the election, which is its token. What earlier
  leaders wrote is then known, and nothing is done twice because a replica was behind.
* When the lead is lost that is told at once, and the term is cancelled. The next one does not begin before it has ended.

The token may run out by the clock before anybody has been told: whoever acts asks for it each time.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from pinnace.api.pods_pb2 import Fence
from pinnace.client.caller import Caller
from pinnace.client.election import Candidate
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.supervise import QUIET

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds for which informers may be behind before it is told."""


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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`lead(token)`: what a leader does in one term, from the barrier on; cancelled when the lead is lost. `on_lost` is
        called before it notices, also for a term that has not reached the barrier, and must not block. `scheduler_names`: as
        Candidate's."""
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
        """Until cancelled or resigned. Raises what `lead` raises."""
        patience = PATIENCE
        async with self._terms:
            while not self._informers.synced:
                try:
                    await self._informers.wait_synced(patience)
                except TimeoutError as error:
                    log.warning("cannot stand for election yet: %s", error)
                    patience = QUIET
            await self._candidate.run()

    async def resign(self) -> None:
        """Gives up the lead, so that another replica leads at once, and stands no more."""
        await self._candidate.resign()

    def stand_down(self) -> None:
        """Ends the term, if there is one: for who has found out before the candidate is told."""
        if self._term is not None:
            self._term.cancel()
            self._term = None
            self._on_lost()

    def _elected(self, token: int) -> None:
        self._term = self._terms.create_task(self._serve(token))

    def _lost(self, reason: str) -> None:
        self.stand_down()

    async def _serve(self, token: int) -> None:
        async with self._one_at_a_time:
            if await self._reached(token):
                await self._lead(token)

    async def _reached(self, token: int) -> bool:
        """The barrier: waits until all is known that earlier leaders wrote; False when the term is over meanwhile."""
        while self.token == token:
            try:
                await self._informers.wait_for(token, PATIENCE)
            except TimeoutError as error:
                log.warning("cannot begin yet: %s", error)
            else:
                return self.token == token
        return False
