"""One flow never stops, refuses or ends another's modest watches and lists (the guarantees of the send budget): for any
order of events, lists and reads of flows that read at once, sometimes or never. All bounds are made smaller by the same factor.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import watcher as watcher_module
from pinnace.apiserver.cacher.event_history import HistoryFingerprints
from pinnace.apiserver.cacher.store import CacheError, RevisionExpired, SelectionPredicate
from pinnace.apiserver.cacher.watcher import CacheWatcher, WatchDispatcher
from pinnace.apiserver.flow import send_budget as module
from pinnace.apiserver.flow.send_budget import SendBudget, SendPool
from tests.clock import FakeClock
from tests.examples import examples
from tests.unit.cacher.test_dispatch import event
from tests.unit.cacher.world import pod

pytestmark = pytest.mark.slow

MAX_UNSENT_BYTES, MAX_WAITING, MINIMUM = 16_000, 4_000, 1_000
LARGE, MERGE = 50, 500
EAGER, SLOW, NEVER = "eager", "slow", "never"
STEPS = 300
"""Turns of the event loop within which eager readers are told what has happened."""


@dataclass(eq=False)
class Reader:
    """Of one watch. `mode`: does it read at once, when it is told to, or never?"""

    watcher: CacheWatcher
    mode: str
    error: CacheError | None = None
    task: "asyncio.Future[None] | None" = None

    def begin(self) -> None:
        """It is live."""
        self.task = asyncio.ensure_future(self.all() if self.mode == EAGER else self.one())

    async def one(self) -> None:
        try:
            await anext(self.watcher)
        except CacheError as error:
            self.error = error
        except StopAsyncIteration:
            return

    async def all(self) -> None:
        try:
            async for _ in self.watcher:
                pass
        except CacheError as error:
            self.error = error

    def read(self) -> None:
        if self.task is None or self.task.done():
            self.task = asyncio.ensure_future(self.one())


@dataclass
class Flow:
    budget: SendBudget
    readers: list[Reader]
    lists: list[int] = field(default_factory=list)
    """Bytes of those that it has not read."""

    @property
    def modest(self) -> bool:
        return all(reader.mode == EAGER for reader in self.readers) and not self.lists


class World:
    def __init__(self, modes: list[list[str]]) -> None:
        self.dispatcher = WatchDispatcher(HistoryFingerprints(), FakeClock())
        room = SendPool()
        self.flows: list[Flow] = []
        for modes_of_one in modes:
            budget = SendBudget(room)
            self.flows.append(Flow(budget, [self.open(budget, mode, n % 2) for n, mode in enumerate(modes_of_one)]))
        self.revision = 1
        self.largest = 0

    def open(self, budget: SendBudget, mode: str, number: int) -> Reader:
        selection = SelectionPredicate.parse(PODS, "", "!x" if number else "", "")
        watcher = CacheWatcher(self.dispatcher, selection, 1, iter(()), budget=budget)
        self.dispatcher.add_watcher(watcher)
        return Reader(watcher, mode)

    @property
    def readers(self) -> list[Reader]:
        return [reader for flow in self.flows for reader in flow.readers]

    def tell(self, size: int) -> None:
        self.revision += 1
        happened = pod("a")
        happened.metadata.annotations["filling"] = "x" * size
        told = event(self.revision, None, happened)
        self.largest = max(self.largest, len(told.encode(1, shows_owners=False)) + 50)
        self.dispatcher.add_event(told)
        self.dispatcher.flush(self.revision)
        self.dispatcher.flush_all()

    def answer(self, flow: Flow, size: int) -> None:
        """It is not read. Who is modest reads his."""
        if flow.modest:
            assert not flow.budget.is_full, "it is refused"
        elif not flow.budget.is_full:
            self.largest = max(self.largest, size)
            flow.budget.charge(size)
            flow.lists.append(size)

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("tell", sizes):
                for size in sizes:
                    self.tell(size)
            case ("list", number, sizes):
                for size in sizes:
                    self.answer(self.flows[number % len(self.flows)], size)
            case ("read", number):
                reader = self.readers[number % len(self.readers)]
                if reader.mode == SLOW:
                    reader.read()

    async def settle(self) -> None:
        for _ in range(STEPS):
            await asyncio.sleep(0)

    def check(self) -> None:
        flows = len(self.flows)
        budgets = [flow.budget for flow in self.flows]
        assert sum(budget.waiting for budget in budgets) <= max(MAX_WAITING, flows * MINIMUM)
        assert sum(budget.unsent_bytes for budget in budgets) <= MAX_UNSENT_BYTES + flows * (MINIMUM + max(self.largest, MERGE))
        for flow in self.flows:
            if flow.modest:
                assert not flow.budget.is_full and not flow.budget.waiting
                for reader in flow.readers:
                    assert reader.error is not None or reader.watcher.delivered == self.revision, "it is told everything"

    @contextmanager
    def watching_who_ends(self) -> Iterator[None]:
        real = CacheWatcher.end_overflowed

        def overflow(watcher: CacheWatcher) -> None:
            has = watcher.budget.waiting
            if watcher.budget.is_full:
                real(watcher)  # nobody may be told anything in its flow, and that for long
                return
            assert has > MINIMUM and has == max(flow.budget.waiting for flow in self.flows)
            real(watcher)

        with mock.patch.object(CacheWatcher, "end_overflowed", overflow):
            yield

    async def run(self, steps: list[tuple[Any, ...]]) -> None:
        for reader in self.readers:
            reader.begin()
        await self.settle()
        with self.watching_who_ends():
            for step in steps:
                self.do(step)
                await self.settle()
                self.check()
            self.dispatcher.end_watches(lambda: RevisionExpired(1))
            await self.settle()
            if stuck := [r for r in self.readers if r.mode == EAGER and r.error is None]:
                assert all(reader.watcher.budget.unsent_bytes >= MINIMUM for reader in stuck), "its own flow has its room"
                await asyncio.sleep(0.1)
        assert all(reader.error for reader in self.readers if reader.mode == EAGER), "all are told of the end"
        for reader in self.readers:
            if reader.task is not None:
                reader.task.cancel()
            reader.watcher.close()
        for flow in self.flows:
            assert flow.budget.unsent_bytes == sum(flow.lists)
            assert (flow.budget.waiting, flow.budget.watches, flow.budget.requirement_count) == (0, {}, 0)


MODES = st.lists(st.lists(st.sampled_from([EAGER, SLOW, NEVER]), min_size=1, max_size=4), min_size=1, max_size=5)
SIZES = st.sampled_from([1, 20, 100, 400, 1_000, 3_000])
STEP = st.one_of(
    st.tuples(st.just("tell"), st.lists(SIZES, min_size=1, max_size=6)),
    st.tuples(st.just("list"), st.integers(0, 9), st.lists(st.sampled_from([100, 5_000, 30_000]), max_size=9)),
    st.tuples(st.just("read"), st.integers(0, 99)),
)


@given(st.just([EAGER, EAGER]), MODES, st.lists(STEP, max_size=25))
@settings(max_examples=examples(60), deadline=None)
def test_reading_watch_receives_all_events(modest: list[str], modes: list[list[str]], steps: list[Any]) -> None:
    with ExitStack() as patches:
        for name, value in (
            ("MAX_UNSENT_BYTES", MAX_UNSENT_BYTES),
            ("MAX_WAITING", MAX_WAITING),
            ("MINIMUM", MINIMUM),
            ("SEND_TIMEOUT", 0.05),
        ):
            patches.enter_context(mock.patch.object(module, name, value))
        for name, value in (("LARGE", LARGE), ("MERGE_BYTES", MERGE)):
            patches.enter_context(mock.patch.object(watcher_module, name, value))
        asyncio.run(World([modest, *modes]).run(steps))
