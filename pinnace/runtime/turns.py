"""Long work in portions: who else waits for the event loop has a turn in between."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from pinnace.runtime.clock import Clock

A = TypeVar("A")
B = TypeVar("B")

PORTION = 0.005
"""Seconds of work before others have their turn."""
TURNS = 5
"""Of the event loop, which is how many gRPC needs to hand over a call; a turn in which there is nothing to do takes 11 us."""


class Turn:
    """Of one piece of work, or of several that take theirs together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def end(self) -> None:
        """Lets others have theirs, if this one has lasted long enough; then the next begins. Say it between two steps."""
        if self._clock.monotonic() - self._began > PORTION:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._began = self._clock.monotonic()


async def in_turns(work: Callable[[A], B], items: Iterable[A], clock: Clock) -> list[B]:
    """`work` of each item, in order. Between two of them anything may happen; a single one is not interrupted."""
    done: list[B] = []
    turn = Turn(clock)
    for item in items:
        done.append(work(item))
        await turn.end()
    return done
