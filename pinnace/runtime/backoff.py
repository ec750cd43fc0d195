"""Exponential backoff with equal jitter: each delay is between half of the exponential value and the full value.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import random
from dataclasses import dataclass, field

MAX_DOUBLINGS = 64
"""More failures do not increase a delay, so that the power does not overflow."""


def new_rng() -> random.Random:
    """Return a random generator that is seeded by the `random` module. `random.seed` makes a run reproducible."""
    return random.Random(random.getrandbits(64))


def exponential_delay(initial: float, maximum: float, failures: int, factor: float = 2.0) -> float:
    """Return the seconds to wait after `failures` earlier failures, without jitter: `initial` for 0, and at most `maximum`."""
    delay: float = initial * factor ** min(failures, MAX_DOUBLINGS)
    return min(maximum, delay)


@dataclass(slots=True)
class Backoff:
    """The backoff of one activity. `next_delay` returns the seconds to wait before the next attempt. Call `reset` after a
    success."""

    initial: float = 0.05
    maximum: float = 5.0
    factor: float = 2.0
    rng: random.Random = field(default_factory=new_rng)
    failures: int = 0

    def next_delay(self) -> float:
        ceiling = exponential_delay(self.initial, self.maximum, self.failures, self.factor)
        self.failures = min(self.failures + 1, MAX_DOUBLINGS)
        return self.rng.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        self.failures = 0


class KeyedBackoff:
    """The backoffs of failing keys."""

    def __init__(self, initial: float, maximum: float) -> None:
        self._initial = initial
        self._maximum = maximum
        self._failing: dict[str, Backoff] = {}

    def next_delay(self, key: str) -> float:
        """Return the seconds to wait before the next attempt for this key."""
        backoff = self._failing.get(key)
        if backoff is None:
            backoff = self._failing[key] = Backoff(self._initial, self._maximum)
        return backoff.next_delay()

    def forget(self, key: str) -> None:
        """Reset the key's backoff. Call it after a success, or when the key is deleted."""
        self._failing.pop(key, None)
