"""Schedulers that assigned resources twice, scheduled a pod twice, or disagreed permanently with the node."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.verbs_pb2 import ADDED, MODIFIED, BatchItem, WatchEventType
from pinnace.fit import FitRefusal
from pinnace.kubelet.lifecycle.plan import get_template
from pinnace.kubelet.node import VirtualNode
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.kubelet.fakeapi import FakeApi
from tests.unit.scheduler import binder_world as binding
from tests.unit.scheduler import test_feed as feed
from tests.unit.scheduler.pods import cache_of, framework, info

HOUR = 3600.0


async def test_kubernetes_106361_assumed_pod_does_not_expire_during_a_slow_bind() -> None:
    """An assumed pod expired after 30 s while its bind was in flight to an overloaded API server. Its resources were assigned
    to another pod, and then the bind succeeded: https://github.com/kubernetes/kubernetes/issues/106361

    Here: the response to a bind is lost, and reads of the pod fail for an hour. Guard: no timer ends an assumption. The binder
    reads the pod until it knows the outcome."""
    world = binding.World()
    running = asyncio.ensure_future(world.binder.run())
    world.api.whole = world.api.read_error = binding.UNKNOWN
    world.submit("a")
    for _ in range(6):
        await world.clock.advance(HOUR / 6)
        assert world.assumed() == ["a"]
    world.api.read_error = None
    await world.resolve()
    assert (world.assumed(), world.told) == ([], ["failed a: no"]), "the binder did not resolve the bind"
    running.cancel()
    await asyncio.wait((running,))


def test_kubernetes_26043_updated_assumed_pod_is_not_queued_again() -> None:
    """Binds became asynchronous. A pod whose bind was in flight appeared unbound, was queued again, and was assumed a second
    time: https://github.com/kubernetes/kubernetes/issues/26043

    Here: any update of a pending pod between its scheduling and its bind. Guard: the event handlers queue only pods that the
    cache does not contain, and the cache rejects a second assumption."""
    world = feed.World()
    world.tell(ADDED, feed.POD)
    queued = world.queue.pop_pod(world.now)
    assert queued is not None
    world.cache.assume_pod(queued.info, "n")
    world.tell(MODIFIED, make_pod("a").req(cpu=1).label("dirty", "yes"), feed.POD)
    assert len(world.queue) == 0
    assert world.free == 0
    with pytest.raises(ValueError, match="cannot be assumed"):
        world.cache.assume_pod(queued.info, "n")


class ApiWithScheduler(FakeApi):
    """Includes a scheduler without delay: when a pod finishes, its resources go to the next pod immediately."""

    def __init__(self, *waiting: PodBuilder) -> None:
        super().__init__()
        self.waiting = list(waiting)

    def _changed(self, pod: Pod, kind: WatchEventType) -> BatchItem:
        item = super()._changed(pod, kind)
        if pod.status.phase in ("Succeeded", "Failed") and self.waiting:
            self.create(self.waiting.pop(0))
        return item


async def test_kubernetes_29846_kubelet_frees_resources_before_it_reports_completion() -> None:
    """Pods failed with OutOfcpu: the scheduler reused the resources of finished pods before the kubelet had freed them:
    https://github.com/kubernetes/kubernetes/issues/29846, and again /issues/106884

    Here: the same. Guard: the kubelet frees the resources of a pod before it reports the end (`PodManager._report_change`)."""

    def job(name: str) -> PodBuilder:
        return make_pod(name).req(cpu=4).restart_policy("Never").annotation("pinnace.io/run-seconds", "3")

    api = ApiWithScheduler(job("b"), job("c"))
    await api.start_fleet()
    api.create(job("a"))
    await api.clock.advance(10.0)
    assert [api.phases(name) for name in "abc"] == [["Running", "Succeeded"]] * 3
    await api.stop_fleet()


def test_kubernetes_29846_terminating_pod_keeps_its_resources() -> None:
    """As above: a deleted pod runs until its grace period ends. Guard: only its end or its removal frees its resources."""
    world = feed.World()
    bound = make_pod("a").req(cpu=1).node("n")
    world.tell(ADDED, bound)
    world.tell(MODIFIED, bound.terminating(), bound)
    assert world.free == 0
    world.tell(MODIFIED, bound.phase("Succeeded"), bound)
    assert world.free == 1000


cpus = st.sampled_from(["0", "100m", "1500m", "2", "1.5"])
memories = st.sampled_from(["0", "1Gi", "1.5Gi", "1500M"])


@st.composite
def nodes(draw: st.DrawFn, number: int) -> NodeBuilder:
    node = make_node(f"n{number}").capacity(cpu=draw(cpus), memory=draw(memories), pods=draw(st.integers(0, 4)))
    node.allocatable(cpu=draw(cpus), pods=draw(st.integers(0, 4)))
    return node.extended("example.com/gpu", draw(st.integers(0, 2)))


@st.composite
def pods(draw: st.DrawFn, number: int) -> PodBuilder:
    pod = make_pod(f"p{number}").req(cpu=draw(cpus), memory=draw(memories))
    if draw(st.booleans()):
        pod.init(sidecar=draw(st.booleans()), cpu=draw(cpus))
    if draw(st.booleans()):
        pod.overhead(cpu=draw(cpus))
    if draw(st.booleans()):
        pod.host_port(draw(st.integers(80, 81)), ip=draw(st.sampled_from(["", "10.0.0.1"])))
    if draw(st.booleans()):
        pod.req(**{"example.com/gpu": 1})
    return pod


clusters = st.integers(1, 3).flatmap(lambda count: st.tuples(*map(nodes, range(count))))
workloads = st.integers(1, 6).flatmap(lambda count: st.tuples(*map(pods, range(count))))


@given(clusters, workloads)
def test_nomad_13017_kubelet_admits_every_scheduled_pod(built: Sequence[NodeBuilder], waiting: Sequence[PodBuilder]) -> None:
    """Nomad's workers and its plan applier evaluated nodes with different code. Where they differed, a worker proposed the same
    node forever and the applier rejected it forever: https://github.com/hashicorp/nomad/issues/13017

    Here: the kubelet verifies placements, and its rejection ends a pod. Guard: both use `pinnace.fit` with the same requests
    and the same allocatable."""
    cache, profile = cache_of(*built), framework()
    played = {node.build().metadata.name: VirtualNode(node.build()) for node in built}
    for pod in waiting:
        outcome = schedule_one(info(pod), NodeSelector(cache, profile, seed=0))
        if isinstance(outcome, Placed):
            admitted = played[outcome.node].admit_pod(pod.build().metadata.uid, get_template(pod.build()))
            assert not isinstance(admitted, FitRefusal), f"{outcome.node} rejects {pod}: {admitted.admission_message}"


async def test_nomad_13017_rejected_pod_is_not_scheduled_again() -> None:
    """As above, when scheduler and kubelet still differ, as after a node has shrunk or a pod was bound manually. Guard: the
    rejected pod fails. The scheduler ignores it, and its controller creates a new one."""
    api = FakeApi()
    await api.start_fleet()
    api.create(make_pod("big").req(cpu=5))
    await api.clock.advance(HOUR)
    assert api.phases("big") == ["Failed"]
    world = feed.World()
    world.tell(MODIFIED, make_pod("a").req(cpu=1).node("n").phase("Failed"))
    assert (len(world.queue), world.free) == (0, 1000)
    await api.stop_fleet()
