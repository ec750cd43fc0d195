"""What was refused by itself, and is tried again: after FIRST_PAUSE, and ever later each time, for as long as it takes."""

from kubelet.delayqueue import DelayQueue
from pinnace.client.errors import ApiError
from pinnace.runtime.backoff import Backoffs
from pinnace.runtime.clock import Clock

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds; they double each time."""
NAMED = 5
"""Keys that are told of, at most."""


class Refused:
    """By key. A key's pauses grow until it is settled."""

    def __init__(self, clock: Clock, longest: float = LONGEST_PAUSE) -> None:
        self._clock = clock
        self._errors: dict[str, ApiError] = {}
        self._pauses = Backoffs(FIRST_PAUSE, longest)
        self._later = DelayQueue(clock)

    @property
    def waiting(self) -> int:
        """Keys that are to be tried again."""
        return len(self._later)

    def add(self, key: str, error: ApiError) -> None:
        self._errors[key] = error
        self._later.add_at(key, self._clock.monotonic() + self._pauses.next(key))

    def tried(self, key: str) -> None:
        """It is, now: no need to wait."""
        if self._errors:
            self._later.discard(key)

    def settle(self, key: str) -> None:
        """It was done, or there is nothing to do any more."""
        if self._errors.pop(key, None) is not None:
            self._pauses.forget(key)
            self._later.discard(key)

    async def take(self, limit: int) -> list[str]:
        """Waits until some are to be tried again; at most `limit`."""
        return await self._later.take(limit)

    def told(self) -> str | None:
        """Which, and why the first of them; None: there are none."""
        if not self._errors:
            return None
        names = sorted(self._errors)
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"{', '.join(names[:NAMED])}{more}: {self._errors[names[0]]}"
