"""A victim of preemption for which no bind has been sent is called off: it is not deleted, it needs another node."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.api.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS, STORAGE_CLASSES
from pinnace.client.errors import from_refusal
from pinnace.scheduler.binding_cycle import CYCLES
from pinnace.scheduler.config import Configuration, with_plugin
from pinnace.scheduler.framework import CycleState, PodInfo, Status, Wait
from pinnace.scheduler.framework.results import PluginRejection
from tests.builders import make_node, make_pod
from tests.unit.scheduler import binder_world as binding
from tests.unit.scheduler.pods import info
from tests.unit.scheduler.running import running
from tests.unit.scheduler.stage import Stage
from tests.unit.scheduler.test_binding_cycles import World, done, ignore_cancellation, stuck
from tests.unit.scheduler.volume_objects import claim, storage_class

HIGH = make_pod("high").req(cpu=4).priority(10)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with running(world.binder):
        yield world


def call_off(world: World, name: str) -> bool:
    uid = info(make_pod(name)).uid
    called_off = world.binder.cancel_bind(uid, PluginRejection("Preemptor", "preempted"))
    assert world.binder.is_bind_cancelled(uid) is called_off
    return called_off


async def has_ended(world: World, name: str) -> None:
    """As called off, and nothing is left of it."""
    assert f"refused {name}: preempted" not in world.told, "not within the cycle of another pod"
    await world.settle()
    assert world.told == [f"refused {name}: preempted"]
    assert name not in world.assumed() and not world.binder.is_bind_cancelled(info(make_pod(name)).uid)
    world.told.clear()
    world.decide(name)
    await world.settle()
    assert name in world.assumed(), "it may be decided anew"


async def test_it_waits_in_permit(world: World) -> None:
    world.plugin.permitted = Wait(10.0)
    world.decide("a")
    await world.settle()
    assert call_off(world, "a")
    await has_ended(world, "a")


async def test_it_has_just_been_allowed(world: World) -> None:
    world.plugin.permitted = Wait(10.0)
    world.decide("a")
    await world.settle()
    world.waiting("a").allow("Slow")
    assert call_off(world, "a")
    await has_ended(world, "a")
    assert not world.sent


async def test_it_is_in_pre_bind(world: World) -> None:
    world.plugin.pre_binding = stuck
    world.decide("a")
    await world.settle()
    assert call_off(world, "a") and call_off(world, "a"), "by a second pod, too"
    await has_ended(world, "a")


async def test_pre_bind_is_about_to_begin(world: World) -> None:
    world.plugin.pre_binding = done
    world.decide("a")
    await asyncio.sleep(0)
    assert world.binder._cycles._preparing and not world.plugin.asked
    assert call_off(world, "a")
    await has_ended(world, "a")
    assert world.plugin.asked[:1] == ["pre-bind a"] and world.plugin.asked.count("pre-bind a") == 1, "the second time only"


async def test_pre_bind_has_just_ended(world: World) -> None:
    gate = asyncio.Event()

    async def gated(name: str) -> Status | None:
        await gate.wait()
        return None

    world.plugin.pre_binding = gated
    world.decide("a")
    await world.settle()
    gate.set()
    assert call_off(world, "a")
    world.plugin.pre_binding = stuck
    await has_ended(world, "a")
    assert not world.sent and "bind a" not in world.plugin.asked


async def test_there_is_no_place_in_pre_bind_for_it_yet(world: World) -> None:
    world.plugin.pre_binding = stuck
    world.decide(*(f"p{number}" for number in range(CYCLES)), "a")
    await world.settle()
    assert call_off(world, "a")
    await has_ended(world, "a")


@pytest.mark.parametrize("answer", [None, Status("gave up")])
async def test_plugin_does_not_let_itself_be_cancelled(world: World, answer: Status | None) -> None:
    gate = asyncio.Event()
    world.plugin.pre_binding = ignore_cancellation(gate, answer)
    world.decide("a")
    await world.settle()
    try:
        assert call_off(world, "a")
        await world.settle()
        assert world.told == [] and world.assumed() == ["a"], "its room is not given away while something is done for it"
    finally:
        gate.set()
    world.plugin.pre_binding = stuck
    await has_ended(world, "a")
    assert not world.sent


async def test_bind_that_was_sent_is_not_called_off(world: World) -> None:
    world.plugin.binding = stuck
    world.decide("a")
    await world.settle()
    assert not call_off(world, "a") and not call_off(world, "never heard of")
    await world.settle()
    assert world.told == [] and world.assumed() == ["a"]


@pytest.mark.parametrize("others", [CYCLES, 0], ids=["it waits for its turn", "it has its turn"])
async def test_bind_with_a_lost_answer_is_not_called_off(world: World, others: int) -> None:
    """It is to be sent again; the first may still happen."""

    async def lost(name: str) -> Status | None:
        raise from_refusal(binding.UNKNOWN)

    world.plugin.pre_binding, world.plugin.binding = done, lost
    world.api.pods["a"] = make_pod("a")
    world.decide("a")
    await world.settle()
    world.plugin.pre_binding = world.plugin.binding = stuck
    world.decide(*(f"p{number}" for number in range(others)))
    resolving = asyncio.ensure_future(world.resolve())
    cycles = world.binder._cycles
    for _ in range(1_000):
        if world.api.reads and (cycles._queued if others else cycles._preparing):
            break
        await asyncio.sleep(0)
    else:
        pytest.fail("it is not sent again")
    assert not call_off(world, "a")
    await resolving
    assert world.told == [] and "a" in world.assumed()


async def test_term_ends_meanwhile(world: World) -> None:
    world.plugin.pre_binding = stuck
    world.decide("a")
    await world.settle()
    assert call_off(world, "a")
    assert [decision.queued.info.name for decision in world.binder.end_term()] == ["a"]
    await world.settle()
    assert world.told == [] and not world.binder.is_bind_cancelled(info(make_pod("a")).uid)


def test_its_volume_is_being_made() -> None:
    stage = Stage()

    async def story() -> None:
        stage.api.put(NODES, make_node("n").capacity(cpu=4, memory="4Gi", pods=10).build())
        stage.api.put(STORAGE_CLASSES, storage_class("made", provisioner="example.com/p"))
        wanted = claim("data", storage_class="made")
        wanted.metadata.namespace = "default"
        stage.api.put(PERSISTENT_VOLUME_CLAIMS, wanted)
        stage.api.put(PODS, make_pod("low").req(cpu=4).claim("data").build())
        await asyncio.sleep(2.0)
        await gives_way(stage)

    stage.play(story())


class Porter:
    """Has less important pods wait."""

    name = "Porter"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        return Wait(60.0) if not pod.priority else None


def test_it_waits_for_permission() -> None:
    stage = Stage(with_plugin(Configuration(), f"{__name__}:Porter"))

    async def story() -> None:
        stage.api.put(NODES, make_node("n").capacity(cpu=4, memory="4Gi", pods=10).build())
        stage.api.put(PODS, make_pod("low").req(cpu=4).build())
        await asyncio.sleep(2.0)
        await gives_way(stage)

    stage.play(story())


async def gives_way(stage: Stage) -> None:
    """The pod low, which is on its way to node n, to a more important one. It is told so, and waits for another node."""
    assert not stage.node_of("low")
    stage.api.put(PODS, HIGH.build())
    await asyncio.sleep(3.0)
    assert stage.node_of("high") == "n"
    low = stage.api.all(PODS)["default/low"]
    assert not low.metadata.HasField("deletionTimestamp") and not low.spec.nodeName
    assert "low Preempted: Preempted by pod default/high on node n" in stage.api.told
    assert stage.schedulers[0].count_pending() == {"unschedulable": 1}
