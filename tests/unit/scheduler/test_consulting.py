"""A scheduling cycle in which extenders are asked: what they say counts, and what happens meanwhile does, too."""

import asyncio
from collections.abc import Callable

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.extenders.extender import Extender
from pinnace.scheduler.extenders.interface import ExtenderError, FilterResponse
from pinnace.scheduler.framework.profile import Enabled, profile_of
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.plugins.default_preemption import DefaultPreemption
from pinnace.scheduler.queue import SchedulingQueue
from pinnace.scheduler.scheduling_cycle import AttemptFailed, CycleResult, ExtenderScheduling, Placed, Unschedulable
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.fake_extender import URL, FakeTransport, failing
from tests.unit.scheduler.pods import cache_of, framework, info
from tests.unit.scheduler.preempting import Bench

A = make_pod("a").req(cpu=1)
ALL = [f"n{i}" for i in range(3)]


def node(name: str) -> NodeBuilder:
    return make_node(name).capacity(cpu=4, memory="4Gi", pods=10)


class Story:
    """A pod that was popped from the queue, and is being decided on."""

    def __init__(self, *extenders: Extender, pod: PodBuilder = A, cache: Cache | None = None) -> None:
        self.cache = cache if cache is not None else cache_of(*map(node, ALL))
        self.framework = framework()
        self.queue = SchedulingQueue(self.framework)
        self.pods: dict[str, Pod] = {}
        self.consulting = ExtenderScheduling(self.cache, self.queue, self.pods, 0)
        self.extenders = extenders
        self.leads = True
        self.queue.add_pod(info(pod), 0.0)
        popped = self.queue.pop_pod(0.0)
        assert popped is not None
        self.queued = popped

    async def told(self) -> CycleResult | None:
        return await self.consulting.schedule_with_extenders(self.queued, self.framework, self.extenders, lambda: self.leads)

    async def told_after(self, transport: FakeTransport, meanwhile: Callable[[], object]) -> CycleResult | None:
        """`meanwhile` happens after the extender has been asked, and before it answers."""
        transport.gate.clear()
        asking = asyncio.ensure_future(self.told())
        await transport.called.wait()
        meanwhile()
        transport.gate.set()
        return await asking


async def test_pod_goes_where_extenders_leave_it_and_like_it() -> None:
    extender = FakeTransport(filter=["n0", "n1"], prioritize={"n0": 0, "n1": 10}).extender(weight=5)
    story = Story(extender)
    assert await story.told() == Placed("n1")
    assert story.cache.node_of(story.queued.info.uid) == "n1" and len(story.queue) == 0


async def test_their_scores_are_added_to_those_of_the_plugins() -> None:
    cache = cache_of(*map(node, ALL), placed=[make_pod("there").req(cpu=3, memory="3Gi").node("n0")])
    scores = {"n0": 5, "n1": 0, "n2": 0}
    assert await Story(FakeTransport(prioritize=scores).extender(weight=1), cache=cache).told() != Placed("n0")
    cache = cache_of(*map(node, ALL), placed=[make_pod("there").req(cpu=3, memory="3Gi").node("n0")])
    assert await Story(FakeTransport(prioritize=scores).extender(weight=9), cache=cache).told() == Placed("n0")


async def test_they_are_asked_about_the_nodes_only_that_the_filters_leave() -> None:
    transport = FakeTransport(filter=["n2"])
    cache = cache_of(node("n0").unschedulable(), node("n1"), node("n2"))
    assert await Story(transport.extender(), cache=cache).told() == Placed("n2")
    assert transport.asked == [("filter", ["n1", "n2"])]
    unasked = FakeTransport(filter=[])
    assert isinstance(await Story(unasked.extender(), pod=make_pod("a").req(cpu=9)).told(), Unschedulable)
    assert not unasked.asked


async def test_extender_refusals_are_listed_with_those_of_plugins() -> None:
    answer = FilterResponse([], failed={"n1": "too hot", "n2": "too hot"})
    cache = cache_of(node("n0").unschedulable(), node("n1"), node("n2"))
    outcome = await Story(FakeTransport(filter=answer).extender(), cache=cache).told()
    message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 too hot."
    assert outcome == Unschedulable(frozenset({"NodeUnschedulable", URL}), message)


async def test_failure_that_counts_fails_the_attempt() -> None:
    outcome = await Story(FakeTransport(filter=failing("filter")).extender()).told()
    assert isinstance(outcome, AttemptFailed)
    assert str(outcome.error) == f"failed filter with extender at URL {URL}/filter, code 500"


class TestMeanwhile:
    async def test_node_has_filled_up(self) -> None:
        transport = FakeTransport(filter=["n0", "n1"])
        story = Story(transport.extender())
        full = [make_pod(f"there-{name}").req(cpu=4).node(name) for name in ("n0", "n2")]
        outcome = await story.told_after(
            transport, lambda: [story.cache.add_pod(info(pod), pod.build().spec.nodeName) for pod in full]
        )
        assert outcome == Placed("n1")

    async def test_nodes_have_come_and_gone_and_rows_have_moved(self) -> None:
        transport = FakeTransport(filter=["n0", "n2"])
        story = Story(transport.extender())

        def replace() -> None:
            story.cache.remove_node("n0")
            story.cache.set_node(node("new").build())

        assert await story.told_after(transport, replace) == Placed("n2")

    async def test_only_a_node_is_left_that_was_not_asked_about(self) -> None:
        transport = FakeTransport(filter=["n0"])
        story = Story(transport.extender(), cache=cache_of(node("n0")))

        def replace() -> None:
            story.cache.remove_node("n0")
            story.cache.set_node(node("new").build())
            story.queue.move_pods_on_event(ClusterEvent(Change.NODE_ADDED, "new"), story.cache.nodes, 0.0)

        outcome = await story.told_after(transport, replace)
        assert isinstance(outcome, Unschedulable)
        story.queue.add_unschedulable(story.queued, outcome.refused_by, 0.0)
        assert story.queue.count_by_place() == {"backoff": 1}, "it is tried again by itself: its event has passed it by"

    async def test_pod_is_gone(self) -> None:
        transport = FakeTransport(filter=ALL)
        story = Story(transport.extender())
        assert await story.told_after(transport, lambda: story.queue.remove_pod(story.queued.info.uid)) is None
        assert len(story.queue) == 0 and len(story.cache) == 0

    async def test_pod_has_changed(self) -> None:
        transport = FakeTransport(filter=ALL)
        story = Story(transport.extender())
        changed = make_pod("a").req(cpu=2).version(2)
        assert await story.told_after(transport, lambda: story.queue.add_pod(info(changed), 0.0)) is None
        again = story.queue.pop_pod(0.0)
        assert again is not None and again.info.pod == changed.build()

    async def test_pods_status_has_changed(self) -> None:
        transport = FakeTransport(filter=["n1"])
        story = Story(transport.extender())
        changed = make_pod("a").req(cpu=1).condition("PodScheduled", "False", "Unschedulable").version(2)
        assert await story.told_after(transport, lambda: story.queue.add_pod(info(changed), 0.0)) == Placed("n1")

    async def test_term_is_over(self) -> None:
        transport = FakeTransport(filter=ALL)
        story = Story(transport.extender())
        transport.gate.clear()
        asking = asyncio.ensure_future(story.told())
        await transport.called.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):  # though the extender never answers
            await asking
        assert story.queue.count_by_place() == {"active": 1} and len(story.cache) == 0

    async def test_term_is_over_and_the_extender_has_answered(self) -> None:
        transport = FakeTransport(filter=ALL)
        story = Story(transport.extender())

        def depose() -> None:
            story.leads = False

        assert await story.told_after(transport, depose) is None
        assert story.queue.count_by_place() == {"active": 1} and len(story.cache) == 0


class TestPreemption:
    """Two nodes are full of pods that are less important: `n0` of one, `n1` of two, of which one has to go."""

    LOW = (
        make_pod("big").uid("big").req(cpu=4).priority(1).node("n0"),
        make_pod("x").uid("x").req(cpu=2).node("n1"),
        make_pod("y").uid("y").req(cpu=2).node("n1"),
    )

    @pytest.fixture(autouse=True)
    def bench(self) -> None:
        cache = cache_of(node("n0"), node("n1"), placed=self.LOW)
        self.bench = Bench(cache)
        plugins = [each for each in framework().profile.values() for each in each]
        others = list(
            {plugin.plugin.name: plugin for plugin in plugins if plugin.plugin.name != DefaultPreemption.name}.values()
        )
        self.profile = Framework("default-scheduler", profile_of([*others, Enabled(DefaultPreemption({}, self.bench))]))
        self.bench.framework = self.profile

    def story(self, *extenders: Extender) -> Story:
        story = Story(*extenders, pod=make_pod("a").req(cpu=2).priority(10), cache=self.bench.cache)
        story.framework = self.profile
        story.pods |= {f"default/{pod.build().metadata.name}": pod.build() for pod in self.LOW}
        return story

    async def run(self, *extenders: Extender) -> tuple[str, list[str]]:
        """Where room is made, and who has to go; or what is said after the first sentence."""
        outcome = await self.story(*extenders).told()
        assert isinstance(outcome, Unschedulable)
        return outcome.nominated or outcome.message.partition("Insufficient cpu. ")[2], sorted(self.bench.evicted)

    async def test_without_the_verb_they_have_no_say(self) -> None:
        assert await self.run(FakeTransport(filter=ALL).extender()) == ("n1", ["y"])

    async def test_they_choose_among_the_candidates(self) -> None:
        transport = FakeTransport(preempt={"n0": ["big"]})
        assert await self.run(transport.extender()) == ("n0", ["big"])
        assert transport.asked == [("preempt", {"n0": ["big"], "n1": ["y"]})]

    async def test_they_may_want_other_victims(self) -> None:
        second = FakeTransport(preempt=lambda victims: {node: ["x"] for node in victims if node == "n1"})
        first = FakeTransport(preempt={"n1": ["x", "y"]})
        assert await self.run(first.extender(), second.extender()) == ("n1", ["x"])
        assert second.asked == [("preempt", {"n1": ["y", "x"]})] or second.asked == [("preempt", {"n1": ["x", "y"]})]

    async def test_they_may_object_to_all(self) -> None:
        assert await self.run(FakeTransport(preempt={}).extender()) == ("preemption: no candidate node for preemption", [])

    async def test_extender_failures_are_reported(self) -> None:
        said, evicted = await self.run(FakeTransport(preempt=failing("preempt")).extender())
        assert said == f"preemption: failed preempt with extender at URL {URL}/preempt, code 500" and not evicted
        said, evicted = await self.run(FakeTransport(preempt={"n1": ["other"]}).extender())
        assert "claims to preempt pod (UID: other) on node: n1" in said and not evicted
        said, evicted = await self.run(FakeTransport(preempt={"n1": []}).extender())
        assert 'expected at least one victim pod on node "n1"' in said and not evicted

    async def test_their_failures_are_ignored_if_they_are_ignorable(self) -> None:
        assert await self.run(FakeTransport(preempt=failing("preempt")).extender(ignorable=True)) == ("n1", ["y"])

    async def test_node_that_has_changed_meanwhile_is_left_out(self) -> None:
        transport = FakeTransport(preempt={"n0": ["big"], "n1": ["y"]})
        story = self.story(transport.extender())
        outcome = await story.told_after(transport, lambda: self.bench.cache.remove_pod("y"))
        assert isinstance(outcome, Unschedulable)
        assert (outcome.nominated, self.bench.evicted, outcome.outdated) == ("n0", ["big"], False)

    async def test_when_all_have_changed_meanwhile_the_pod_is_tried_again(self) -> None:
        transport = FakeTransport(preempt={"n1": ["y"]})
        story = self.story(transport.extender())
        outcome = await story.told_after(transport, lambda: self.bench.cache.set_node(node("n1").label("new", "er").build()))
        assert isinstance(outcome, Unschedulable) and outcome.outdated and not self.bench.evicted

    @pytest.mark.parametrize("answer", [failing("preempt"), {"n1": ["y"]}], ids=["the extender fails", "all have changed"])
    async def test_room_stays_kept_when_nothing_has_been_found_out(self, answer: ExtenderError | dict[str, list[str]]) -> None:
        transport = FakeTransport(preempt=answer)
        story = self.story(transport.extender())
        self.bench.cache.nominate_pod(story.queued.info, "n0")
        outcome = await story.told_after(transport, lambda: self.bench.cache.set_node(node("n1").label("new", "er").build()))
        assert isinstance(outcome, Unschedulable) and outcome.outdated and outcome.nominated == "n0"

    async def test_nomination_ends_when_extenders_refuse_all_nodes(self) -> None:
        story = self.story(FakeTransport(preempt={}).extender())
        self.bench.cache.nominate_pod(story.queued.info, "n0")
        outcome = await story.told()
        assert isinstance(outcome, Unschedulable) and not outcome.nominated
