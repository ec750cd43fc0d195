"""When which fault happens: a pure function of a seed.

Kinds are dealt like cards: first each once, in random order, then each as often as its weight says. A card whose area is taken
waits until it is free; the next one that fits goes before it. No card of the second deck is dealt before the last of the first:
so every kind gets its turn before any comes twice, however long the others last. A run may be too short for all of them.
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
    hand = [next(cards) for _ in kinds]
    first = True  # the first deck is not used up
    strikes: list[Strike] = []
    now = _pause(rng)
    while now < duration:
        first = first and bool(hand)
        while not first and len(hand) < len(kinds):
            hand.append(next(cards))
        on = [strike for strike in strikes if strike.over + RECOVERY > now]
        left = duration - now
        kind = next((kind for kind in hand if kind.seconds[0] <= left and _fits(kind, on, now)), None)
        if kind is not None:
            hand.remove(kind)
            shortest, longest = kind.seconds
            seconds = rng.uniform(shortest, min(longest, left))
            strikes.append(Strike(now, kind, rng.choice(list(kind.targets(spec))), seconds, rng.randrange(1 << 32)))
        now += _pause(rng)
    return strikes


def without_turn(kinds: Sequence[Kind], strikes: Sequence[Strike]) -> tuple[str, ...]:
    """The names of the kinds for which the time was too short."""
    dealt = {strike.kind.name for strike in strikes}
    return tuple(kind.name for kind in kinds if kind.name not in dealt)


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
