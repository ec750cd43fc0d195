"""Exponential backoff with equal jitter: each wait is between half of the exponential value and all of it.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import random
from dataclasses import dataclass, field


def new_rng() -> random.Random:
    """A new random generator, seeded from the module `random`: with `random.seed` a run can be repeated."""
    return random.Random(random.getrandbits(64))


@dataclass(slots=True)
class Backoff:
    """`next()` gives the seconds to wait before the next attempt; `reset()` after a success."""

    initial: float = 0.05
    maximum: float = 5.0
    factor: float = 2.0
    rng: random.Random = field(default_factory=new_rng)
    failures: int = 0

    def next(self) -> float:
        ceiling = min(self.maximum, self.initial * self.factor**self.failures)
        self.failures = min(self.failures + 1, 64)
        return self.rng.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        self.failures = 0


class Backoffs:
    """A Backoff for each key that is failing."""

    def __init__(self, initial: float, maximum: float) -> None:
        self._initial = initial
        self._maximum = maximum
        self._failing: dict[str, Backoff] = {}

    def next(self, key: str) -> float:
        """The seconds to wait before the key's next attempt."""
        backoff = self._failing.get(key)
        if backoff is None:
            backoff = self._failing[key] = Backoff(self._initial, self._maximum)
        return backoff.next()

    def forget(self, key: str) -> None:
        """After a success, or when the key is gone."""
        self._failing.pop(key, None)
