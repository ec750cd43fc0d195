"""A component that lives as long as the history that it knows, and then begins anew, in the same process.

    make --> run --OtherHistory--> run is over, with all its tasks --> make --> run ...

After etcd was restored from a backup, what a component keeps (expectations, assumed pods, what a kubelet has reported) is of a
history that is gone, and its revisions mean something else now. So nothing of it is kept: a new one is made, as a new process
would make it. What is not of the history stays with the process: connections, addresses, metrics, the containers of a kubelet.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check

log = logging.getLogger(__name__)


class OtherHistory(Exception):
    """What is known is not of the history that the store has. No ApiError: trying again does not help."""


class Component(Protocol):
    @property
    def checks(self) -> Mapping[str, Check]:
        """For /readyz. Every one that is made has the same names."""
        ...

    async def run(self) -> None:
        """Until cancelled. Raises OtherHistory, perhaps in a group, when all that it has begun has ended."""
        ...


C = TypeVar("C", bound=Component)


SHORT = 5.0
"""Seconds: who has lived for less waits before he begins anew, or he would go round between two servers of two histories."""


class Lives(Generic[C]):
    """`now`: the component that lives."""

    def __init__(self, make: Callable[[], C], clock: Clock = SYSTEM_CLOCK) -> None:
        self._make = make
        self._clock = clock
        self.now = make()

    @property
    def checks(self) -> Mapping[str, Check]:
        """Of the one that lives when it is asked."""
        return {name: partial(self._check, name) for name in self.now.checks}

    async def run(self) -> None:
        """Until cancelled. Raises what the component raises, but for OtherHistory."""
        backoff = Backoff(initial=0.1)
        while True:
            born = self._clock.monotonic()
            try:
                await self.now.run()
                return
            except* OtherHistory as group:
                log.warning("beginning anew: %s", _first(group))
            if self._clock.monotonic() - born >= SHORT:
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next())
            self.now = self._make()

    def _check(self, name: str) -> str | None:
        return self.now.checks[name]()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
