"""Groups of pods of which all get nodes, or none: through the whole scheduler, in virtual time."""

import asyncio
import random
from pathlib import Path
from unittest.mock import patch

import pytest

from pinnace.api.manifest import load
from pinnace.api.resources import NODES, PODS
from pinnace.scheduler import explaining
from pinnace.scheduler.config import (
    Configuration,
    ConfigurationError,
    build_frameworks,
    parse_configuration,
    required_resources,
)
from pinnace.scheduler.explaining import SelectedConfiguration
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.framework.reuse import EquivalenceCache
from pinnace.scheduler.plugins.coscheduling import MIN_AVAILABLE, NAME, Coscheduling
from pinnace.scheduler.scheduling_cycle import schedule_one
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.fake_api import Weather
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.stage import Stage

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- "
ARGS = "pluginConfig: [{name: Coscheduling, args: {permitWaitingTimeSeconds: 40}}]"
PLUGINS = {
    "sorted": "multiPoint: {enabled: [{name: Coscheduling}], disabled: [{name: PrioritySort}]}",
    "unsorted": "multiPoint: {enabled: [{name: Coscheduling}]}, queueSort: {disabled: [{name: Coscheduling}]}",
}
EXAMPLES = Path(__file__).parents[3] / "examples"


def configured(plugins: str) -> Configuration:
    return parse_configuration(f"{HEAD}plugins: {{{PLUGINS[plugins]}}}\n  {ARGS}\n")


@pytest.fixture(params=sorted(PLUGINS))
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(configured(request.param))


def member(name: str, group: str, enough: object = 3) -> PodBuilder:
    return make_pod(name).req(cpu=1).label(NAME, group).label(MIN_AVAILABLE, str(enough))


def group(name: str, size: int, enough: int = 0) -> list[PodBuilder]:
    return [member(f"{name}{number}", name, enough or size) for number in range(size)]


def put(stage: Stage, *pods: PodBuilder) -> None:
    stage.api.put(PODS, *(pod.build() for pod in pods))


def put_nodes(stage: Stage, count: int, first: int = 0) -> None:
    """Each takes one pod."""
    for number in range(first, first + count):
        stage.api.put(NODES, make_node(f"n{number}").capacity(cpu=1, memory="1Gi", pods=10).build())


def told(stage: Stage, pod: str) -> list[str]:
    return [text.partition(": ")[2] for text in stage.api.told if text.startswith(f"{pod} FailedScheduling")]


def test_group_is_placed_when_all_of_it_are_there(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 4)
        put(stage, *group("g", 3)[:2], make_pod("alone").req(cpu=1))
        await asyncio.sleep(5.0)
        assert stage.bound() == ["alone"]
        siblings = "pre-filter pod g0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3"
        assert told(stage, "g0")[0].startswith(f"0/4 nodes are available: {siblings}.")
        put(stage, group("g", 3)[2])
        await asyncio.sleep(12.0)
        assert stage.bound() == ["alone", "g0", "g1", "g2"]

    stage.play(story())


def test_none_of_a_group_is_placed_that_does_not_fit(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *group("g", 4))
        await asyncio.sleep(60.0)
        assert stage.api.binds == []
        rejected = "is unschedulable even after PostFilter."
        assert any(rejected in text for number in range(4) for text in told(stage, f"g{number}"))
        put(stage, make_pod("alone").req(cpu=1))
        await asyncio.sleep(2.0)
        assert stage.bound() == ["alone"], "no room is held for the group"
        put_nodes(stage, 2, first=3)
        await asyncio.sleep(15.0)
        assert len(stage.bound()) == 5

    stage.play(story())


def test_pods_being_unreserved_do_not_count(stage: Stage) -> None:
    """The third fits nowhere, so the first two give up; the fourth is looked at before they have left."""

    async def story() -> None:
        put_nodes(stage, 3)
        members = group("g", 4, enough=3)
        members[2].node_selector("kubernetes.io/hostname", "nowhere")
        put(stage, *members)
        await asyncio.sleep(0.5)
        assert stage.bound() == []
        await asyncio.sleep(20.0)
        assert stage.bound() == ["g0", "g1", "g3"]

    stage.play(story())


def test_more_than_enough_are_placed_as_far_as_they_fit(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 4)
        put(stage, *group("g", 6, enough=3))
        await asyncio.sleep(30.0)
        assert len(stage.bound()) == 4
        stage.api.remove(PODS, f"default/{stage.bound()[0]}")
        await asyncio.sleep(15.0)
        assert len(stage.bound()) == 4

    stage.play(story())


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_groups_that_hold_what_others_lack_do_not_wait_for_each_other(stage: Stage, groups: int) -> None:
    """Each needs the whole cluster, and their pods come in turn. When one has finished, the next is placed."""
    size = 4

    async def story() -> None:
        put_nodes(stage, size)
        for number in range(size):
            put(stage, *(group(name, size)[number] for name in "abcde"[:groups]))
        placed = ""
        for _ in range(groups):
            await asyncio.sleep(40.0)
            assert len({name[0] for name in stage.bound()} - set(placed)) == 1, "one group, and no part of another"
            names = [name for name in stage.bound() if name[0] not in placed]
            assert len(names) == size
            placed += names[0][0]
            for name in names:
                stage.api.remove(PODS, f"default/{name}")

    stage.play(story())


def test_group_that_can_never_fit_does_not_keep_others_waiting(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 4)
        for number in range(3):
            put(stage, *(group(name, 3)[number] for name in "ab"))
        put(stage, *(member(f"z{number}", "z", 5) for number in range(5)))
        for _ in range(2):
            await asyncio.sleep(40.0)
            assert len(stage.bound()) == 3
            for name in stage.bound():
                stage.api.remove(PODS, f"default/{name}")

    stage.play(story())


def test_turn_is_over_when_one_more_attempt_has_failed(stage: Stage) -> None:
    """No room that others give up helps the last one of `z`."""

    async def story() -> None:
        put_nodes(stage, 4)
        unresolvable = group("z", 4)
        unresolvable[3].node_selector("kubernetes.io/hostname", "nowhere")
        for number in range(4):
            put(stage, unresolvable[number], group("b", 4)[number])
        await asyncio.sleep(25.0)
        assert stage.bound() == ["b0", "b1", "b2", "b3"]

    stage.play(story())


def test_room_is_no_reason_to_try_a_group_that_is_not_complete(stage: Stage) -> None:
    """What a PreFilter refuses preemption cannot help, either."""

    async def story() -> None:
        put_nodes(stage, 4)
        put(stage, *group("g", 3)[:2])
        await asyncio.sleep(5.0)
        with patch("pinnace.scheduler.scheduler.schedule_one", wraps=schedule_one) as tried:
            for number in range(20):
                put(stage, make_pod(f"other{number}").req(cpu=1).node("n0").scheduler("other"))
                await asyncio.sleep(1.0)
                stage.api.remove(PODS, f"default/other{number}")
                await asyncio.sleep(1.0)
        assert tried.call_count == 0

    stage.play(story())


def test_turn_is_over_when_the_group_is_deleted(stage: Stage) -> None:
    """The event that its pods are gone comes too early: who is woken by it still finds the turn taken."""

    async def story() -> None:
        put_nodes(stage, 4)
        put(stage, *incomplete())
        put(stage, member("z0", "z", 2), member("z2", "z", 2).scheduler("other"))
        await asyncio.sleep(1.0)
        put(stage, member("z1", "z", 2).node_selector("kubernetes.io/hostname", "nowhere"))
        await asyncio.sleep(0.1)
        stage.api.remove(PODS, "default/z1")
        await asyncio.sleep(5.0)
        put(stage, member("g2", "g").node("n3").scheduler("other"))
        await asyncio.sleep(15.0)
        assert waiting(stage) == ["z0"] and any(
            "waits for the end of the turn of PodGroup default/z" in text for text in told(stage, "g0")
        )
        stage.api.remove(PODS, "default/z0")
        await asyncio.sleep(12.0)
        assert stage.bound() == ["g0", "g1", "g2"]

    stage.play(story())


def test_group_of_a_higher_priority_does_not_give_way(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *(item.priority(10) for item in incomplete()))
        await asyncio.sleep(1.0)
        put(stage, *group("low", 2))
        await asyncio.sleep(5.0)
        assert waiting(stage) == ["g0", "g1"]
        assert any("gets rejected" in text for text in told(stage, "low0") + told(stage, "low1"))

    stage.play(story())


def test_terminating_pods_do_not_count(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *(each.node(f"n{number}").terminating() for number, each in enumerate(group("g", 2))))
        put(stage, member("new0", "g", 2))
        await asyncio.sleep(5.0)
        assert "current pods number: 1" in told(stage, "new0")[0]
        put(stage, member("new1", "g", 2))
        await asyncio.sleep(15.0)
        assert stage.api.binds == []
        stage.api.remove(PODS, "default/g0")
        await asyncio.sleep(15.0)
        assert {"new0", "new1"} <= set(stage.bound())

    stage.play(story())


def test_sorted_groups_stay_together() -> None:
    """As old as their first pod."""
    stage = Stage(configured("sorted"))

    async def story() -> None:
        stage.candidate().depose()
        put_nodes(stage, 3)
        for number in range(3):
            put(stage, group("a", 3)[number].created(20.0), group("b", 3)[number].created(10.0 * (number + 1)))
        await asyncio.sleep(1.0)
        stage.candidate().elect()
        await asyncio.sleep(0.5)
        assert stage.bound() == ["b0", "b1", "b2"]

    stage.play(story())


def test_gated_pod_does_not_count_in_its_group(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *group("g", 3)[:2], group("g", 3)[2].gate("later"))
        await asyncio.sleep(5.0)
        assert "current pods number: 2" in told(stage, "g0")[0] and waiting(stage) == []
        put(stage, group("g", 3)[2])
        await asyncio.sleep(15.0)
        assert stage.bound() == ["g0", "g1", "g2"]

    stage.play(story())


def waiting(stage: Stage) -> list[str]:
    return [item.pod.removeprefix("default/") for item in stage.schedulers[0].debugger.show_queue().permit.first]


def incomplete() -> list[PodBuilder]:
    """The third is another scheduler's, which takes its time: the others wait for it."""
    first, second, third = group("g", 3)
    return [first, second, third.scheduler("other")]


def test_when_one_gives_its_node_up_so_do_the_others(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *incomplete())
        await asyncio.sleep(2.0)
        assert waiting(stage) == ["g0", "g1"]
        stage.api.remove(PODS, "default/g0")
        await asyncio.sleep(0.9)
        assert waiting(stage) == [] and told(stage, "g1") == ["0/1 nodes are available: 1 rejection in Unreserve."]

    stage.play(story())


def test_group_wait_is_limited(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *incomplete())
        await asyncio.sleep(39.9)
        assert waiting(stage) == ["g0", "g1"]
        await asyncio.sleep(0.9)
        timeout = "rejected due to timeout after waiting 40s at plugin Coscheduling"
        assert waiting(stage) == [] and told(stage, "g0") == [f"0/1 nodes are available: 1 {timeout}."]
        put(stage, member("g2", "g").node("n2").scheduler("other"))
        await asyncio.sleep(15.0)
        assert stage.bound() == ["g0", "g1", "g2"]

    stage.play(story())


def test_group_that_was_bound_in_part_is_completed(stage: Stage) -> None:
    """By an earlier leader, which died in between."""

    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *(each.node(f"n{number}") for number, each in enumerate(group("g", 3)[:2])))
        await asyncio.sleep(1.0)
        put(stage, group("g", 3)[2])
        await asyncio.sleep(1.0)
        assert stage.node_of("g2") == "n2"

    stage.play(story())


def test_waiting_pods_are_requeued_when_the_leader_is_deposed(stage: Stage) -> None:
    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *incomplete())
        await asyncio.sleep(2.0)
        stage.candidate().depose()
        await asyncio.sleep(1.0)
        assert waiting(stage) == [] and stage.schedulers[0].count_pending() == {"active": 2}
        stage.candidate().elect()
        await asyncio.sleep(1.0)
        assert waiting(stage) == ["g0", "g1"]
        put(stage, member("g3", "g"))
        await asyncio.sleep(1.0)
        assert stage.bound() == ["g0", "g1", "g3"]

    stage.play(story())


def test_new_leader_completes_what_another_has_begun() -> None:
    """Two are bound when the first leader ends, and the answers are lost."""
    stage = Stage(configured("sorted"), replicas=2)
    weather = [Weather.UNHEARD, Weather.FAIR, Weather.FAIR, Weather.REFUSED]
    stage.api.weather = lambda: weather.pop(0) if weather else Weather.LOST

    async def story() -> None:
        put_nodes(stage, 3)
        put(stage, *group("g", 3))
        await asyncio.sleep(1.0)
        assert len(stage.bound()) == 2
        stage.candidate(0).depose()
        stage.api.weather = lambda: Weather.FAIR
        stage.candidate(1).elect()
        await asyncio.sleep(1.0)
        assert stage.bound() == ["g0", "g1", "g2"] and len(stage.api.binds) == 3

    stage.play(story())


def test_example() -> None:
    stage = Stage(parse_configuration((EXAMPLES / "plugins" / "coscheduling.yaml").read_text()))
    pods = [manifest.obj for manifest in load((EXAMPLES / "gang.yaml").read_text(), "gang.yaml")]

    async def story() -> None:
        for number in range(3):
            stage.api.put(NODES, make_node(f"n{number}").build())
        for pod in pods:
            assert stage.bound() == []
            pod.metadata.namespace, pod.metadata.uid = "default", pod.metadata.name
            stage.api.put(PODS, pod)
            await asyncio.sleep(2.0)
        await asyncio.sleep(5.0)
        assert stage.bound() == ["trainer-0", "trainer-1", "trainer-2"]

    stage.play(story())


def test_pods_that_are_alike_share_a_pass_as_ever(stage: Stage) -> None:
    """Groups and pods of the same template, with and without what was found out for an earlier pod."""

    def binds(of: Stage) -> list[tuple[str, str]]:
        async def story() -> None:
            put_nodes(of, 9)
            rng = random.Random(7)
            pods = [make_pod(f"p{number}").req(cpu=1) for number in range(4)]
            pods += [item for name in "abc" for item in group(name, 3, enough=rng.choice([2, 3]))]
            for pod in rng.sample(pods, len(pods)):
                put(of, pod)
                await asyncio.sleep(rng.choice([0.0, 1.0]))
            await asyncio.sleep(60.0)

        of.play(story())
        return of.api.binds

    reused = binds(stage)
    with patch.object(EquivalenceCache, "find_best_rows", lambda *_: None):
        assert binds(stage.again()) == reused and len(reused) == 9


def test_pods_in_no_group_are_not_asked_about_again() -> None:
    (profile,) = build_frameworks(configured("sorted"), Offline()).values()
    cache = cache_of(make_node("n"), make_node("m"))
    equivalence = EquivalenceCache(cache.nodes)
    with patch.object(Coscheduling, "pre_filter", wraps=profile.pre_filters[-1].pre_filter) as asked:
        for number in range(3):
            assert equivalence.find_best_rows({}, info(make_pod(f"p{number}")), cache.nodes, profile)
    assert asked.call_count == 1


def test_why_says_what_is_lacking() -> None:
    pods = [item.build() for item in group("g", 3)[:2]]
    stores = {need: {} for need in required_resources(configured("sorted"))}
    stores |= {NODES: {"n": make_node("n").build()}, PODS: {f"default/{pod.metadata.name}": pod for pod in pods}}
    siblings = "pre-filter pod g0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3"
    explanation = explaining.explain_with_stores(pods[0], stores, SelectedConfiguration(configured("sorted")))
    assert explanation.message == f"0/1 nodes are available: {siblings}."


def refusal(*labels: tuple[str, str]) -> str:
    pod = make_pod("a")
    for key, value in labels:
        pod.label(key, value)
    status = Coscheduling({}, Offline()).pre_filter({}, info(pod), cache_of(make_node("n")).nodes)
    return status.reason if status is not None else ""


@pytest.mark.parametrize("value", ["", "two", "0", "-1", "²"])
def test_group_says_how_many_are_enough(value: str) -> None:
    assert refusal((NAME, "g"), (MIN_AVAILABLE, value)) == (
        f'label {MIN_AVAILABLE}: expected a whole number from 1, got "{value}"'
    )


def test_pods_in_no_group_are_skipped() -> None:
    assert refusal() == refusal((MIN_AVAILABLE, "3")) == refusal((NAME, "")) == ""


def test_queue_has_one_order() -> None:
    with pytest.raises(ConfigurationError, match="exactly one plugin must sort the queue, found PrioritySort, Coscheduling"):
        build_frameworks(
            parse_configuration(f"{HEAD}plugins: {{multiPoint: {{enabled: [{{name: Coscheduling}}]}}}}\n"), Offline()
        )
