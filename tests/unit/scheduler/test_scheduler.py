"""The scheduler put together, against a real API server in this process, on a storage in memory."""

import asyncio
import inspect
from functools import partial
from traceback import format_exception

import numpy as np
import pytest

from pinnace.api.resources import PRIORITY_CLASSES
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.scheduler.config import parse_configuration, with_plugin
from pinnace.scheduler.framework import Change, ClusterEvent, CycleState, FilterResult, Handle, NodeTable, PodInfo
from tests.builders import make_node, make_pod
from tests.unit.scheduler.cluster import QUICK, TICK, Cluster, sees, small
from tests.unit.scheduler.pod_clients import HeldPods

NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


async def test_bind_is_fenced_and_recorded_as_an_event(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    cluster.schedule("s0")
    assert await cluster.bound("a") == "n"
    election = await cluster.client.elections.get("scheduler")
    assert (await cluster.pod("a")).metadata.annotations[FENCE_ANNOTATION] == f"scheduler/{election.token}"

    async def told() -> bool:
        return await cluster.events() == ["a Scheduled: Successfully assigned default/a to n"]

    await cluster.until(told)


async def test_pod_without_a_place_says_why_and_is_placed_when_there_is_one(cluster: Cluster) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1), make_pod("big").req(cpu=2))
    cluster.schedule("s0")

    async def condition() -> str:
        return next((c.message for c in (await cluster.pod("big")).status.conditions if c.status == "False"), "")

    assert await cluster.until(condition) == f"0/1 nodes are available: 1 Insufficient cpu. {NOT_HELPFUL}"
    await cluster.create(make_node("m").capacity(cpu=2, memory="1Gi", pods=10))
    assert await cluster.bound("big") == "m"
    assert await cluster.bound("a") == "n"


async def test_standby_takes_over_when_the_leader_dies_or_resigns(cluster: Cluster) -> None:
    await cluster.create(make_node("n"))
    schedulers = [cluster.schedule(f"s{number}") for number in range(3)]
    by_name = {f"s{number}": scheduler for number, scheduler in enumerate(schedulers)}
    first = await cluster.until(cluster.leader)
    await cluster.create(make_pod("a").req())
    await cluster.bound("a")

    await cluster.kill(by_name[first])
    await cluster.create(make_pod("b").req())
    await cluster.bound("b")
    second = await cluster.leader()
    assert second != first

    await by_name[second].stop()
    await cluster.create(make_pod("c").req())
    await cluster.bound("c")
    assert await cluster.leader() not in (first, second)


async def test_new_leader_decides_nothing_before_it_has_seen_what_was_decided(cluster: Cluster) -> None:
    """The first leader knows of `a` only and binds it to the only node; the second knows of both, but not of that bind, and
    would rather place `urgent`."""
    await cluster.create_class("high", preemptionPolicy="Never")
    leading, standby = cluster.connect(), cluster.connect()
    leading.pods, standby.pods = first_pods, second_pods = HeldPods(leading.connection), HeldPods(standby.connection)
    await cluster.create(make_pod("a").req(cpu=1))
    first = cluster.schedule("s0", leading)
    await cluster.until(cluster.leader)
    second = cluster.schedule("s1", standby)
    await cluster.until(lambda: sees(first, 1))
    first_pods.gate.clear()
    await cluster.create(make_pod("urgent").req(cpu=1).priority_class("high"))
    await cluster.until(lambda: sees(second, 2))
    second_pods.gate.clear()
    await cluster.create(small("n"))
    await cluster.bound("a")
    await cluster.kill(first)

    async def elected() -> bool:
        return await cluster.leader() == "s1"

    await cluster.until(elected)
    await asyncio.sleep(2 * TICK)  # what must not happen has this long to happen
    assert second.count_pending() == {"active": 2}
    second_pods.gate.set()

    async def refused() -> bool:
        message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
        return f"urgent FailedScheduling: {message}" in await cluster.events()

    await cluster.until(refused)
    assert not (await cluster.pod("urgent")).spec.nodeName


class Moody:
    """Fails for pods that are labelled so."""

    name = "Moody"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        if "mood" in pod.pod.metadata.labels:
            raise ValueError("bad mood")
        return FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")


async def test_failing_plugin_is_reported_and_affects_no_other_pod(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    place = f"(test_scheduler.py:{inspect.getsourcelines(Moody.filter)[1] + 2})"
    await cluster.create(make_node("n"), make_pod("bad").req().label("mood", "bad"), make_pod("good").req())
    cluster.schedule("s0", configuration=with_plugin(QUICK, f"{__name__}:Moody"))
    assert await cluster.bound("good") == "n"
    message = f'plugin "Moody" failed in Filter: ValueError: bad mood {place}'

    async def told(name: str) -> bool:
        return f"{name} FailedScheduling: {message}" in await cluster.events()

    await cluster.until(partial(told, "bad"))
    await cluster.create(make_pod("worse").req().label("mood", "bad"))
    await cluster.until(partial(told, "worse"))
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [message], "once, for both"
    assert errors[0].exc_info is not None and "in filter" in "".join(format_exception(errors[0].exc_info[1]))
    await cluster.client.pods.modify("bad", "default", lambda pod: pod.metadata.labels.clear())
    assert await cluster.bound("bad") == "n"


async def test_pods_of_another_scheduler_are_left_alone(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("theirs").req().scheduler("other"), make_pod("ours").req())
    cluster.schedule("s0")
    await cluster.bound("ours")
    assert not (await cluster.pod("theirs")).spec.nodeName


class Classy:
    """Refuses pods while there is no priority class of their name."""

    name = "Classy"
    needs = (PRIORITY_CLASSES,)
    helped_by = Change.OBJECT

    def __init__(self, handle: Handle) -> None:
        self._classes = handle.objects(PRIORITY_CLASSES)

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(np.full(len(nodes), pod.name not in self._classes), "node(s) had no class")

    def helps(self, event: ClusterEvent, pod: PodInfo, nodes: NodeTable) -> bool:
        return event.resource == "priorityclasses" and event.obj is not None and event.obj.metadata.name == pod.name


async def test_plugin_that_needs_other_objects(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("high").req())
    cluster.schedule("s0", configuration=with_plugin(QUICK, f"{__name__}:Classy"))

    async def refused() -> bool:
        return (
            f"high FailedScheduling: 0/1 nodes are available: 1 node(s) had no class. {NOT_HELPFUL}" in await cluster.events()
        )

    await cluster.until(refused)
    await cluster.create_class("high")
    assert await cluster.bound("high") == "n"


async def test_profiles_share_a_process(cluster: Cluster) -> None:
    text = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- {schedulerName: careless, plugins: {filter: {disabled: [{name: TaintToleration}]}}}
"""
    await cluster.create(make_node("n").taint("gpu"), make_pod("ours").req(), make_pod("theirs").req().scheduler("careless"))
    cluster.schedule("s0", configuration=parse_configuration(text))
    assert await cluster.bound("theirs") == "n"

    async def told() -> bool:
        return len(await cluster.events()) == 2

    await cluster.until(told)
    events = {
        event.reportingComponent: event.involvedObject.name for event in (await cluster.client.events.list("default")).items
    }
    assert events == {"default-scheduler": "ours", "careless": "theirs"}
