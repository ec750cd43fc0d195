"""Binding cycles: what plugins do between a decision and its bind, for many pods at once."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from pinnace.api.pods_pb2 import Fence
from pinnace.client.errors import from_refusal
from pinnace.runtime.logs import PluginAbandoned, PluginSlow
from pinnace.scheduler import binding_cycle
from pinnace.scheduler.binding_cycle import CYCLES, MAX_QUEUED
from pinnace.scheduler.framework import SKIP, Status, Wait, WaitingPod
from pinnace.scheduler.framework.profile import Enabled
from pinnace.scheduler.framework.results import PluginRejection
from pinnace.scheduler.queue import QueuedPod
from pinnace.scheduler.scheduling_cycle import Decision
from tests.builders import make_pod
from tests.logged import logged
from tests.unit.scheduler import binder_world as binding
from tests.unit.scheduler.pods import framework, info
from tests.unit.scheduler.running import running

NO = Status("node(s) said no")
Answer = Callable[[str], Awaitable[Status | None]]


async def done(name: str) -> Status | None:
    return None


async def refused(name: str) -> Status | None:
    return NO


async def failed(name: str) -> Status | None:
    raise RuntimeError("boom")


BOOM = f"(test_binding_cycles.py:{inspect.getsourcelines(failed)[1] + 1})"


def ignore_cancellation(over: asyncio.Event, answer: Status | None = None) -> Answer:
    """Return a call that waits for `over`, even if it is cancelled."""

    async def wait(name: str) -> Status | None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()
        return answer

    return wait


async def stuck(name: str) -> Status | None:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("unreachable")


class Slow:
    """Takes part in everything; what it does is up to the test."""

    name = "Slow"

    def __init__(self) -> None:
        self.permitted: Wait | Status | None = None
        self.pre_binding: Answer | None = None
        self.binding: Answer | None = None
        self.asked: list[str] = []
        self.fence: Fence | None = None

    def permit(self, state: Any, pod: Any, node: str) -> Wait | Status | None:
        return self.permitted

    def pre_flight(self, state: Any, pod: Any, node: str) -> Status | None:
        return None if self.pre_binding or self.binding else SKIP

    async def pre_bind(self, state: Any, pod: Any, node: str) -> Status | None:
        self.asked.append(f"pre-bind {pod.name}")
        return await self.pre_binding(pod.name) if self.pre_binding else None

    async def bind(self, state: Any, pod: Any, node: str, fence: Fence) -> Status | None:
        self.asked.append(f"bind {pod.name}")
        self.fence = fence
        return await self.binding(pod.name) if self.binding else SKIP


class World(binding.World):
    def __init__(self) -> None:
        super().__init__()
        self.plugin = Slow()
        self.framework = framework(Enabled(self.plugin), first=True)

    def decide(self, *names: str) -> None:
        for name in names:
            pod = info(make_pod(name))
            self.cache.assume_pod(pod, "n")
            cycle = self.framework.binding.run_reserve_and_permit({}, pod, "n")
            assert not isinstance(cycle, PluginRejection)
            self.binder.submit_decision(Decision(QueuedPod(pod, 0.0), "n", binding.TOKEN, cycle))

    def waiting(self, name: str) -> WaitingPod:
        result = self.binder.waiting.get(info(make_pod(name)).uid)
        assert result is not None
        return result

    @property
    def sent(self) -> list[list[str]]:
        return [batch for batch, _ in self.api.batches]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with running(world.binder):
        yield world


async def test_pods_that_no_plugin_cares_about_go_to_the_batches_at_once(world: World) -> None:
    world.decide("a", "b")
    await world.settle()
    assert world.sent == [["a>n", "b>n"]] and world.plugin.asked == []


class TestPermit:
    async def test_pod_waits_until_it_is_allowed(self, world: World) -> None:
        world.plugin.permitted = Wait(10.0)
        world.decide("a", "b")
        await world.settle()
        assert world.sent == [] and world.assumed() == ["a", "b"]
        world.waiting("b").allow("Slow")
        await world.settle()
        assert world.sent == [["b>n"]] and world.told == ["bound b"]

    async def test_it_waits_no_longer_than_its_plugin_said(self, world: World) -> None:
        world.plugin.permitted = Wait(10.0)
        world.decide("a")
        await world.clock.advance(9.9)
        assert world.told == []
        await world.clock.advance(0.1)
        assert world.told == ["refused a: rejected due to timeout after waiting 10s at plugin Slow"]
        assert world.assumed() == [] and world.sent == []

    async def test_group_may_be_larger_than_the_number_of_tasks(self, world: World) -> None:
        world.plugin.permitted = Wait(10.0)
        names = [f"p{number}" for number in range(CYCLES + MAX_QUEUED + 1)]
        world.decide(*names)
        await world.settle()
        assert world.binder.has_room
        for waiting in world.binder.waiting:
            waiting.allow("Slow")
        while len(world.told) < len(names):
            await world.settle()
        assert world.told == [f"bound {name}" for name in names]

    async def test_after_waiting_comes_the_rest(self, world: World) -> None:
        world.plugin.permitted, world.plugin.pre_binding = Wait(10.0), done
        world.decide("a")
        await world.settle()
        assert world.plugin.asked == []
        world.waiting("a").allow("Slow")
        await world.settle()
        assert world.plugin.asked == ["pre-bind a", "bind a"] and world.told == ["bound a"]


class TestPreBind:
    async def test_then_the_pod_goes_to_the_batches(self, world: World) -> None:
        world.plugin.pre_binding = done
        world.decide("a")
        await world.settle()
        assert world.plugin.asked == ["pre-bind a", "bind a"], "it skips the bind"
        assert world.sent == [["a>n"]] and world.told == ["bound a"]

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (refused, "refused a: node(s) said no"),
            (failed, f'failed a: plugin "Slow" failed in PreBind: RuntimeError: boom {BOOM}, retry'),
        ],
    )
    async def test_error_ends_the_binding_cycle(self, world: World, answer: Answer, told: str) -> None:
        world.plugin.pre_binding = answer
        world.decide("a")
        await world.settle()
        assert world.told == [told] and world.sent == [] and world.assumed() == []

    async def test_it_has_a_deadline(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Slow, "pre_bind_timeout", 0.01, raising=False)
        world.plugin.pre_binding = stuck
        world.decide("a")
        async with asyncio.timeout(5.0):
            while not world.told:
                await asyncio.sleep(0.01)
                await world.settle()
        failure = 'plugin "Slow" failed in PreBind: PluginTimeout: it did not return within 0.01 s'
        assert world.told == [f"failed a: {failure}, retry"]

    async def test_plugin_that_ignores_its_cancellation_is_left_to_itself(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(Slow, "pre_bind_timeout", 0.01, raising=False)
        monkeypatch.setattr(binding_cycle, "GRACE", 0.02)
        over = asyncio.Event()

        world.plugin.pre_binding = ignore_cancellation(over)
        world.decide("a")
        async with asyncio.timeout(5.0):
            while not world.told:
                await asyncio.sleep(0.01)
                await world.settle()
        said = 'failed a: plugin "Slow" failed in PreBind: PluginTimeout: it ignored its cancellation for 0.02 s, retry'
        assert world.told == [said] and logged(caplog, PluginAbandoned) == [PluginAbandoned("Slow", "PreBind", "default/a")]
        over.set()
        await world.settle()
        assert world.told == [said] and world.sent == [], "what it answers then counts for nothing"

    async def test_plugin_that_ignores_that_its_pod_is_called_off(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binding_cycle, "GRACE", 0.02)
        over = asyncio.Event()

        world.plugin.pre_binding = ignore_cancellation(over)
        world.decide("a")
        await world.settle()
        assert world.binder.cancel_bind(info(make_pod("a")).uid, PluginRejection("Other", "room for another"))
        async with asyncio.timeout(5.0):
            while not world.told:
                await asyncio.sleep(0.01)
                await world.settle()
        assert world.told == ["refused a: room for another"]
        over.set()
        await world.settle()

    async def test_slow_plugin_is_named(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        world.plugin.pre_binding = stuck
        world.decide("a", "b")
        await world.settle()
        assert world.binder.slow_calls(world.clock.monotonic()) == {}
        now = world.clock.monotonic() + binding_cycle.SLOW + 1.0
        assert world.binder.slow_calls(now) == {("Slow", "PreBind"): (2, binding_cycle.SLOW + 1.0)}
        assert world.binder.slow_calls(now + 1.0)
        assert logged(caplog, PluginSlow) == [PluginSlow("Slow", "PreBind", 2, binding_cycle.SLOW + 1.0)], "once a minute"

    async def test_scheduling_pauses_at_the_limit_of_binding_cycles(self, world: World) -> None:
        gate = asyncio.Event()

        async def gated(name: str) -> Status | None:
            await gate.wait()
            return None

        world.plugin.pre_binding = gated
        world.decide(*(f"p{number}" for number in range(CYCLES)))
        await world.settle()
        world.decide(*(f"q{number}" for number in range(MAX_QUEUED - 1)))
        await world.settle()
        assert world.binder.has_room and len(world.plugin.asked) == CYCLES
        world.decide("last")
        assert not world.binder.has_room
        gate.set()
        await asyncio.wait_for(world.binder.wait_for_room(), 5.0)
        while len(world.told) < CYCLES + MAX_QUEUED:
            await world.settle()


class TestBind:
    async def test_by_a_plugin_under_the_fence(self, world: World) -> None:
        world.plugin.binding = done
        world.decide("a")
        await world.settle()
        assert world.told == ["bound a"] and world.sent == [] and world.assumed() == ["a"]
        assert world.plugin.fence == Fence(election="scheduler", token=binding.TOKEN)

    @pytest.mark.parametrize(
        ("answer", "told"),
        [
            (refused, "refused a: node(s) said no"),
            (failed, f'failed a: plugin "Slow" failed in Bind: RuntimeError: boom {BOOM}, retry'),
        ],
    )
    async def test_error_ends_the_binding_cycle(self, world: World, answer: Answer, told: str) -> None:
        world.plugin.binding = answer
        world.decide("a")
        await world.settle()
        assert world.told == [told] and world.sent == [] and world.assumed() == []

    async def test_answer_that_is_lost_is_looked_up_and_the_plugin_asked_again(self, world: World) -> None:
        async def lost(name: str) -> Status | None:
            raise from_refusal(binding.UNKNOWN)

        world.plugin.binding = lost
        world.api.pods["a"] = make_pod("a")
        world.decide("a")
        await world.settle()
        assert world.told == [] and world.assumed() == ["a"]
        world.plugin.binding = done
        await world.resolve()
        assert world.api.reads == ["default/a"]
        assert world.plugin.asked == ["pre-bind a", "bind a", "bind a"] and world.told == ["bound a"]

    async def test_slow_binding_cycle_is_cancelled(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binding_cycle, "BIND_DEADLINE", 0.01)
        world.plugin.binding = stuck
        world.decide("a")
        async with asyncio.timeout(5.0):
            while not world.api.reads:
                await asyncio.sleep(0.01)
                await world.resolve()
        assert world.told == ['failed a: plugin "Slow" failed in Bind: PluginTimeout: it did not return within 0.01 s'], (
            "there is no such pod"
        )

    async def test_pod_that_is_gone(self, world: World) -> None:
        async def gone(name: str) -> Status | None:
            raise from_refusal(binding.NOT_FOUND)

        world.plugin.binding = gone
        world.decide("a")
        await world.settle()
        assert [item.partition(" (")[0] for item in world.told] == ['failed a: plugin "Slow" failed in Bind: NotFound: no']

    async def test_broken_fence_stands_down(self, world: World) -> None:
        async def fenced(name: str) -> Status | None:
            raise from_refusal(binding.FENCED)

        world.plugin.binding = fenced
        world.decide("a")
        await world.settle()
        assert world.told == [f"fenced {binding.TOKEN}"]


class TestStandingDown:
    async def test_gives_back_what_waits_and_what_is_being_prepared(self, world: World) -> None:
        world.plugin.permitted = Wait(10.0)
        world.decide("waits")
        world.plugin.permitted, world.plugin.pre_binding = None, stuck
        world.decide("prepares")
        await world.settle()
        world.decide("queued")
        unsent = world.binder.end_term()
        assert sorted(decision.queued.info.name for decision in unsent) == ["prepares", "queued", "waits"]
        await world.clock.advance(20.0)
        assert world.told == [] and world.sent == [] and list(world.binder.waiting) == []

    async def test_keeps_what_is_being_bound(self, world: World) -> None:
        world.plugin.binding = stuck
        world.decide("a")
        await world.settle()
        assert world.binder.end_term() == [] and world.assumed() == ["a"]
        await world.settle()
        assert world.told == []

    async def test_result_after_the_term_is_not_reported(self, world: World) -> None:
        """Of a plugin that does not let itself be cancelled: the pod may have been decided anew."""
        gate = asyncio.Event()

        async def stubborn(name: str) -> Status | None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            raise RuntimeError("boom")

        world.plugin.pre_binding = stubborn
        world.decide("a")
        await world.settle()
        world.plugin.pre_binding, world.plugin.binding = None, stubborn
        world.decide("b")
        await world.settle()
        unsent = world.binder.end_term()
        await world.settle()
        gate.set()
        assert [decision.queued.info.name for decision in unsent] == ["a"]
        await world.settle()
        assert world.told == []
