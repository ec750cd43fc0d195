"""Watches that catch up: whose turn it is, and how long all of them together take."""

import asyncio
from collections.abc import Callable
from itertools import pairwise, repeat

import pytest

from pinnace.api.resources import PODS
from pinnace.apiserver.cacher.event_history import EncodedResponse, replay_events
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.cacher.watcher import CacheWatcher, ReplayScheduler
from pinnace.apiserver.flow import send_budget as flow
from pinnace.apiserver.flow.send_budget import LARGE, SendBudget, SendPool
from pinnace.runtime.tasks import SLICE, YIELDS
from tests.clock import FakeClock
from tests.unit.cacher.test_past import History
from tests.unit.cacher.test_watcher import Hub


class World:
    """Work that takes time by a clock that stands still otherwise."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = ReplayScheduler(self.clock)
        self.room = SendPool()
        self.done: list[str] = []
        """Whose step, in order."""
        self.tasks: list[asyncio.Future[None]] = []

    def work(self, name: str, seconds: float) -> Callable[[], None]:
        def step() -> None:
            self.clock.stall(seconds)
            self.done.append(name)

        return step

    def ask(self, name: str, budget: SendBudget, seconds: float, steps: int = 1) -> None:
        """Of a watch that has so many steps to do, one after the other."""

        async def run() -> None:
            for _ in range(steps):
                await self.turns.run_step(budget, self.work(name, seconds))

        self.tasks.append(asyncio.ensure_future(run()))

    async def gaps(self, turns: int = 10_000) -> list[float]:
        """Seconds that each turn of the event loop took, until all is done."""
        result = []
        for _ in range(turns):
            before = self.clock.monotonic()
            await asyncio.sleep(0)
            result.append(self.clock.monotonic() - before)
            if all(task.done() for task in self.tasks):
                return result
        raise AssertionError("it does not end")


async def test_all_together_take_a_portion_then_others_run() -> None:
    world = World()
    for number in range(100):
        world.ask(str(number), SendBudget(world.room), SLICE / 4, steps=5)
    gaps = await world.gaps()
    assert len(world.done) == 500
    assert max(gaps) < SLICE * 1.5
    worked = [number for number, gap in enumerate(gaps) if gap]
    assert all(later - earlier > YIELDS for earlier, later in pairwise(worked))


async def test_failure_of_work_is_raised_to_its_caller() -> None:
    """An object in etcd that cannot be read stopped all watches of a server that began, for good."""
    world, budget = World(), SendBudget(SendPool())

    def broken() -> None:
        raise ValueError("no message")

    async with asyncio.timeout(5):
        failing = asyncio.ensure_future(world.turns.run_step(budget, broken))
        world.ask("next", budget, SLICE)
        world.ask("other", SendBudget(SendPool()), SLICE)
        with pytest.raises(ValueError, match="no message"):
            await failing
        await asyncio.gather(*world.tasks)
        world.ask("later", budget, SLICE)
        await asyncio.gather(*world.tasks)
    assert sorted(world.done) == ["later", "next", "other"]


async def test_replays_receive_room_in_arrival_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that catch up: their step comes a moment after their turn, and whoever had just made room took it back."""
    monkeypatch.setattr(flow, "MINIMUM", LARGE)
    monkeypatch.setattr(flow, "MAX_UNSENT_BYTES", LARGE)
    eve = SendBudget(SendPool())
    turns, chunk = ReplayScheduler(FakeClock()), EncodedResponse(b"x" * LARGE, 0, 1)
    counts = [0] * 10

    async def read(number: int) -> None:
        selection = SelectionPredicate.parse(PODS, "", "", "")
        async for _ in CacheWatcher(Hub(), selection, 0, repeat(chunk), turns, budget=eve):
            counts[number] += 1
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(read(number)) for number in range(len(counts))]
    while sum(counts) < 200:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert max(counts) - min(counts) <= 2


async def test_flows_take_turns() -> None:
    world, eve = World(), SendBudget(SendPool())
    for _ in range(1000):
        world.ask("eve", eve, SLICE, steps=2)
    await asyncio.sleep(0)
    world.ask("scheduler", SendBudget(SendPool()), SLICE, steps=5)
    await world.tasks[-1]
    assert len(world.done) < 15
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)


async def test_single_replay_does_not_wait() -> None:
    world = World()
    world.ask("only", SendBudget(world.room), SLICE / 100, steps=20)
    assert len(await world.gaps()) < 50


async def test_short_steps_one_after_the_other_leave_room_for_others_too() -> None:
    world = World()
    for _ in range(3):
        world.ask("", SendBudget(world.room), SLICE / 4, steps=20)
    gaps = await world.gaps()
    assert sum(gap > 0 for gap in gaps) < len(gaps) / 3


async def test_closed_watch_costs_no_replay_step() -> None:
    world = World()
    for name in ("a", "b", "c"):
        world.ask(name, SendBudget(world.room), SLICE)
    await asyncio.sleep(0)
    world.tasks[1].cancel()
    await world.gaps()
    assert world.done == ["a", "c"]


class Slow(SelectionPredicate):
    """Each question takes time."""

    clock: FakeClock

    @classmethod
    def of(cls, clock: FakeClock, labels: str) -> "Slow":
        selection = cls.parse(PODS, "", labels, "")
        object.__setattr__(selection, "clock", clock)
        assert isinstance(selection, Slow)
        return selection

    def matches(self, entry: object) -> bool:
        self.clock.stall(self.requirement_count * 0.2e-6)
        return False


async def test_many_watches_with_long_selectors_do_not_keep_the_event_loop() -> None:
    """250 of one user with a hundred requirements each held it for 4 s; now it is a portion, and one look at the clock."""
    world, history, eve = World(), History(), SendBudget(SendPool())
    history.put(*(f"p{number}" for number in range(200)))
    history.put_together(*(f"q{number}" for number in range(200)))
    labels = ",".join(f"!k{number}" for number in range(99))
    for number in range(50):
        selection = Slow.of(world.clock, f"{labels},!own{number}")
        past = replay_events(selection, history.ring, 0, history.progress, history.marks, world.turns.is_slice_over)
        watcher = CacheWatcher(Hub(), selection, 0, past, world.turns, budget=eve)
        world.tasks.append(asyncio.ensure_future(first(watcher)))
    gaps = await world.gaps(100_000)
    assert sum(gaps) > 0.3, "there was much to do"
    assert max(gaps) < 1.1 * SLICE


async def first(watcher: CacheWatcher) -> None:
    await anext(watcher)
