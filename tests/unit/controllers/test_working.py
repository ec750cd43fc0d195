import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise, repeat
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES, Resource
from pinnace.api.verbs_pb2 import ADDED, MODIFIED
from pinnace.client.errors import unavailable_error
from pinnace.client.informer import Delta
from pinnace.controllers.runtime import (
    DEADLINE,
    GRACE,
    SLOW,
    PartialSyncError,
    WatchedResource,
    WorkerPool,
    key_of_object,
    keys_of_controller,
)
from pinnace.runtime.logs import SyncAbandoned, SyncSlow, SyncTimedOut
from pinnace.runtime.tasks import SLICE
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.logged import logged


class Recording:
    """A controller that records the synced keys. For each key, it plays the given outcomes in order."""

    name, workers, max_backoff = "recording", 2, 60.0

    def __init__(self, **does: Iterator[object]) -> None:
        self.looked: list[str] = []
        self.over = False
        """Syncs that ignore cancellation end at the next one if this is set."""
        self._does = does

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return [WatchedResource(NODES, key_of_object)]

    async def sync(self, key: str) -> float | None:
        self.looked.append(key)
        result = next(self._does.get(key, iter(())), None)
        if isinstance(result, BaseException):
            raise result
        if result == "hangs":
            await asyncio.get_running_loop().create_future()
        while result == "ignores":
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if self.over:
                    raise
        return result if isinstance(result, float) else None


def stores(*nodes: str) -> Callable[[Resource[Any]], Mapping[str, Node]]:
    return lambda resource: {name: make_node(name).build() for name in nodes}


@asynccontextmanager
async def at_work(controller: Recording, clock: FakeClock, *nodes: str) -> AsyncIterator[WorkerPool]:
    working = WorkerPool(controller, lambda: True, clock=clock)
    await working.enqueue_existing(stores(*nodes))
    running = asyncio.ensure_future(working.run())
    await clock.advance(0)
    yield working
    running.cancel()


async def test_term_begins_with_a_sync_of_all_keys() -> None:
    controller = Recording()
    async with at_work(controller, FakeClock(), "a", "b"):
        assert sorted(controller.looked) == ["a", "b"]


async def test_key_is_synced_again_after_the_requested_delay() -> None:
    clock, controller = FakeClock(), Recording(a=iter([3.0, None]))
    async with at_work(controller, clock, "a"):
        await clock.advance(2.9)
        assert controller.looked == ["a"]
        await clock.advance(60.0)
        assert controller.looked == ["a", "a"]


@pytest.mark.parametrize(
    "failure",
    [
        unavailable_error("no server"),
        ZeroDivisionError(),
        asyncio.CancelledError(),
        SystemExit(3),
        GeneratorExit(),
        KeyboardInterrupt(),
    ],
    ids=["of the API", "a bug", "CancelledError", "SystemExit", "GeneratorExit", "KeyboardInterrupt"],
)
async def test_failed_key_is_retried_and_does_not_block_others(
    failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    clock, controller = FakeClock(), Recording(a=iter([failure, failure, None]))
    async with at_work(controller, clock, "a", "b") as working:
        assert sorted(controller.looked) == ["a", "b"]
        await clock.advance(1.0)
        assert sorted(controller.looked) == ["a", "a", "a", "b"]
        working.handle_deltas(key_of_object, [Delta(MODIFIED, make_node("b").build(), None)])
        await clock.advance(0)
        assert controller.looked[-1] == "b"


async def test_backoff_is_capped_at_the_maximum_of_the_controller(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    clock, controller = FakeClock(), Recording(a=repeat(unavailable_error("no server")))
    async with at_work(controller, clock, "a"):
        await clock.advance(1_000.0)
        looks = len(controller.looked)
        await clock.advance(600.0)
        assert len(controller.looked) - looks == 10


async def test_stale_backoff_does_not_delay_a_new_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    clock, controller = FakeClock(), Recording(a=repeat(PartialSyncError(unavailable_error("no server"), 10.0)))
    async with at_work(controller, clock, "a"):
        await clock.advance(1.0)
        looks = len(controller.looked)
        assert looks > 5, "its back-off is still short"
        await clock.advance(1_000.0)
        assert 100 <= len(controller.looked) - looks < 110


async def test_leader_keeps_its_term_during_a_slow_start() -> None:
    """With many objects the start takes seconds. Heartbeats run meanwhile, and concurrent changes are not lost."""
    clock, turns = FakeClock(), 0

    class Slow(Recording):
        @property
        def watches(self) -> Sequence[WatchedResource[Any]]:
            return [WatchedResource(NODES, self._keys)]

        def _keys(self, delta: Delta[Node]) -> Sequence[str]:
            clock.stall(0.001)
            return [delta.obj.metadata.name]

    controller = Slow()
    working = WorkerPool(controller, lambda: True, clock=clock)

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 5:
                working.handle_deltas(key_of_object, [Delta(ADDED, make_node("new").build(), None)])
            await asyncio.sleep(0)

    beating = asyncio.ensure_future(beat())
    await working.enqueue_existing(stores(*map(str, range(100))))
    beating.cancel()
    assert turns >= 10
    running = asyncio.ensure_future(working.run())
    await clock.advance(1)
    running.cancel()
    assert {"0", "99", "new"} <= set(controller.looked)


async def test_syncs_that_never_wait_yield_to_other_tasks() -> None:
    """Otherwise the syncs of 5,000 nodes would take as long as the lease lasts without a heartbeat."""
    clock = FakeClock()

    class Busy(Recording):
        async def sync(self, key: str) -> float | None:
            clock.stall(0.001)
            return await super().sync(key)

    controller, seen = Busy(), [0]
    working = WorkerPool(controller, lambda: True, clock=clock)
    await working.enqueue_existing(stores(*map(str, range(100))))
    running = asyncio.ensure_future(working.run())
    async with asyncio.timeout(5):
        while seen[-1] < 100:
            await asyncio.sleep(0)
            seen.append(len(controller.looked))
    running.cancel()
    assert max(after - before for before, after in pairwise(seen)) <= 4 * SLICE / 0.001


async def test_syncs_end_with_the_term() -> None:
    clock, controller = FakeClock(), Recording()
    working = WorkerPool(controller, lambda: False, clock=clock)
    await working.enqueue_existing(stores("a", "b"))
    async with asyncio.timeout(1):
        waiting = asyncio.ensure_future(working.run())
        await clock.advance(10)
        waiting.cancel()
    assert controller.looked == []


def owned(owner: str, *, controller: bool = True, kind: str = "Node") -> Pod:
    pod = make_pod("p").build()
    pod.metadata.ownerReferences.add(kind=kind, apiVersion="v1", name=owner, controller=controller)
    return pod


@pytest.mark.parametrize(
    ("new", "old", "keys"),
    [
        (owned("n1"), None, {"n1"}),
        (owned("n1"), owned("n2"), {"n1", "n2"}),
        (owned("n1", controller=False), None, set()),
        (owned("n1", kind="Pod"), None, set()),
    ],
)
def test_change_enqueues_the_current_and_previous_controllers(new: Pod, old: Pod | None, keys: set[str]) -> None:
    assert set(keys_of_controller(NODES)(Delta(ADDED, new, old))) == keys


async def test_hanging_sync_is_logged_cancelled_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    clock, controller = FakeClock(), Recording(a=iter(["hangs", None]))
    async with at_work(controller, clock, "a", "b") as working:
        await clock.advance(SLOW + 1.0)
        assert [item.key for item in logged(caplog, SyncSlow)] == ["a"] and working.stuck_problem() is None
        await clock.advance(DEADLINE - SLOW + 1.0)
        assert logged(caplog, SyncTimedOut) == [SyncTimedOut("recording", "a")]
        assert controller.looked.count("a") == 2 and controller.looked.count("b") == 1


async def test_controller_is_stuck_if_all_workers_hang(caplog: pytest.LogCaptureFixture) -> None:
    clock, controller = FakeClock(), Recording(a=iter(["hangs"]), b=iter(["hangs"]))
    async with at_work(controller, clock, "a", "b") as working:
        await clock.advance(SLOW - 1.0)
        assert working.stuck_problem() is None
        await clock.advance(2.0)
        assert working.stuck_problem() in [
            f"controller recording: all of its workers are stuck; {key} for 31 s" for key in "ab"
        ]


async def test_worker_that_ignores_cancellation_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    clock, controller = FakeClock(), Recording(a=iter(["ignores", None]), b=iter(["ignores", None]))
    async with at_work(controller, clock, "a", "b") as working:
        await clock.advance(DEADLINE + GRACE + 3.0)
        assert sorted(controller.looked) == ["a", "a", "b", "b"]
        assert SyncAbandoned("recording", "a") in logged(caplog, SyncAbandoned)
        working.handle_deltas(key_of_object, [Delta(MODIFIED, make_node("c").build(), None)])
        await clock.advance(0)
        assert controller.looked[-1] == "c"
        controller.over = True
