"""A server of nothing but flow control, whose calls take a fixed time, on a clock that the test moves."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import ExemptSeat, PriorityAndFairness, Seat
from pinnace.apiserver.flow.levels import WORKLOAD
from tests.clock import FakeClock

TURNS = 20
"""Of the event loop, in which everything happens that takes no time."""


class Tally:
    """A meter."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.waits: Counter[bool] = Counter()

    def record_rejection(self, level: str, reason: str) -> None:
        self.refused[reason] += 1

    def record_wait(self, level: str, seconds: float, execute: bool) -> None:
        self.waits[execute] += 1


@dataclass
class Request:
    size: int = 0

    def ByteSize(self) -> int:  # noqa: N802
        return self.size


@dataclass
class Caller:
    """Somebody's calls: how long each waited that began, in seconds, and what the others were told."""

    waits: list[float] = field(default_factory=list)
    refusals: list[Rejected] = field(default_factory=list)


class World:
    """`service`: seconds that a call is at work."""

    def __init__(self, seats: int = 100, service: float = 0.02) -> None:
        self.clock = FakeClock()
        self.tally = Tally()
        self.control = PriorityAndFairness(seats, clock=self.clock, meter=self.tally)
        self.callers: dict[str, Caller] = {}
        self._service = service
        self._tasks: set[asyncio.Task[None]] = {asyncio.ensure_future(self.control.run())}

    def send(self, user: str, calls: int = 1, level: str = WORKLOAD, cost: int = 1, size: int = 0) -> list[asyncio.Task[None]]:
        """So many calls at this moment, each in a task of its own."""
        caller = self.callers.setdefault(user, Caller())
        tasks = [asyncio.ensure_future(self._call(caller, level, user, cost, size)) for _ in range(calls)]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._tasks.discard)
        return tasks

    def enter(self, user: str, cost: int = 1, level: str = WORKLOAD, remaining: float | None = None) -> Seat | ExemptSeat:
        return self.control.request_seat(level, user, cost, Request(), remaining)

    def held(self, level: str = WORKLOAD) -> int:
        return self.control.levels[level].seats_in_use

    async def settle(self) -> None:
        """Lets everything happen that takes no time."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, caller: Caller, level: str, user: str, cost: int, size: int) -> None:
        sent = self.clock.monotonic()
        try:
            with self.control.request_seat(level, user, cost, Request(size)) as seat:
                if seat.waits:
                    await seat.acquire()
                caller.waits.append(self.clock.monotonic() - sent)
                await self.clock.sleep(self._service)
        except Rejected as rejected:
            caller.refusals.append(rejected)
