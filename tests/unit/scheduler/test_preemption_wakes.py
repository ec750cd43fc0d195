"""Pods that wait until preemption can help them: what wakes them, and what does not."""

import asyncio
from unittest.mock import patch

import pytest

from pinnace.api.resources import NODES, PODS
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import from_refusal
from pinnace.scheduler.config import parse_configuration
from pinnace.scheduler.plugins.default_preemption import DefaultPreemption
from pinnace.scheduler.preemption import DEADLINE
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.stage import Stage

HIGH = make_pod("high").req(cpu=4).priority(10)


def put_node(stage: Stage, cpu: int) -> None:
    stage.api.put(NODES, make_node("n").capacity(cpu=cpu, memory="4Gi", pods=10).build())


def there(name: str, cpu: int, priority: int = 0) -> PodBuilder:
    return make_pod(name).req(cpu=cpu).priority(priority).node("n")


def put(stage: Stage, *pods: PodBuilder) -> None:
    stage.api.put(PODS, *(pod.build() for pod in pods))


async def bury(stage: Stage) -> list[str]:
    """Removes those that are being deleted, one after the other."""
    await asyncio.sleep(1.0)
    gone = [key for key, pod in stage.api.all(PODS).items() if pod.metadata.HasField("deletionTimestamp")]
    for key in gone:
        stage.api.remove(PODS, key)
        await asyncio.sleep(3.0)
    return [key.removeprefix("default/") for key in gone]


def test_node_that_grows_is_not_large_enough_but_has_victims() -> None:
    stage = Stage()

    async def story() -> None:
        put_node(stage, 2)
        put(stage, there("low", 2), HIGH)
        await asyncio.sleep(2.0)
        put_node(stage, 4)
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


def test_removable_victim_stays_when_another_cannot_be_removed() -> None:
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        put(stage, there("low", 2), there("equal", 2, priority=10), HIGH)
        await asyncio.sleep(2.0)
        stage.api.remove(PODS, "default/equal")
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


MANAGED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/gpu]}}]
"""


@pytest.mark.parametrize(("resource", "helps"), [("example.com/gpu", True), ("example.com/fpga", False)])
def test_ignored_resource_causes_no_preemption(resource: str, helps: bool) -> None:
    """No node says that it has any."""
    stage = Stage(parse_configuration(MANAGED))

    async def story() -> None:
        put_node(stage, 4)
        high = make_pod("high").container({"cpu": 4, resource: 1}).priority(10)
        put(stage, there("low", 2), there("equal", 2, priority=10), high)
        await asyncio.sleep(2.0)
        stage.api.remove(PODS, "default/equal")
        assert await bury(stage) == ["low"] * helps and bool(stage.node_of("high")) is helps

    stage.play(story())


def test_leader_was_deposed_before_the_victim_was_deleted_and_leads_again() -> None:
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        put(stage, there("low", 4), HIGH)
        stage.api.lag = lambda: 1.0
        await asyncio.sleep(0.5)
        stage.candidate().depose()
        await asyncio.sleep(5.0)
        assert not stage.api.all(PODS)["default/low"].metadata.HasField("deletionTimestamp"), "by one that does not lead"
        stage.api.lag = lambda: 0.0
        stage.candidate().elect()
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


@pytest.mark.parametrize("code", [Code.PERMISSION_DENIED, Code.UNAVAILABLE], ids=["denied", "away"])
def test_victim_could_not_be_deleted(code: Code) -> None:
    """A webhook denies it, or is away for longer than is waited for it."""
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        put(stage, there("low", 4), HIGH)
        with patch.object(stage.api.pods, "_delete", side_effect=from_refusal(Refusal(code, "", "not now"))):
            await asyncio.sleep(DEADLINE + 5.0)
        await asyncio.sleep(15.0)
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


def test_victims_were_not_enough() -> None:
    """Another scheduler uses the room: it is woken when the last of them is gone, and finds another victim."""
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        put(stage, there("low", 4), HIGH)
        await asyncio.sleep(0.5)
        put(stage, there("late", 3))
        assert await bury(stage) == ["low"] and not stage.node_of("high")
        assert await bury(stage) == ["late"] and stage.node_of("high") == "n"

    stage.play(story())


def test_it_is_not_tried_again_for_each_victim() -> None:
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        put(stage, *(there(f"low{number}", 1) for number in range(4)), HIGH, make_pod("other").req(cpu=4).priority(5))
        with patch.object(DefaultPreemption, "post_filter", autospec=True, side_effect=DefaultPreemption.post_filter) as asked:
            assert len(await bury(stage)) == 4
        pods = [call.args[2].name for call in asked.call_args_list]
        assert stage.node_of("high") == "n" and sorted(pods) == ["high", "other"]

    stage.play(story())


def test_pod_without_victims_is_not_woken() -> None:
    """Pods of the same priority end one after the other, where there is room enough: the port is what the pod waits for. Tried
    each time in vain, it would have to wait for the end of its backoff when it is free."""
    stage = Stage()

    async def story() -> None:
        put_node(stage, 4)
        jobs = [make_pod(f"job{number}").node("n") for number in range(8)]
        put(stage, *jobs, make_pod("server").host_port(80).node("n"), make_pod("next").host_port(80))
        await asyncio.sleep(20.0)
        for job in jobs:
            stage.api.remove(PODS, f"default/{job.build().metadata.name}")
            await asyncio.sleep(1.0)
        stage.api.remove(PODS, "default/server")
        await asyncio.sleep(0.1)
        assert stage.node_of("next") == "n"

    stage.play(story())


def test_pods_end_where_preemption_cannot_help() -> None:
    """Room is not what keeps the pod off the node."""
    stage = Stage()

    async def story() -> None:
        stage.api.put(NODES, make_node("n").capacity(cpu=4, memory="4Gi", pods=10).taint("new").build())
        jobs = [make_pod(f"job{number}").req(cpu=1).node("n") for number in range(4)]
        put(stage, *jobs, HIGH)
        await asyncio.sleep(20.0)
        for number in range(4):
            stage.api.remove(PODS, f"default/job{number}")
            await asyncio.sleep(1.0)
        put_node(stage, 4)
        await asyncio.sleep(0.1)
        assert stage.node_of("high") == "n"

    stage.play(story())


def test_new_affinity_target_on_a_full_node() -> None:
    """Which preemption can make, and could not while nobody was there."""
    stage = Stage()

    async def story() -> None:
        for name, cpu in (("n", 4), ("m", 1)):
            node = make_node(name).capacity(cpu=cpu, memory="4Gi", pods=10).label("zone", "z")
            stage.api.put(NODES, node.build())
        put(stage, there("low", 4), make_pod("high").req(cpu=4).priority(10).affinity("app=db", "zone"))
        await asyncio.sleep(2.0)
        put(stage, make_pod("db").req(cpu=1).label("app", "db").node("m"))
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


def test_new_affinity_target_differs_from_the_victim() -> None:
    """No node was refused for it: the victim was the one to be near."""
    stage = Stage()

    async def story() -> None:
        for name, cpu in (("n", 4), ("m", 1)):
            node = make_node(name).capacity(cpu=cpu, memory="4Gi", pods=10).label("zone", "z")
            stage.api.put(NODES, node.build())
        put(stage, there("low", 4).label("app", "db"), make_pod("high").req(cpu=4).priority(10).affinity("app=db", "zone"))
        await asyncio.sleep(2.0)
        put(stage, make_pod("db").req(cpu=1).label("app", "db").node("m"))
        assert await bury(stage) == ["low"] and stage.node_of("high") == "n"

    stage.play(story())


def nominated(stage: Stage) -> str:
    return stage.schedulers[0]._cache.nodes.nominated.node_of("uid-default-high")


def test_nominated_node_is_gone() -> None:
    stage = Stage()

    async def story() -> None:
        for name in "nm":
            stage.api.put(NODES, make_node(name).capacity(cpu=4, memory="4Gi", pods=10).build())
        put(stage, there("low", 4), there("less", 4).node("m"), HIGH)
        await asyncio.sleep(0.5)
        gone = nominated(stage)
        stage.api.remove(NODES, gone)
        await asyncio.sleep(2.0)
        assert nominated(stage) == ({"n", "m"} - {gone}).pop()

    stage.play(story())


def test_room_of_a_pod_that_went_elsewhere_is_free() -> None:
    """`other` fits only where room is kept, until that is not. No event says so."""
    stage = Stage()
    high = make_pod("high").req(cpu=1, memory="3Gi").priority(10)
    other = make_pod("other").req(cpu=2, memory="1Gi").priority(10).tolerate("new")

    async def story() -> None:
        put_node(stage, 2)
        put(stage, make_pod("low").req(cpu=2, memory="4Gi").node("n"), high)
        await asyncio.sleep(0.5)
        stage.api.remove(PODS, "default/low")
        put(stage, other)
        await asyncio.sleep(0.1)
        assert nominated(stage) == "n" and not stage.node_of("other")
        stage.api.put(NODES, make_node("n").capacity(cpu=2, memory="4Gi", pods=10).taint("new").build())
        stage.api.put(NODES, make_node("m").capacity(cpu=1, memory="4Gi", pods=10).build())
        await asyncio.sleep(3.0)
        assert stage.node_of("high") == "m" and stage.node_of("other") == "n"

    stage.play(story())
