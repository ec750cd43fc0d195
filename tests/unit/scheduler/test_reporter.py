"""Events and conditions: once, in batches, and never over somebody else's write."""

from collections.abc import AsyncIterator, Sequence

import pytest

from pinnace.api import fences
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem
from pinnace.client.errors import from_refusal
from pinnace.scheduler.events import INTERVAL, StatusReporter
from tests.builders import PodBuilder, make_pod
from tests.clock import FakeClock
from tests.unit.scheduler.pods import info
from tests.unit.scheduler.running import running

MESSAGE = "0/1 nodes are available: 1 Insufficient cpu."


class Api:
    """Records events, and status writes as "name@resourceVersion reason: message"."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.writes: list[list[str]] = []
        self.pods: list[Pod] = []
        self.refusals: list[Refusal | None] = []
        self.whole: Refusal | None = None

    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None:
        self.events.append(f"{obj.metadata.name} {type_} {reason}: {message}")

    async def update_status_batch(self, objs: Sequence[Pod]) -> list[BatchItem]:
        self.pods = list(objs)
        conditions = [(pod, next(c for c in pod.status.conditions if c.type == "PodScheduled")) for pod in objs]
        self.writes.append(
            [f"{pod.metadata.name}@{pod.metadata.resourceVersion} {c.status} {c.reason}: {c.message}" for pod, c in conditions]
        )
        if self.whole is not None:
            raise from_refusal(self.whole)
        refusals = self.refusals or [None] * len(objs)
        return [BatchItem(error=encode(refusal)) if refusal else BatchItem() for refusal in refusals]


class World:
    def __init__(self) -> None:
        self.api, self.clock = Api(), FakeClock()
        self.store: dict[str, Pod] = {}
        self.reporter = StatusReporter(self.api, self.api, self.store, clock=self.clock)

    def holds(self, *pods: PodBuilder) -> None:
        for pod in pods:
            self.store[info(pod).key] = pod.build()

    def failed(self, *names: str, message: str = MESSAGE) -> None:
        for name in names:
            self.reporter.report_failed(info(make_pod(name)), "Unschedulable", message, "")

    async def write(self) -> list[list[str]]:
        """What is written in the next interval."""
        self.api.writes.clear()
        await self.clock.advance(INTERVAL)
        return self.api.writes


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with running(world.reporter):
        yield world


async def test_where_a_pod_went(world: World) -> None:
    world.reporter.report_scheduled(info(make_pod("a")), "node-1")
    assert world.api.events == ["a Normal Scheduled: Successfully assigned default/a to node-1"]
    assert await world.write() == []


async def test_why_it_went_nowhere(world: World) -> None:
    world.holds(make_pod("a").version(5), make_pod("b"))
    world.failed("a", "b")
    assert world.api.events[0] == f"a Warning FailedScheduling: {MESSAGE}"
    assert await world.write() == [[f"a@5 False Unschedulable: {MESSAGE}", f"b@1 False Unschedulable: {MESSAGE}"]]
    assert world.api.pods[0].status.conditions[0].lastTransitionTime.seconds == int(world.clock.time())
    assert not world.store["default/a"].status.conditions, "the informer's objects are not ours to change"
    assert await world.write() == []


async def test_same_message_is_not_written_twice(world: World) -> None:
    world.holds(make_pod("a").condition("PodScheduled", "False", "Unschedulable", MESSAGE))
    world.failed("a")
    assert await world.write() == [] and len(world.api.events) == 1
    world.failed("a", message="another")
    assert await world.write() == [["a@1 False Unschedulable: another"]]
    assert len(world.api.pods[0].status.conditions) == 1
    assert not world.api.pods[0].status.conditions[0].HasField("lastTransitionTime"), "the status did not change"


async def test_where_room_is_made_is_written_with_it(world: World) -> None:
    told = make_pod("a").condition("PodScheduled", "False", "Unschedulable", MESSAGE)
    for before, nominated, after in (("", "n", "n"), ("n", "", ""), ("n", "n", None)):
        world.holds(told.nominated(before))
        world.api.pods = []
        world.reporter.report_failed(info(make_pod("a")), "Unschedulable", MESSAGE, nominated)
        await world.write()
        assert [pod.status.nominatedNodeName for pod in world.api.pods] == ([] if after is None else [after])


async def test_only_the_status_is_sent_in_calls_that_a_server_takes(world: World) -> None:
    names = [f"p{number}" for number in range(100)]
    world.holds(*(make_pod(name).req(cpu="1") for name in names))
    for pod in world.store.values():
        pod.metadata.annotations["about"] = "x" * (50 << 10)
    world.failed(*names)
    assert [len(call) for call in await world.write()] == [100]
    assert not any(pod.HasField("spec") or pod.metadata.annotations for pod in world.api.pods)
    world.failed(*names, message="a taint " * (6 << 10))
    assert [len(call) for call in await world.write()] == [21, 21, 21, 21, 16]


async def test_latest_message_wins(world: World) -> None:
    world.holds(make_pod("a"))
    world.failed("a", message="first")
    world.failed("a", message="second")
    assert await world.write() == [["a@1 False Unschedulable: second"]]


@pytest.mark.parametrize("now", [None, make_pod("a").node("n"), make_pod("a").uid("another")])
async def test_pods_that_are_gone_or_bound_are_left_alone(world: World, now: PodBuilder | None) -> None:
    if now is not None:
        world.holds(now)
    world.failed("a")
    assert await world.write() == []


async def test_stale_write_is_made_again_from_the_newer_version(world: World) -> None:
    world.holds(make_pod("a").version(5))
    world.api.refusals = [Refusal(Code.ABORTED, "Conflict", "stale")]
    world.failed("a")
    assert await world.write() == [[f"a@5 False Unschedulable: {MESSAGE}"]]
    world.holds(make_pod("a").version(6))
    world.api.refusals = []
    assert await world.write() == [[f"a@6 False Unschedulable: {MESSAGE}"]]
    assert await world.write() == []


async def test_unavailable_server_is_tried_again_and_a_refusal_is_not(world: World) -> None:
    world.holds(make_pod("a"))
    world.api.whole = Refusal(Code.UNAVAILABLE, "", "down")
    world.failed("a")
    assert len(await world.write()) == 1
    assert len(await world.write()) == 1
    world.api.whole = Refusal(Code.PERMISSION_DENIED, "", "no")
    assert len(await world.write()) == 1
    assert await world.write() == []


async def test_dropped_report_is_not_written(world: World) -> None:
    world.holds(make_pod("a"))
    world.failed("a")
    world.reporter.discard_pending()
    assert await world.write() == []


async def test_refused_writes_are_the_count_of_one_event() -> None:
    """Each batch was an event of its own, so that nothing counted the writes."""
    world = World()
    world.reporter.report_fenced("scheduler-0", 19, 12)
    world.reporter.report_fenced("scheduler-0", 19, 25)
    assert len(world.api.events) == 37
    (event,) = set(world.api.events)
    assert event.startswith("kube-scheduler Warning Fenced: ") and fences.refused_token(event) == 19
