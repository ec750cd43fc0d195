"""Exponential backoff with full jitter, as a value.

Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
"""

import random
from dataclasses import dataclass, field

from pinnace.runtime import chance


@dataclass(slots=True)
class Backoff:
    """`next()` gives the seconds to wait before the next attempt; `reset()` after a success."""

    initial: float = 0.05
    maximum: float = 5.0
    factor: float = 2.0
    rng: random.Random = field(default_factory=chance.generator)
    failures: int = 0

    def next(self) -> float:
        ceiling = min(self.maximum, self.initial * self.factor**self.failures)
        self.failures = min(self.failures + 1, 64)
        return self.rng.uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        self.failures = 0
