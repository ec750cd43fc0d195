"""What one user's flood does to others, on a clock that the test moves: each figure is the same in every run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping

import pytest

from pinnace.apiserver.flow import control
from pinnace.apiserver.flow.control import PriorityAndFairness
from pinnace.apiserver.flow.levels import WORKLOAD
from pinnace.verification.bench.report import percentile
from tests.clock import FakeClock
from tests.unit.flow.world import World

pytestmark = pytest.mark.slow

STEP = 0.001


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """It has time for 5,000 calls a second at most, 20 ms for each; who waits begins as soon as there is room."""
    monkeypatch.setattr(control, "SEAT_PAUSE", 0.0)
    monkeypatch.setattr(control, "SEAT_PAUSE_UNCROWDED", 0.0)
    world = World()
    yield world
    await world.close()


async def during(world: World, seconds: float, *rates: tuple[str, int, int]) -> None:
    """Users who send so many calls of such a cost, every so many steps: (user, calls, steps)."""
    for step in range(round(seconds / STEP)):
        for user, calls, steps in rates:
            if step % steps == 0:
                world.send(user, calls)
        await world.clock.advance(STEP)


async def test_flood_does_not_delay_the_calls_of_others(world: World) -> None:
    """10,000 calls/s of one, more than twice what there is time for; 50 a second of each of three others."""
    await during(world, 1.0, ("flood", 10, 1), ("eve", 1, 20), ("bob", 1, 20), ("ann", 1, 20))
    assert percentile(sorted(world.callers["flood"].waits), 0.99) > 0.2, "it is a flood"
    for user in ("eve", "bob", "ann"):
        waits = sorted(world.callers[user].waits)
        assert len(waits) == 50
        assert percentile(waits, 0.99) == 0.0


async def test_two_floods_of_very_different_rates_get_as_much(world: World) -> None:
    await during(world, 0.5, ("torrent", 20, 1), ("river", 3, 1))
    torrent, river = len(world.callers["torrent"].waits), len(world.callers["river"].waits)
    assert torrent + river > 1750
    assert torrent == pytest.approx(river, rel=0.35), "but for what the torrent begins when the river has no more"


async def test_small_flow_is_served_among_many_floods(world: World) -> None:
    users = [f"user-{number}" for number in range(40)]
    await during(world, 0.5, *((user, 10, 10) for user in users), ("eve", 1, 25))
    served = [len(world.callers[user].waits) for user in users]
    assert max(served) <= 1.2 * min(served)
    assert max(world.callers["eve"].waits) <= 0.021, "one call's time: until a seat is free, and then it is her turn"


async def test_wide_calls_and_slim_ones_share_by_width(world: World) -> None:
    """One sends batches that are as much work as ten calls, and another single calls; both as many as they can."""
    for _ in range(500):
        world.send("slim", 10)
        world.send("wide", cost=10)
        await world.clock.advance(STEP)
    slim, wide = len(world.callers["slim"].waits), len(world.callers["wide"].waits) * 10
    assert wide / 2 <= slim <= wide * 2


async def test_flood_that_is_over_leaves_nothing_behind(world: World) -> None:
    await during(world, 0.2, ("flood", 10, 1))
    await world.clock.advance(control.WAIT_TIMEOUT)
    level = world.control.levels["workload"]
    assert (level.seats_in_use, level.waiting, len(level.queued)) == (0, 0, 0)
    with world.enter("flood") as seat:
        assert not seat.waits


class Working(FakeClock):
    """Its time is that of the turns of the event loop."""

    IDLE = 0.000004
    """Seconds of a turn in which nothing is done."""

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while self.monotonic() < end:
            self.stall(self.IDLE)
            await asyncio.sleep(0)


class Workers:
    """Users with so many callers each, who send the next call when the last is over. A call is a millisecond of work, in turns
    of the event loop that last as long as what is done in them."""

    STEP = 0.00005
    STEPS = 20

    def __init__(self) -> None:
        self.clock = Working()
        self.end = self.clock.monotonic()
        self.control = PriorityAndFairness(clock=self.clock)
        self.done: Counter[str] = Counter()

    async def work(self, seconds: float, callers: Mapping[str, int]) -> None:
        self.end = self.clock.monotonic() + seconds
        await asyncio.gather(*(self._calls(user) for user, count in callers.items() for _ in range(count)))

    async def _calls(self, user: str) -> None:
        while self.clock.monotonic() < self.end:
            with self.control.request_seat(WORKLOAD, user) as seat:
                if seat.waits:
                    await seat.acquire()
                for _ in range(self.STEPS):
                    self.clock.stall(self.STEP)
                    await asyncio.sleep(0)
            self.done[user] += 1
            await asyncio.sleep(0)


async def test_flow_with_slightly_more_demand_gets_its_share() -> None:
    """His calls wait, theirs do not; but turns are long because of theirs."""
    workers = Workers()
    await workers.work(2.0, {"eve": control.EAGER + 1, "bob": control.EAGER, "ann": control.EAGER})
    assert workers.done["eve"] >= 0.9 * max(workers.done.values())
