"""Whose turn it is among the watches of a server that catch up: each has a past to be told, and works it out for itself.

    step asked for --its flow's turn--> done, in a portion with others --PORTION seconds are over--> others run, then the next

Guarantees: all of them together keep the event loop for PORTION seconds at a time, and what the last step takes beyond that;
and flows take turns, so that one with a thousand watches delays a watch of another by one step. Alone, a watch waits for
nobody.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from apiserver.flow.account import Account
from pinnace.runtime.clock import Clock
from pinnace.runtime.turns import PORTION, TURNS


class CatchingUp:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: dict[Account, deque[tuple[Callable[[], None], asyncio.Future[None]]]] = {}  # next is the first
        self._running = False
        self._spent = 0.0  # seconds of the portion that other turns of the loop had
        self._until = 0.0
        self._rest = 0  # turns until the next portion

    def is_over(self) -> bool:
        """Is the portion over? To be asked in a step, which is then to end."""
        return self._clock.monotonic() >= self._until

    async def step(self, account: Account, work: Callable[[], None]) -> None:
        """Does the work when it is this flow's turn, and raises what it raises. One who is cancelled may find it done."""
        done = asyncio.get_running_loop().create_future()
        self._queue.setdefault(account, deque()).append((work, done))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._turn)
        await done

    def _turn(self) -> None:
        if self._rest:
            self._rest -= 1
        else:
            self._portion()
        self._running = bool(self._queue or self._rest)
        if self._running:
            asyncio.get_running_loop().call_soon(self._turn)

    def _portion(self) -> None:
        began = self._clock.monotonic()
        self._until = began + PORTION - self._spent
        while self._queue:
            work, done = self._next()
            if not done.done():
                try:
                    work()
                except Exception as error:  # is the one's who wanted it: an object that cannot be read, for example
                    done.set_exception(error)
                else:
                    done.set_result(None)
            if self.is_over():
                self._spent, self._rest = 0.0, TURNS
                return
        self._spent += self._clock.monotonic() - began

    def _next(self) -> tuple[Callable[[], None], asyncio.Future[None]]:
        account = next(iter(self._queue))
        steps = self._queue.pop(account)
        first = steps.popleft()
        if steps:
            self._queue[account] = steps
        return first
