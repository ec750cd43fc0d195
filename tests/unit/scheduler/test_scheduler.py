"""The scheduler put together, against a real API server in this process, on a storage in memory."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from apiserver.server import ApiServer
from apiserver.storage.interface import Write
from apiserver.storage.memory import MemoryStorage
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods_pb2 import Fence
from pinnace.api.resources import PODS, PRIORITY_CLASSES, election_key
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.client.client import Client, PodClient, WatchBatch
from pinnace.client.connection import Connection
from pinnace.client.errors import NotFound, unavailable
from scheduler.binding import IN_FLIGHT
from scheduler.config import Configuration, parse, with_plugin
from scheduler.framework import Change, ClusterEvent, CycleState, FilterResult, Handle, NodeTable, PodInfo, Status, Wait
from scheduler.scheduler import Scheduler
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod

PATIENCE = 10.0
TICK = 0.05
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
QUICK = Configuration(initial_backoff=0.05, max_backoff=0.1)


class Cluster:
    """An API server, and schedulers that are started, stopped and killed."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.server = ApiServer(self.storage)
        self.address = ""
        self._changed = asyncio.Event()
        self._connections: list[Connection] = []
        self._running: dict[Scheduler, asyncio.Task[None]] = {}

    async def start(self) -> None:
        self.address = await self.server.start("127.0.0.1:0")
        self.client = self.connect()
        self.server.cacher.subscribe("/registry/", lambda change: self._changed.set())
        await self.until(self._has_namespace)

    def connect(self) -> Client:
        self._connections.append(Connection([self.address]))
        return Client(self._connections[-1])

    def schedule(self, name: str, client: Client | None = None, configuration: Configuration | None = None) -> Scheduler:
        scheduler = Scheduler(client or self.connect(), name, configuration or QUICK)
        self._running[scheduler] = asyncio.ensure_future(scheduler.run())
        return scheduler

    async def kill(self, scheduler: Scheduler) -> None:
        running = self._running.pop(scheduler)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        for scheduler in list(self._running):
            await self.kill(scheduler)
        for connection in self._connections:
            await connection.close()
        await self.server.stop()

    async def depose(self) -> None:
        """Ends the present term, as the API server does with a leader that has fallen silent."""
        current = await self.storage.get(election_key("scheduler"))
        assert current is not None
        await self.storage.transact([Write(current.key, None, current.mod_revision)])

    async def create(self, *objects: NodeBuilder | PodBuilder) -> None:
        for obj in objects:
            if isinstance(obj, PodBuilder):
                await self.client.pods.create(obj.new())
            else:
                await self.client.nodes.create(obj.new())

    async def create_class(self, name: str, **fields: Any) -> None:
        """Of priority 10."""
        await self.client.priority_classes.create(PriorityClass(metadata=ObjectMeta(name=name), value=10, **fields))

    async def leader(self) -> str:
        try:
            return (await self.client.elections.get("scheduler")).holder
        except NotFound:
            return ""

    async def pod(self, name: str) -> Pod:
        return await self.client.pods.get(name, "default")

    async def events(self) -> list[str]:
        listing = await self.client.events.list("default")
        return sorted(f"{event.involvedObject.name} {event.reason}: {event.message}" for event in listing.items)

    async def until(self, wanted: Callable[[], Any]) -> Any:
        """Asks after every change of the store, and now and then, until the answer is true; that answer."""
        async with asyncio.timeout(PATIENCE):
            while not (answer := await wanted()):
                self._changed.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), TICK)
        return answer

    async def bound(self, name: str) -> str:
        """The node of a pod, once it has one."""

        async def node() -> str:
            return (await self.pod(name)).spec.nodeName

        found: str = await self.until(node)
        return found

    async def _has_namespace(self) -> bool:
        try:
            return bool(await self.client.namespaces.get("default"))
        except NotFound:
            return False


@asynccontextmanager
async def running(server: ApiServer) -> AsyncIterator[None]:
    task = asyncio.ensure_future(server.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with running(cluster.server):
        await cluster.start()
        yield cluster
        await cluster.close()


def small(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=1, memory="1Gi", pods=10)


class HeldPods(PodClient):
    """Shows its watcher nothing while the gate is closed."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.gate = asyncio.Event()
        self.gate.set()

    async def watch(self, *args: Any, **kwargs: Any) -> AsyncGenerator[WatchBatch[Pod], None]:
        async for batch in super().watch(*args, **kwargs):
            await self.gate.wait()
            yield batch


class LosingPods(PodClient):
    """Loses binds, and later their answers: the caller cannot tell which."""

    def __init__(self, connection: Connection, *, lost_on: str) -> None:
        super().__init__(connection, PODS)
        self.lost_on = lost_on
        self.calls = 0

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        self.calls += 1
        if self.lost_on == "way there":
            raise unavailable("lost")
        items = await super().bind_batch(bindings, fence)
        if self.lost_on == "way back":
            raise unavailable("lost")
        return items


class LatePods(PodClient):
    """Sends binds under the token before: as a leader does that has been deposed and does not know."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.calls = 0
        self.fenced = asyncio.Event()

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        assert fence is not None
        self.calls += 1
        items = await super().bind_batch(bindings, Fence(election=fence.election, token=fence.token - 1))
        self.fenced.set()
        return items


class StuckPods(PodClient):
    """Binds are sent, and never answered."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, PODS)
        self.calls = 0

    async def bind_batch(self, bindings: Sequence[Binding], fence: Fence | None) -> list[BatchItem]:
        self.calls += 1
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")


async def test_a_pod_is_bound_under_the_fence_and_it_is_told(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req(cpu=1))
    cluster.schedule("s0")
    assert await cluster.bound("a") == "n"
    election = await cluster.client.elections.get("scheduler")
    assert (await cluster.pod("a")).metadata.annotations[FENCE_ANNOTATION] == f"scheduler/{election.token}"

    async def told() -> bool:
        return await cluster.events() == ["a Scheduled: Successfully assigned default/a to n"]

    await cluster.until(told)


async def test_a_pod_without_a_place_says_why_and_is_placed_when_there_is_one(cluster: Cluster) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1), make_pod("big").req(cpu=2))
    cluster.schedule("s0")

    async def condition() -> str:
        return next((c.message for c in (await cluster.pod("big")).status.conditions if c.status == "False"), "")

    assert await cluster.until(condition) == f"0/1 nodes are available: 1 Insufficient cpu. {NO_VICTIMS}"
    await cluster.create(make_node("m").capacity(cpu=2, memory="1Gi", pods=10))
    assert await cluster.bound("big") == "m"
    assert await cluster.bound("a") == "n"


async def test_a_standby_takes_over_when_the_leader_dies_or_resigns(cluster: Cluster) -> None:
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


async def test_a_new_leader_decides_nothing_before_it_has_seen_what_was_decided(cluster: Cluster) -> None:
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
    assert second.pending() == {"active": 2}
    second_pods.gate.set()

    async def refused() -> bool:
        message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
        return f"urgent FailedScheduling: {message}" in await cluster.events()

    await cluster.until(refused)
    assert not (await cluster.pod("urgent")).spec.nodeName


def decisions() -> float:
    return REGISTRY.get_sample_value("scheduler_schedule_attempts_total", {"result": "scheduled"}) or 0.0


async def sees(scheduler: Scheduler, pods: int) -> bool:
    return sum(scheduler.pending().values()) == pods


@pytest.mark.parametrize("lost_on", ["way there", "way back"])
async def test_a_bind_whose_answer_is_lost_is_found_out_about(cluster: Cluster, lost_on: str) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on=lost_on)
    cluster.schedule("s0", client)

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    losing.lost_on = ""
    assert await cluster.bound("a") == "n"

    async def told() -> bool:
        return "a Scheduled: Successfully assigned default/a to n" in await cluster.events()

    await cluster.until(told)


async def test_binds_that_were_lost_with_a_term_are_settled_in_the_next(cluster: Cluster) -> None:
    await cluster.create(small("n"), make_pod("a").req(cpu=1))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on="way there")
    cluster.schedule("s0", client)

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    await cluster.depose()
    losing.lost_on = ""
    assert await cluster.bound("a") == "n"


async def test_a_fenced_leader_stops(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("a").req())
    client = cluster.connect()
    client.pods = late = LatePods(client.connection)
    scheduler = cluster.schedule("s0", client)
    await asyncio.wait_for(late.fenced.wait(), PATIENCE)
    await cluster.create(make_pod("b").req())

    async def waiting() -> bool:
        return scheduler.pending() == {"active": 1}

    await cluster.until(waiting)
    await asyncio.sleep(2 * TICK)  # what must not happen has this long to happen
    assert await waiting() and late.calls == 1
    assert not (await cluster.pod("a")).spec.nodeName and await cluster.events() == []


async def test_decisions_that_were_not_sent_are_taken_back_with_the_term(cluster: Cluster) -> None:
    await cluster.create(make_node("n"))
    client = cluster.connect()
    client.pods = stuck = StuckPods(client.connection)
    scheduler = cluster.schedule("s0", client)
    before = decisions()

    async def decided() -> bool:
        return decisions() - before == number + 1

    for number in range(IN_FLIGHT + 1):
        await cluster.create(make_pod(f"p{number}").req())
        await cluster.until(decided)
    assert stuck.calls == IN_FLIGHT
    await scheduler.stop()
    assert scheduler.pending() == {"active": 1}


class Moody:
    """Fails for pods that are labelled so."""

    name = "Moody"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        if "mood" in pod.pod.metadata.labels:
            raise ValueError("bad mood")
        return FilterResult.refusing(np.zeros(len(nodes), np.bool_), "")


async def test_a_plugin_that_fails_is_told_and_hurts_no_other_pod(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("bad").req().label("mood", "bad"), make_pod("good").req())
    cluster.schedule("s0", configuration=with_plugin(QUICK, f"{__name__}:Moody"))
    assert await cluster.bound("good") == "n"

    async def told() -> bool:
        return 'bad FailedScheduling: plugin "Moody" failed in Filter: ValueError: bad mood' in await cluster.events()

    await cluster.until(told)
    await cluster.client.pods.modify("bad", "default", lambda pod: pod.metadata.labels.clear())
    assert await cluster.bound("bad") == "n"


async def test_pods_of_another_scheduler_are_left_alone(cluster: Cluster) -> None:
    await cluster.create(make_node("n"), make_pod("theirs").req().scheduler("other"), make_pod("ours").req())
    cluster.schedule("s0")
    await cluster.bound("ours")
    assert not (await cluster.pod("theirs")).spec.nodeName


class Turnstile:
    """Lets pods through in pairs."""

    name = "Turnstile"

    def __init__(self, handle: Handle) -> None:
        self._waiting = handle.waiting
        self.timeout = PATIENCE
        self.log: list[str] = []
        TURNSTILES.append(self)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        self.log.append(f"reserve {pod.name}")
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self.log.append(f"unreserve {pod.name}")

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> Wait | None:
        first = next(iter(self._waiting), None)
        if first is None:
            return Wait(self.timeout)
        first.allow(self.name)
        return None

    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        self.log.append(f"bound {pod.name}")


TURNSTILES: list[Turnstile] = []


class TestPermit:
    @pytest.fixture
    async def turnstile(self, cluster: Cluster) -> Turnstile:
        await cluster.create(make_node("n"))
        self.scheduler = cluster.schedule("s0", configuration=with_plugin(QUICK, f"{__name__}:Turnstile"))
        await cluster.until(cluster.leader)
        return TURNSTILES[-1]

    async def logged(self, cluster: Cluster, turnstile: Turnstile, *expected: str) -> None:
        async def same() -> bool:
            return turnstile.log == list(expected)

        await cluster.until(same)

    async def test_a_pod_waits_for_another(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        assert not (await cluster.pod("a")).spec.nodeName
        await cluster.create(make_pod("b").req())
        assert (await cluster.bound("a"), await cluster.bound("b")) == ("n", "n")

        async def told() -> bool:
            return turnstile.log[:2] == ["reserve a", "reserve b"] and sorted(turnstile.log[2:]) == ["bound a", "bound b"]

        await cluster.until(told)

    async def test_a_pod_that_waits_in_vain_is_tried_again(self, cluster: Cluster, turnstile: Turnstile) -> None:
        turnstile.timeout = TICK
        await cluster.create(make_pod("a").req())
        timeout = f"rejected due to timeout after waiting {TICK:g}s at plugin Turnstile"

        async def told() -> bool:
            events = await cluster.events()
            return f"a FailedScheduling: 0/1 nodes are available: 1 {timeout}." in events

        await cluster.until(told)
        turnstile.timeout = PATIENCE

        async def again() -> bool:
            return turnstile.log[:3] == ["reserve a", "unreserve a", "reserve a"]

        await cluster.until(again)

    async def test_a_pod_that_is_deleted_waits_no_more(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        await cluster.client.pods.delete("a", "default", grace=0)
        await self.logged(cluster, turnstile, "reserve a", "unreserve a")

    async def test_what_waits_at_the_end_of_a_term_is_decided_anew(self, cluster: Cluster, turnstile: Turnstile) -> None:
        await cluster.create(make_pod("a").req())
        await self.logged(cluster, turnstile, "reserve a")
        await cluster.depose()
        await self.logged(cluster, turnstile, "reserve a", "unreserve a", "reserve a")
        await cluster.create(make_pod("b").req())
        assert await cluster.bound("a") == "n"


async def test_what_plugins_did_for_binds_that_did_not_happen_is_undone_in_the_next_term(
    cluster: Cluster,
) -> None:
    await cluster.create(make_node("n"))
    client = cluster.connect()
    client.pods = losing = LosingPods(client.connection, lost_on="way there")
    cluster.schedule("s0", client, with_plugin(QUICK, f"{__name__}:Turnstile"))
    await cluster.create(make_pod("a").req(), make_pod("b").req())

    async def called() -> bool:
        return losing.calls > 0

    await cluster.until(called)
    await cluster.depose()
    losing.lost_on = ""
    await cluster.bound("a")
    log = TURNSTILES[-1].log
    assert sorted(log[2:4]) in (["unreserve a", "unreserve b"], ["bound a", "bound b"])


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


async def test_a_plugin_that_needs_other_objects(cluster: Cluster) -> None:
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
profiles: [{}, {schedulerName: careless, plugins: {filter: {disabled: [{name: TaintToleration}]}}}]
"""
    await cluster.create(make_node("n").taint("gpu"), make_pod("ours").req(), make_pod("theirs").req().scheduler("careless"))
    cluster.schedule("s0", configuration=parse(text))
    assert await cluster.bound("theirs") == "n"

    async def told() -> bool:
        return len(await cluster.events()) == 2

    await cluster.until(told)
    events = {
        event.reportingComponent: event.involvedObject.name for event in (await cluster.client.events.list("default")).items
    }
    assert events == {"default-scheduler": "ours", "careless": "theirs"}


async def test_a_pod_preempts_another_and_its_room_is_kept(cluster: Cluster) -> None:
    """The kubelet's part, removing the victim, is played by hand."""
    await cluster.create_class("high")
    await cluster.create(small("n"), make_pod("low").req(cpu=1))
    cluster.schedule("s0")
    await cluster.bound("low")
    await cluster.create(make_pod("high").req(cpu=1).priority_class("high"))

    async def preempted() -> bool:
        high, low = await cluster.pod("high"), await cluster.pod("low")
        return high.status.nominatedNodeName == "n" and low.metadata.HasField("deletionTimestamp")

    await cluster.until(preempted)
    condition = next(each for each in (await cluster.pod("low")).status.conditions if each.type == "DisruptionTarget")
    assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
    assert condition.message == "default-scheduler: preempting to accommodate a higher priority pod"

    await cluster.create(make_pod("late").req(cpu=1).priority_class("high"))

    async def refused() -> bool:
        return any(
            event.startswith("late FailedScheduling: 0/1 nodes are available: 1 Insuff") for event in await cluster.events()
        )

    await cluster.until(refused)
    await cluster.client.pods.delete("low", "default", grace=0)
    assert await cluster.bound("high") == "n"
    assert not (await cluster.pod("late")).spec.nodeName

    async def told() -> bool:
        events = await cluster.events()
        return (
            "low Preempted: Preempted by pod default/high on node n" in events
            and "high FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu." in events
        )

    await cluster.until(told)


async def test_a_new_leader_keeps_the_room_too(cluster: Cluster) -> None:
    await cluster.create_class("high")
    await cluster.create(small("n"), make_pod("low").req(cpu=1))
    first = cluster.schedule("s0")
    await cluster.bound("low")
    await cluster.create(make_pod("high").req(cpu=1).priority_class("high"))

    async def preempted() -> bool:
        return (await cluster.pod("high")).status.nominatedNodeName == "n"

    await cluster.until(preempted)
    await cluster.kill(first)
    await cluster.create(make_pod("other").req(cpu=1))
    second = cluster.schedule("s1")
    await cluster.until(lambda: sees(second, 2))
    assert second._cache.nodes.nominated.node_of((await cluster.pod("high")).metadata.uid) == "n"
    await cluster.client.pods.delete("low", "default", grace=0)
    assert await cluster.bound("high") == "n"
