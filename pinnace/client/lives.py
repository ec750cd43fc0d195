"""A component that lives for as long as what it keeps can be trusted, and then begins anew, in the same process.

    make --> run --BeginAnew--> run is over, with all its tasks --> make --> run ...

After etcd was restored from a backup, what a component keeps (expectations, assumed pods, what a kubelet has reported) is of a
history that is gone, and its revisions mean something else now. So nothing of it is kept: a new one is made, as a new process
would make it. What is not of the history stays with the process: connections, addresses, metrics, the containers of a kubelet.

So it is after a term that failed, or did not go on (TermFailed in standby.py): another replica leads meanwhile, and this one
stands for election again as a new process would.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.log_events import ComponentRestarted
from pinnace.runtime.supervise import EndedEarly

log = logging.getLogger(__name__)


class BeginAnew(Exception):
    """What the component keeps cannot be trusted any more. No ApiError: trying again does not help."""


class OtherHistory(BeginAnew):
    """What is known is not of the history that the store has."""


class Component(Protocol):
    @property
    def checks(self) -> Mapping[str, Check]:
        """For /readyz. Every one that is made has the same names."""
        ...

    async def run(self) -> None:
        """Until cancelled. Raises BeginAnew, perhaps in a group, when all that it has begun has ended."""
        ...


C = TypeVar("C", bound=Component)


SHORT = 5.0
"""Seconds: who has lived for less waits before he begins anew, or he would go round between two servers of two histories."""


class Lives(Generic[C]):
    """`now`: the component that lives."""

    def __init__(
        self,
        make: Callable[[], C],
        clock: Clock = SYSTEM_CLOCK,
        *,
        causes: tuple[type[Exception], ...] = (BeginAnew, EndedEarly),
    ) -> None:
        """`causes`: for which it begins anew. EndedEarly is one of its parts that has ended, as by a plugin that cancelled its
        task. Others end it, as a bug does."""
        self._make = make
        self._clock = clock
        self._causes = causes
        self._ended: str | None = None
        self.now = make()

    @property
    def checks(self) -> Mapping[str, Check]:
        """Of the one that lives when it is asked."""
        return {name: partial(self._check, name) for name in self.now.checks}

    async def run(self) -> None:
        """Until cancelled. Raises what the component raises, but for the causes."""
        backoff = Backoff(initial=0.1)
        while True:
            born = self._clock.monotonic()
            try:
                await self.now.run()
                return
            except* self._causes as group:
                self._ended = str(_first(group))
                log.warning("beginning anew: %s", self._ended, extra=ComponentRestarted(self._ended).extra)
            if self._clock.monotonic() - born >= SHORT:
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next())
            self.now = self._make()
            self._ended = None

    def _check(self, name: str) -> str | None:
        if self._ended is not None:
            return f"it begins anew: {self._ended}"
        return self.now.checks[name]()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
