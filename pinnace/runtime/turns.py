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


async def in_turns(work: Callable[[A], B], items: Iterable[A], clock: Clock) -> list[B]:
    """`work` of each item, in order. Between two of them anything may happen; a single one is not interrupted."""
    done: list[B] = []
    began = clock.monotonic()
    for item in items:
        done.append(work(item))
        if clock.monotonic() - began > PORTION:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            began = clock.monotonic()
    return done
