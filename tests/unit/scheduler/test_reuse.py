"""Pods that are alike are placed as if each were the first of its kind, for less."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import REGISTRY

from pinnace.api import selectors
from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_index import Selection
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.config import build_frameworks, parse_configuration
from pinnace.scheduler.framework import (
    SKIP,
    BoolArray,
    CycleState,
    Dependency,
    FilterResult,
    FloatArray,
    NodeTable,
    NodeView,
    PerNodeFilter,
    PerNodeScore,
    Status,
)
from pinnace.scheduler.framework.filtering import RowFilters
from pinnace.scheduler.framework.profile import Enabled, Offline
from pinnace.scheduler.framework.results import Diagnosis
from pinnace.scheduler.framework.reuse import EquivalenceCache, rows_with_highest_score
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.node_selector import NodeSelector, break_tie
from pinnace.scheduler.plugins.node_resources import NodeResourcesFit
from pinnace.scheduler.scheduling_cycle import Placed, Unschedulable, schedule_one
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pods import cache_of, framework, info

pytestmark = pytest.mark.slow

SIZES = (2, 8, 30)
STEPS = 200
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


class Crowd:
    """A learner's scorer that looks at the pods of each node, and says so."""

    name = "Crowd"
    score_depends_on = Dependency.ROW

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores: FloatArray = np.minimum(100.0, 7.3 * (110 - nodes.free("pods")))
        return scores


class Rank:
    """A learner's filter and scorer that look at all nodes, and say nothing."""

    name = "Rank"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        free = nodes.free("pods")
        return FilterResult.refusing((free == free.min()) & (free < 4), "node(s) were the fullest")

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        free = nodes.free("pods")
        scores: FloatArray = (free == free[feasible].max()) * 13.7
        return scores


class Favourites(PerNodeFilter):
    name = "Favourites"
    filter_depends_on = Dependency.ROW

    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        return "node(s) were odd" if node.free("pods") % 5 == 3 else None


def configured(text: str) -> Framework:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (made,) = build_frameworks(parse_configuration(head + text), Offline()).values()
    return made


PACKING = """
profiles:
- schedulerName: default-scheduler
  plugins: {score: {enabled: [{name: SelectorSpread, weight: 3}, {name: NodePreferAvoidPods, weight: 2}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}, {name: memory}]}}
  - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}, {name: memory}, {name: example.com/gpu}]}}
"""
PROFILES = {
    "default": framework(),
    "packing": configured(PACKING),
    "rows": framework(Enabled(Crowd(), 1.7), Enabled(Favourites())),
    "all nodes": framework(Enabled(Crowd(), 0.3), Enabled(Rank(), 1.1)),
}


def some_pod(rng: random.Random, name: str) -> PodBuilder:
    """Of one of a few templates; the plain one most often."""
    pod = make_pod(name).req(cpu="500m", memory="300Mi")
    match rng.choice(
        ["plain"] * 6 + ["big", "gpu", "port", "selector", "tolerant", "prefers", "away", "shy", "near", "spread", "owned"]
    ):
        case "big":
            pod.req(cpu=2)
        case "gpu":
            pod.container({"example.com/gpu": 1})
        case "port":
            pod.host_port(80)
        case "selector":
            pod.node_selector(ZONE, "a")
        case "tolerant":
            pod.tolerate("soft", "", "", "Exists").tolerate("hard", "", "", "Exists")
        case "prefers":
            pod.prefer_nodes(30, (ZONE, "In", ["b"])).image("app:1")
        case "away":
            pod.label("app", "away").anti_affinity("app=away", HOSTNAME)
        case "shy":
            pod.label("app", "away")
        case "near":
            pod.label("app", "plain").affinity("app=away", ZONE, weight=50)
        case "spread":
            pod.label("app", "spread").spread("app=spread", ZONE)
        case "owned":
            pod.label("app", "owned").owner("ReplicaSet", "web", "uid-web")
    return pod


def some_node(rng: random.Random, name: str) -> NodeBuilder:
    node = make_node(name).capacity(cpu=rng.choice([8, 8, 10]), memory="8Gi", pods=rng.choice([5, 110]))
    node.label(HOSTNAME, name).label(ZONE, rng.choice("ab")).unschedulable(rng.random() < 0.05)
    if rng.random() < 0.2:
        node.taint(rng.choice(["soft", "hard"]), "", rng.choice(["NoSchedule", "PreferNoSchedule"]))
    if rng.random() < 0.2:
        node.extended("example.com/gpu", 2)
    if rng.random() < 0.1:
        node.image(300 << 20, "app:1")
    return node


@pytest.mark.parametrize("profile", PROFILES)
def test_as_if_one_by_one(profile: str) -> None:
    """The outcome, and the nodes that share the highest score, are those of a cycle that knows of no earlier pod."""
    used, plugins = 0, PROFILES[profile]
    for seed, size in enumerate(SIZES):
        rng = random.Random(seed)
        cache = cache_of(*(some_node(rng, f"n{i}") for i in range(size)))
        equivalence, placed = EquivalenceCache(cache.nodes), {}
        template = 0
        for step in range(STEPS):
            if rng.random() < 0.15:
                _change(rng, cache, placed)
            if rng.random() < 0.15:
                template = rng.randrange(20)
            pod = info(some_pod(random.Random(template), f"p{step}"))
            expected = _equals(pod, cache, plugins)
            best = equivalence.find_best_rows({}, pod, cache.nodes, plugins)
            assert best is None or (isinstance(best, Diagnosis) and not expected) or list(best) == expected
            used += best is not None
            outcome = schedule_one(pod, NodeSelector(cache, plugins, seed, equivalence))
            if isinstance(outcome, Placed):
                placed[pod.uid] = pod
                assert outcome.node == cache.nodes.names[break_tie(expected, pod, seed)]
            else:
                assert isinstance(outcome, Unschedulable) and not expected
                assert schedule_one(pod, NodeSelector(cache, plugins, seed)) == outcome
    assert used > len(SIZES) * STEPS / 4


@pytest.mark.parametrize("profile", PROFILES)
def test_as_if_one_by_one_beside_nominated_pods(profile: str) -> None:
    """Two clusters live the same life, and in one of them pods share passes: all outcomes are the same, in as many words."""
    plugins, outcomes = PROFILES[profile], Counter[type]()
    for seed, size in enumerate(SIZES):
        shared, plain = (Twin(seed, size) for _ in range(2))
        equivalence = EquivalenceCache(shared.cache.nodes)
        for step in range(STEPS):
            shared.change(step)
            plain.change(step)
            pod = shared.next(step)
            outcome = schedule_one(pod, NodeSelector(shared.cache, plugins, seed, equivalence))
            assert schedule_one(plain.next(step), NodeSelector(plain.cache, plugins, seed)) == outcome
            outcomes[type(outcome)] += 1
            if isinstance(outcome, Placed):
                shared.placed[pod.uid] = plain.placed[pod.uid] = pod
    assert min(outcomes[Placed], outcomes[Unschedulable]) > STEPS / 4


class Twin:
    """A cluster that lives as its seed says, and is told where its pods go."""

    def __init__(self, seed: int, size: int) -> None:
        self.rng = random.Random(seed)
        self.cache = cache_of(*(some_node(self.rng, f"n{i}") for i in range(size)))
        self.placed: dict[str, PodInfo] = {}
        self.nominated: list[PodInfo] = []
        self.template = 0

    def change(self, step: int) -> None:
        if self.rng.random() < 0.1:
            _change(self.rng, self.cache, self.placed)
        if self.rng.random() < 0.3 and self.cache.nodes.names:
            pod = some_pod(self.rng, f"nominated{step}").priority(self.rng.choice([-1, 0, 5]))
            self.nominated.append(info(pod.req(cpu=self.rng.choice([1, 7]), memory=self.rng.choice(["1Mi", "7Gi"]))))
            self.cache.nominate_pod(self.nominated[-1], self.rng.choice(self.cache.nodes.names))
        if self.rng.random() < 0.1 and self.nominated:
            self.cache.nominate_pod(self.rng.choice(self.nominated), "")

    def next(self, step: int) -> PodInfo:
        """One of the nominated pods, or another."""
        if self.rng.random() < 0.1 and self.nominated:
            return self.nominated.pop()
        if self.rng.random() < 0.15:
            self.template = self.rng.randrange(20)
        return info(some_pod(random.Random(self.template), f"p{step}"))


def _equals(pod: PodInfo, cache: Cache, plugins: Framework) -> Sequence[int]:
    state: CycleState = {}
    feasible = plugins.run_filters(state, pod, cache.nodes).feasible
    return list(rows_with_highest_score(plugins.score(state, pod, cache.nodes, feasible))) if feasible.any() else []


def _change(rng: random.Random, cache: Cache, placed: dict[str, PodInfo]) -> None:
    """Something happens in the cluster."""
    names = cache.nodes.names
    match rng.choice(["leave"] * 5 + ["move", "relabel", "update", "update", "add", "remove", "settle"]):
        case "leave" if placed:
            for uid in rng.sample(sorted(placed), min(len(placed), rng.choice([1, 1, 3, 20]))):
                cache.remove_pod(uid)
                del placed[uid]
        case "move" if placed and names:
            cache.add_pod(rng.choice(list(placed.values())), rng.choice(names))
        case "relabel" if placed:
            changed = Pod()
            changed.CopyFrom(rng.choice(list(placed.values())).raw)
            changed.metadata.labels["app"] = rng.choice(["away", "spread", "owned"])
            cache.update_labels(changed)
        case "update" if names:
            cache.set_node(some_node(rng, rng.choice(names)).build())
        case "add":
            cache.set_node(some_node(rng, f"n{rng.randrange(40)}").build())
        case "remove" if names:
            cache.remove_node(rng.choice(names))
        case "settle":
            for uid, pod in placed.items():
                cache.confirm_assumption(uid, cache.node_of(uid) or pod.name)


class Asked(PerNodeScore):
    """Counts the nodes that it is asked about."""

    name = "Asked"

    def __init__(self, **said: Any) -> None:
        self.nodes = 0
        for attribute, sees in said.items():
            setattr(self, attribute, sees)

    def score_node(self, pod: Pod, node: NodeView) -> float:
        self.nodes += 1
        return 50.0


def asked_about(plugin: Asked, pods: int = 10) -> int:
    """Nodes that the plugin is asked about, for pods that are alike, on 100 nodes."""
    cache, plugins = cache_of(*(make_node(f"n{i}") for i in range(100))), framework(Enabled(plugin))
    equivalence = EquivalenceCache(cache.nodes)
    for i in range(pods):
        assert isinstance(
            schedule_one(info(make_pod(f"p{i}").req(cpu="100m")), NodeSelector(cache, plugins, 0, equivalence)), Placed
        )
    return plugin.nodes


def test_plugin_that_says_nothing_is_asked_about_all_nodes_for_every_pod() -> None:
    assert asked_about(Asked()) == 1000


def test_plugin_that_sees_rows_is_asked_about_those_that_took_a_pod() -> None:
    assert asked_about(Asked(score_depends_on=Dependency.ROW)) == 100 + 9


def test_plugin_that_sees_nodes_is_asked_once() -> None:
    assert asked_about(Asked(score_depends_on=Dependency.NODES)) == 100


def test_plugin_that_sees_room_is_asked_ahead() -> None:
    """After 16 single nodes, once for all: what each would be like with one more pod. Nearly all pods go to another node."""
    assert asked_about(Asked(score_depends_on=Dependency.FREE_RESOURCES), pods=60) <= 100 + 16 + 100 + 4


class Choosy:
    """Refuses everything in PreFilter from the third pod on; or skips."""

    name = "Choosy"

    def __init__(self) -> None:
        self.pods = 0

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        self.pods += 1
        return Status("enough") if self.pods > 2 else SKIP


def test_pre_filter_that_says_nothing_is_asked_for_every_pod() -> None:
    cache, plugin = cache_of(make_node("n")), Choosy()
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(plugin))
    outcomes = [
        schedule_one(info(make_pod(f"p{i}").req(cpu="1m")), NodeSelector(cache, plugins, 0, equivalence)) for i in range(3)
    ]
    assert [type(outcome) for outcome in outcomes] == [Placed, Placed, Unschedulable]


class Full(PerNodeFilter):
    """Refuses the nodes that have pods, counts those that it is asked about, and remembers what PostFilter is told."""

    name = "Full"

    def __init__(self, **said: Any) -> None:
        self.nodes = 0
        self.told: list[CycleState] = []
        for attribute, sees in said.items():
            setattr(self, attribute, sees)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> Status | None:
        state["full"] = "yes"
        return None

    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        self.nodes += 1
        return "node(s) were full" if node.free("pods") < 110 else None

    def post_filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable, diagnosis: Diagnosis) -> Status | None:
        self.told.append(dict(state))
        return None


@pytest.mark.parametrize("said, asked", [({"filter_depends_on": Dependency.ROW}, 2 * 3), ({}, 2 * 10)])
def test_why_no_node_takes_a_pod_is_found_out_once(said: dict[str, Any], asked: int) -> None:
    """For each row that changes, and of a filter that says what it sees; the state is there for PostFilter all the same."""
    plugin = Full(**said)
    cache = cache_of(*(make_node(f"n{i}") for i in range(2)), placed=[make_pod(f"there{i}").node(f"n{i}") for i in range(2)])
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(plugin))
    outcomes = {schedule_one(info(make_pod(f"p{i}")), NodeSelector(cache, plugins, 0, equivalence)) for i in range(5)}
    assert outcomes == {Unschedulable(frozenset(["Full"]), "0/2 nodes are available: 2 node(s) were full.")}
    assert [state["full"] for state in plugin.told] == ["yes"] * 5
    assert plugin.nodes <= asked
    cache.remove_pod("uid-default-there1")
    assert schedule_one(info(make_pod("late")), NodeSelector(cache, plugins, 0, equivalence)) == Placed("n1")


def test_nomination_has_its_node_asked_about_again_and_no_other() -> None:
    plugin = Full(filter_depends_on=Dependency.ROW)
    there = [make_pod(f"there{i}").node(f"n{i}") for i in range(100)]
    cache = cache_of(*(make_node(f"n{i}") for i in range(100)), placed=there)
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(plugin))
    for i in range(50):
        pod = info(make_pod(f"p{i}"))
        assert isinstance(schedule_one(pod, NodeSelector(cache, plugins, 0, equivalence)), Unschedulable)
        cache.nominate_pod(pod, f"n{i}")
    assert plugin.nodes == 2 * 100 + 49, "for the pass, for the diagnosis, and one for each that follows"


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside one that is ahead"])
def test_nominated_pod_asks_about_its_node_alone(others: bool) -> None:
    """If it fits there; and, where there is somebody whom it must leave the room, as among all nodes."""
    plugin = Full(filter_depends_on=Dependency.ROW)
    there = [make_pod(f"there{i}").node(f"n{i}") for i in range(100)]
    cache = cache_of(*(make_node(f"n{i}") for i in range(100)), placed=there)
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(plugin))
    pod, ahead = info(make_pod("p")), info(make_pod("ahead").priority(1))
    schedule_one(pod, NodeSelector(cache, plugins, 0, equivalence))
    cache.nominate_pod(pod, "n7")
    if others:
        cache.nominate_pod(ahead, "n7")
    cache.remove_pod("uid-default-there7")
    plugin.nodes = 0
    outcome = schedule_one(pod, NodeSelector(cache, plugins, 0, equivalence))
    assert isinstance(outcome, Unschedulable) if others else (outcome, plugin.nodes) == (Placed("n7"), 1)


class Roomy(NodeResourcesFit):
    """Says what it says in another way, so that what its base says of single nodes does not count."""

    name = "Roomy"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(nodes.free("cpu") < 1000, "cramped")


class Exact(Roomy):
    name = "Exact"

    def lacking(self, pod: PodInfo, free: Callable[[str], int]) -> Sequence[str]:
        return ["cramped"] if free("cpu") < 1000 else []


@pytest.mark.parametrize("plugin", [NodeResourcesFit(), Roomy(), Exact()], ids=lambda plugin: plugin.name)
def test_only_plugins_that_declare_both_are_run_on_single_nodes(plugin: NodeResourcesFit) -> None:
    assert (RowFilters([plugin]).resource_filters is not None) == (plugin.name != "Roomy")


def test_refusal_due_to_a_nomination_is_reported() -> None:
    small = (make_node(f"n{i}").capacity(cpu=1, memory="4Gi", pods=10) for i in range(3))
    cache, plugins = cache_of(*small), framework()
    equivalence = EquivalenceCache(cache.nodes)

    def message(name: str) -> str:
        outcome = schedule_one(info(make_pod(name).req(cpu=2, memory="3Gi")), NodeSelector(cache, plugins, 0, equivalence))
        assert isinstance(outcome, Unschedulable)
        return outcome.message

    before = "0/3 nodes are available: 3 Insufficient cpu."
    assert message("a") == message("b") == before
    large = info(make_pod("large").req(memory="2Gi").priority(1))
    cache.nominate_pod(large, "n1")
    assert message("c") == "0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu."
    cache.nominate_pod(large, "")
    assert message("d") == before


class Moody:
    """Skips as long as an object is as it is."""

    name = "Moody"
    skip_depends_on = Dependency.NODES

    def __init__(self) -> None:
        self.liked = ""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> Status | None:
        return None if self.liked else SKIP

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.array([100.0 if name == self.liked else 0.0 for name in nodes.names])


def test_skip_holds_until_an_object_changes() -> None:
    cache, plugin = cache_of(*(make_node(f"n{i}") for i in range(9))), Moody()
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(plugin, 1000))
    schedule_one(info(make_pod("a")), NodeSelector(cache, plugins, 0, equivalence))
    plugin.liked = "n5"
    cache.nodes.begin_generation()
    assert schedule_one(info(make_pod("b")), NodeSelector(cache, plugins, 0, equivalence)) == Placed("n5")


def test_terms_of_placed_pods_begin_an_epoch() -> None:
    """A pod without terms of its own is refused where the first pod that will not have it is."""
    nodes = [make_node(f"n{i}").capacity(cpu=4, memory="4Gi", pods=10).label(HOSTNAME, f"n{i}") for i in range(2)]
    cache = cache_of(*nodes, placed=[make_pod("large").req(cpu=3).node("n1")])
    equivalence, plugins = EquivalenceCache(cache.nodes), framework()
    web = make_pod("a").label("app", "web")
    schedule_one(info(web), NodeSelector(cache, plugins, 0, equivalence))
    cache.add_pod(info(make_pod("hermit").anti_affinity("app=web", HOSTNAME)), "n0")
    for name in "bcd":
        assert schedule_one(info(make_pod(name).label("app", "web")), NodeSelector(cache, plugins, 0, equivalence)) == Placed(
            "n1"
        )


def test_prefetched_result_serves_pods_with_equal_requests() -> None:
    cache = cache_of(*(make_node(f"n{i}").capacity(cpu=8, memory="8Gi", pods=110) for i in range(40)))
    equivalence, plugins = EquivalenceCache(cache.nodes), framework()
    for i in range(20):
        assert isinstance(
            schedule_one(info(make_pod(f"p{i}").req(cpu=1)), NodeSelector(cache, plugins, 0, equivalence)), Placed
        )
    empty = cache.nodes.free("cpu").argmax()
    cache.add_pod(info(make_pod("large").req(cpu="8")), cache.nodes.names[empty])
    for i in range(20, 60):
        pod = info(make_pod(f"p{i}").req(cpu=1))
        assert equivalence.find_best_rows({}, pod, cache.nodes, plugins) == _equals(pod, cache, plugins)
        assert isinstance(schedule_one(pod, NodeSelector(cache, plugins, 0, equivalence)), Placed)


class Company:
    """Likes nodes with a pod of a certain label."""

    name = "Company"
    score_depends_on = Dependency.ROW

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        scores: FloatArray = (nodes.pods.count_pods(Selection(None, selectors.parse_labels("app=web"))) > 0) * 100.0
        return scores


def test_rows_are_asked_about_when_a_pod_there_is_relabelled() -> None:
    there = make_pod("there").req(cpu=3)
    cache = cache_of(*(make_node(f"n{i}") for i in range(3)), placed=[there.node("n2")])
    equivalence, plugins = EquivalenceCache(cache.nodes), framework(Enabled(Company(), 10))
    assert isinstance(schedule_one(info(make_pod("a").req(cpu="1m")), NodeSelector(cache, plugins, 0, equivalence)), Placed)
    cache.update_labels(there.label("app", "web").build())
    assert schedule_one(info(make_pod("b").req(cpu="1m")), NodeSelector(cache, plugins, 0, equivalence)) == Placed("n2")


def test_more_templates_than_are_remembered() -> None:
    cache = cache_of(*(make_node(f"n{i}") for i in range(3)))
    equivalence = EquivalenceCache(cache.nodes)
    for i in range(100):
        pod = info(make_pod(f"p{i}").req(cpu=f"{i % 40 + 1}m"))
        assert equivalence.find_best_rows({}, pod, cache.nodes, PROFILES["default"]) == _equals(pod, cache, PROFILES["default"])
        schedule_one(pod, NodeSelector(cache, PROFILES["default"], 0, equivalence))
    assert len(equivalence) == 32


def test_internal_error_of_the_cache_is_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise IndexError("row 7")

    cache = cache_of(make_node("n"))
    equivalence, plugins = EquivalenceCache(cache.nodes), framework()
    monkeypatch.setattr("pinnace.scheduler.framework.reuse._EquivalenceClass.find_best_rows", fail)
    before = REGISTRY.get_sample_value("scheduler_equivalence_cache_failures_total") or 0.0
    for name in ("a", "b"):
        assert schedule_one(info(make_pod(name)), NodeSelector(cache, plugins, 0, equivalence)) == Placed("n")
    assert REGISTRY.get_sample_value("scheduler_equivalence_cache_failures_total") == before + 2
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "the equivalence cache failed, the pod is evaluated without it: row 7"
    ]


def test_pod_without_nodes_is_no_error_of_the_cache() -> None:
    cache = cache_of()
    equivalence, plugins = EquivalenceCache(cache.nodes), framework()
    before = REGISTRY.get_sample_value("scheduler_equivalence_cache_failures_total") or 0.0
    for name in ("a", "b"):
        outcome = schedule_one(info(make_pod(name)), NodeSelector(cache, plugins, 0, equivalence))
        assert isinstance(outcome, Unschedulable)
    assert (REGISTRY.get_sample_value("scheduler_equivalence_cache_failures_total") or 0.0) == before
