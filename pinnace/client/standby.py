"""What a replica does to be ready to lead.

Hot: its informers run whether it leads or not. It stands for election once there is something to lead with. The barrier: a term
begins when the informers have reached the revision of the election, which is its token; what earlier leaders wrote is then
known, and nothing is done twice because a replica was behind.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from pinnace.client.election import Candidate
from pinnace.runtime.http import Check

log = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds between complaints about informers that are not up to date."""


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
    def __init__(self, informers: Informed, candidate: Candidate) -> None:
        self._informers = informers
        self._candidate = candidate

    @property
    def checks(self) -> Mapping[str, Check]:
        """For /readyz. Ready is who could lead at once; it need not lead."""
        return {
            "informers": lambda: self._informers.healthy,
            "election": lambda: self._candidate.healthy,
        }

    async def campaign(self) -> None:
        """Until cancelled or resigned."""
        while not self._informers.synced:
            try:
                await self._informers.wait_synced(PATIENCE)
            except TimeoutError as error:
                log.warning("cannot stand for election yet: %s", error)
        await self._candidate.run()

    async def reached(self, token: int) -> bool:
        """The barrier: waits until all is known that earlier leaders wrote; False when the term is over meanwhile."""
        while self._candidate.token == token:
            try:
                await self._informers.wait_for(token, PATIENCE)
            except TimeoutError as error:
                log.warning("cannot begin yet: %s", error)
            else:
                return self._candidate.token == token
        return False
