"""When which fault happens: a pure function of a seed.

Kinds are dealt like cards: first each once, in random order, then each as often as its weight says. A card whose area is taken
waits until it is free; the next one that fits goes before it. So every kind gets its turn, however long the others last.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pinnace.chaos.faults.base import Area, Kind
from pinnace.cluster.spec import ClusterSpec

INTERVAL = 4.5
"""Mean seconds from one fault to the next."""
SHORTEST, LONGEST = 0.5, 9.0
AT_ONCE = 3
"""Faults that may be on together."""
RECOVERY = 1.5
"""Seconds for which an area is left alone after a fault: a process that was started has begun to work by then."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that is to happen `at` so many seconds after the start, and to last `seconds`. `draw`: the seed of what it
    chooses itself."""

    at: float
    kind: Kind
    target: str
    seconds: float
    draw: int

    @property
    def over(self) -> float:
        return self.at + self.seconds


def schedule(seed: int, duration: float, kinds: Sequence[Kind], spec: ClusterSpec) -> list[Strike]:
    """What happens in `duration` seconds, in order; all is over by then. The same for the same arguments."""
    rng = random.Random(seed)
    cards = _cards(rng, kinds)
    hand: list[Kind] = []
    strikes: list[Strike] = []
    now = _pause(rng)
    while now < duration:
        while len(hand) < len(kinds):
            hand.append(next(cards))
        on = [strike for strike in strikes if strike.over + RECOVERY > now]
        kind = next((kind for kind in hand if _fits(kind, on, now)), None)
        if kind is not None:
            hand.remove(kind)
            seconds = rng.uniform(*kind.seconds)
            strike = Strike(now, kind, rng.choice(list(kind.targets(spec))), seconds, rng.randrange(1 << 32))
            if strike.over <= duration:
                strikes.append(strike)
        now += _pause(rng)
    return strikes


def _cards(rng: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    """Without end."""
    deck = list(kinds)
    while True:
        rng.shuffle(deck)
        yield from deck
        deck = [kind for kind in kinds for _ in range(kind.weight)]


def _fits(kind: Kind, on: Sequence[Strike], now: float) -> bool:
    if any(Area.ALL in (kind.area, strike.kind.area) for strike in on):
        return False
    if sum(strike.over > now for strike in on) >= AT_ONCE:
        return False
    return kind.area is Area.NONE or kind.area not in [strike.kind.area for strike in on]


def _pause(rng: random.Random) -> float:
    return min(max(rng.expovariate(1 / INTERVAL), SHORTEST), LONGEST)
