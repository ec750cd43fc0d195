"""InterPodAffinity: what Kubernetes documents, and agreement with the plain form."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pinnace.api.core_v1_pb2 import Namespace, Node, Pod
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import SKIP, CycleState, NodeTable
from pinnace.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from tests.builders import PodBuilder, label_selector, make_node, make_pod
from tests.unit.scheduler.pairs import PAIRS, TIMEOUT
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.pods_reference import Affinity

NEAR = "node(s) didn't match pod affinity rules"
AWAY = "node(s) didn't match pod anti-affinity rules"
REFUSED = "node(s) didn't satisfy existing pods anti-affinity rules"
TEAMS = {"default": {"team": "a"}, "blue": {"team": "a"}, "red": {"team": "b"}}
NODES = [
    make_node("a1").label("zone", "a"),
    make_node("a2").label("zone", "a"),
    make_node("b1").label("zone", "b"),
    make_node("nowhere"),
]
HOST = "kubernetes.io/hostname"


class Handle:
    """Knows the namespaces."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]] = TEAMS) -> None:
        self._namespaces = {name: Namespace(metadata=ObjectMeta(name=name, labels=each)) for name, each in labels.items()}

    def objects(self, resource: object) -> Mapping[str, Any]:
        assert resource is NAMESPACES
        return self._namespaces


def pod(name: str = "new", namespace: str = "default") -> PodBuilder:
    return make_pod(name, namespace)


def web(node: str, namespace: str = "default", **labels: str) -> PodBuilder:
    built = pod(f"web-{node}", namespace).node(node).label("app", "web")
    for key, value in labels.items():
        built.label(key, value)
    return built


def refusals(wanted: PodBuilder | Pod, table: NodeTable, **args: object) -> list[str]:
    asking = PodInfo(wanted if isinstance(wanted, Pod) else wanted.build())
    return told(InterPodAffinity(args, Handle()), asking, table)


def told(plugin: InterPodAffinity, asking: PodInfo, table: NodeTable) -> list[str]:
    state = CycleState()
    if plugin.pre_filter(state, asking, table) is SKIP:
        return [""] * len(table)
    verdicts = plugin.filter(state, asking, table).explain()
    return [", ".join(verdicts.reasons(int(code))) if code else "" for code in verdicts.codes]


def scores(wanted: PodBuilder | Pod, table: NodeTable, **args: object) -> list[float]:
    plugin, state = InterPodAffinity(args, Handle()), CycleState()
    asking, everywhere = PodInfo(wanted if isinstance(wanted, Pod) else wanted.build()), np.ones(len(table), np.bool_)
    if plugin.pre_score(state, asking, table, everywhere) is SKIP:
        return [0.0] * len(table)
    result: list[float] = plugin.normalize(state, plugin.score(state, asking, table, everywhere), everywhere).tolist()
    return result


@pytest.mark.parametrize(
    ("wanted", "placed", "expected"),
    [
        pytest.param(pod(), [web("a1")], ["", "", "", ""], id="nobody wants anything"),
        pytest.param(pod().affinity("app=web", "zone"), [web("a1")], ["", "", NEAR, NEAR], id="near, by zone"),
        pytest.param(pod().affinity("app=web", HOST), [web("a1")], ["", NEAR, NEAR, NEAR], id="near, by node"),
        pytest.param(pod().affinity("app=web", "zone"), [web("nowhere")], [NEAR] * 4, id="near a pod outside the topology"),
        pytest.param(pod().affinity("app=web", "zone"), [web("a1", "blue")], [NEAR] * 4, id="another namespace's pod"),
        pytest.param(
            pod().affinity("app=web", "zone", namespaces=["blue"]), [web("a1", "blue")], ["", "", NEAR, NEAR], id="a namespace"
        ),
        pytest.param(
            pod().affinity("app=web", "zone", namespaces=["blue"]), [web("a1")], [NEAR] * 4, id="not its own unless named"
        ),
        pytest.param(
            pod().affinity("app=web", "zone", namespaceSelector=label_selector("team=b")),
            [web("a1"), web("b1", "red")],
            [NEAR, NEAR, "", NEAR],
            id="namespaces by label",
        ),
        pytest.param(
            pod().affinity("app=web", "zone", namespaceSelector=label_selector("")),
            [web("a1", "unheard-of")],
            ["", "", NEAR, NEAR],
            id="all namespaces",
        ),
        pytest.param(
            pod().affinity("app=web", "zone").affinity("tier=x", HOST),
            [web("a1", tier="x"), web("a2")],
            ["", NEAR, NEAR, NEAR],
            id="one pod must meet all terms",
        ),
        pytest.param(
            pod().affinity("app=web", "zone").affinity("tier=x", HOST),
            [web("a1"), pod("x").label("tier", "x").node("a2")],
            [NEAR] * 4,
            id="no pod meets all terms",
        ),
        pytest.param(
            pod().label("app", "web").affinity("app=web", "zone"), [], ["", "", "", NEAR], id="the first of its kind"
        ),
        pytest.param(
            pod().label("app", "web").affinity("app=web", "zone"), [web("a1")], ["", "", NEAR, NEAR], id="the second"
        ),
        pytest.param(pod().label("app", "db").affinity("app=web", "zone"), [], [NEAR] * 4, id="nobody is there"),
        pytest.param(pod().anti_affinity("app=web", "zone"), [web("a1")], [AWAY, AWAY, "", ""], id="away, by zone"),
        pytest.param(pod().anti_affinity("app=web", HOST), [web("a1")], [AWAY, "", "", ""], id="away, by node"),
        pytest.param(
            pod().anti_affinity("app=web", "zone").anti_affinity("tier=x", HOST),
            [web("a1"), pod("x").label("tier", "x").node("nowhere")],
            [AWAY, AWAY, "", AWAY],
            id="away from several",
        ),
        pytest.param(
            pod().label("app", "web"), [pod("loner").node("a1").anti_affinity("app=web", "zone")], [REFUSED, REFUSED, "", ""],
            id="refused by one that is there",
        ),
        pytest.param(
            pod(namespace="red").label("app", "web"), [pod("loner").node("a1").anti_affinity("app=web", "zone")], [""] * 4,
            id="not refused from another namespace",
        ),
        pytest.param(
            pod(namespace="red").label("app", "web"),
            [pod("loner").node("a1").anti_affinity("app=web", "zone", namespaceSelector=label_selector("team=b"))],
            [REFUSED, REFUSED, "", ""],
            id="refused by the labels of its namespace",
        ),
        pytest.param(
            pod().label("app", "web").affinity("app=web", "zone").anti_affinity("app=web", HOST),
            [web("a1").anti_affinity("app=web", HOST)],
            [AWAY, "", NEAR, NEAR],
            id="near and away, and the first reason is told",
        ),
        pytest.param(
            pod().label("v", "2").anti_affinity("app=web,v in (1)", HOST, matchLabelKeys=["v"]),
            [web("a1", v="1"), web("a2", v="2")],
            [AWAY, "", "", ""],
            id="the label at the creation counts for matchLabelKeys",
        ),
        pytest.param(
            pod().label("v", "2").anti_affinity("app=web,v notin (1)", HOST, mismatchLabelKeys=["v", "no-such"]),
            [web("a1", v="1"), web("a2", v="2")],
            ["", AWAY, "", ""],
            id="the label at the creation counts for mismatchLabelKeys",
        ),
    ],
)  # fmt: skip
def test_filter(wanted: PodBuilder, placed: list[PodBuilder], expected: list[str]) -> None:
    assert refusals(wanted, cache_of(*NODES, placed=placed).nodes) == expected


def test_affinity_term_without_selector_matches_nothing() -> None:
    wanted = pod().affinity("", "zone")
    built = wanted.build()
    built.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].ClearField("labelSelector")
    table = cache_of(*NODES, placed=[web("a1")]).nodes
    assert refusals(built, table) == [NEAR] * 4
    assert refusals(wanted, table) == ["", "", NEAR, NEAR]


@pytest.mark.parametrize(
    ("wanted", "placed", "expected"),
    [
        pytest.param(pod().affinity("app=web", "zone", weight=5), [web("a1")], [100, 100, 0, 0], id="likes to be near"),
        pytest.param(pod().anti_affinity("app=web", "zone", weight=5), [web("a1")], [0, 0, 100, 100], id="or away"),
        pytest.param(
            pod().affinity("app=web", "zone", weight=2).affinity("app=web", HOST, weight=2), [web("a1")], [100, 50, 0, 0],
            id="terms add up",
        ),
        pytest.param(
            pod().affinity("app=web", "zone", weight=1), [web("a1"), web("a2"), web("b1")], [100, 100, 50, 0],
            id="every pod counts",
        ),
        pytest.param(
            pod().label("app", "web"), [pod("x").node("b1").affinity("app=web", "zone", weight=1)], [0, 0, 100, 0], id="liked"
        ),
        pytest.param(
            pod().label("app", "web"), [pod("x").node("b1").anti_affinity("app=web", "zone", weight=1)], [100, 100, 0, 100],
            id="disliked",
        ),
        pytest.param(pod().label("app", "web"), [pod("x").node("a1").affinity("app=web", HOST)], [100, 0, 0, 0], id="needed"),
        pytest.param(
            pod().label("app", "web"),
            [pod("x").node("a1").affinity("app=web", HOST), pod("y").node("a2").affinity("app=web", HOST, weight=4)],
            [25, 100, 0, 0],
            id="needing counts one by default",
        ),
        pytest.param(
            pod().affinity("app=web", "zone", weight=2).affinity("app=web", "zone", weight=2),
            [web("a1"), pod("y").node("b1").affinity("!x", "zone", weight=1)], [100, 100, 25, 0],
            id="a term that is stated twice",
        ),
        pytest.param(pod().affinity("app=web", "zone", weight=5), [], [0, 0, 0, 0], id="all alike"),
    ],
)  # fmt: skip
def test_score(wanted: PodBuilder, placed: list[PodBuilder], expected: list[float]) -> None:
    assert scores(wanted, cache_of(*NODES, placed=placed).nodes) == pytest.approx(expected)


def test_only_feasible_nodes_count_for_the_range() -> None:
    plugin, feasible = InterPodAffinity(), np.array([False, True, True, True])
    assert plugin.normalize({}, np.array([90.0, 20.0, 10.0, 10.0]), feasible).tolist()[1:] == [100, 0, 0]


def test_arguments() -> None:
    there = [pod("x").node("a1").affinity("app=web", HOST), pod("y").node("a2").affinity("app=web", HOST, weight=4)]
    table = cache_of(*NODES, placed=there).nodes
    wanted = pod().label("app", "web")
    assert scores(wanted, table, hardPodAffinityWeight=8) == [100, 50, 0, 0]
    assert scores(wanted, table, hardPodAffinityWeight=0) == [0, 100, 0, 0]
    assert scores(wanted, table, ignorePreferredTermsOfExistingPods=True) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"hardPodAffinityWeight": 101}, "hardPodAffinityWeight: expected a whole number from 0 to 100, got 101"),
        ({"hardPodAffinityWeight": "1"}, "hardPodAffinityWeight: expected a whole number from 0 to 100, got '1'"),
        ({"ignorePreferredTermsOfExistingPods": 1}, "ignorePreferredTermsOfExistingPods: expected true or false, got 1"),
        ({"weight": 1}, "weight: unknown field; supported: hardPodAffinityWeight, ignorePreferredTermsOfExistingPods"),
    ],
)
def test_arguments_that_are_wrong(args: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        InterPodAffinity(args)


def test_without_namespaces_to_look_at_selectors_find_none() -> None:
    plugin, state = InterPodAffinity(), CycleState()
    asking = info(pod().affinity("app=web", "zone", namespaceSelector=label_selector("team=a")))
    table = cache_of(*NODES, placed=[web("a1")]).nodes
    assert plugin.pre_filter(state, asking, table) is None
    assert not plugin.filter(state, asking, table).passed.any()


@pytest.mark.parametrize(
    ("wanted", "change", "other", "expected"),
    [
        (pod().affinity("app=web", "zone"), Change.POD_PLACED, web("a1"), True),
        (pod().affinity("app=web", "zone"), Change.POD_PLACED, pod("x").node("a1"), False),
        (pod().anti_affinity("app=web", "zone"), Change.POD_FREED, web("a1"), True),
        (pod().anti_affinity("app=web", "zone"), Change.POD_FREED, pod("x").node("a1"), False),
        (pod(), Change.POD_FREED, pod("x").node("a1").anti_affinity("app=web", "zone"), True),
        (pod(), Change.POD_FREED, pod("x").node("a1"), False),
        (pod(), Change.POD_LABELS, pod("x").node("a1"), True),
        (pod(), Change.NODE_TAINTS, pod("x").node("a1"), False),
        (pod().affinity("app=web", "zone"), Change.NODE_LABELS, pod("x").node("a1"), True),
        (pod().affinity("app=web", "zone"), Change.NODE_ADDED, pod("x").node("nowhere"), False),
        (pod().anti_affinity("app=web", "zone"), Change.NODE_ADDED, pod("x").node("nowhere"), True),
    ],
)
def test_hints(wanted: PodBuilder, change: Change, other: PodBuilder, expected: bool) -> None:
    plugin, cache, there = InterPodAffinity(), cache_of(*NODES), other.build()
    group = cache.nodes.pods.add_pod(there, there.spec.nodeName)
    about_pod = change & (Change.POD_FREED | Change.POD_PLACED)
    event = ClusterEvent(change, there.spec.nodeName, group if about_pod else None)
    assert (bool(change & plugin.helped_by) and plugin.helps(event, info(wanted), cache.nodes)) is expected


@pytest.mark.parametrize(
    ("wanted", "before", "after", "expected"),
    [
        (pod().affinity("app=web", "zone"), pod("x"), pod("x").label("app", "web"), True),
        (pod().affinity("app=web", "zone"), pod("x"), pod("x").label("app", "db"), False),
        (pod().affinity("app=web", "zone"), pod("x"), pod("x").terminating(), False),
        (pod().anti_affinity("app=web", "zone"), pod("x").label("app", "web"), pod("x"), True),
        (pod().anti_affinity("app=web", "zone"), pod("x").label("app", "db"), pod("x"), False),
        (pod().anti_affinity("app=web", "zone", matchLabelKeys=["v"]), pod("x"), pod("x").label("v", "1"), False),
    ],
)
def test_relabelled_pod_wakes_pods_with_matching_affinity(
    wanted: PodBuilder, before: PodBuilder, after: PodBuilder, expected: bool
) -> None:
    cache = cache_of(*NODES, placed=[before.node("a1").uid("changed")])
    event, plugin = cache.update_labels(after.uid("changed").build()), InterPodAffinity()
    assert event.change & plugin.helped_by and plugin.helps(event, info(wanted), cache.nodes) is expected


def test_node_that_leaves_its_zone_takes_those_away_that_were_refused_there() -> None:
    """It is what the pod wants to be near, in a topology that the node leaves too."""
    wanted = pod().affinity("app=db", "rack").anti_affinity("app=web", "zone")
    nodes = [make_node("a1").label("zone", "a").label("rack", "1"), make_node("a2").label("zone", "a").label("rack", "2")]
    cache = cache_of(*nodes, placed=[web("a1"), pod("db").node("a2").label("app", "db")])
    assert refusals(wanted, cache.nodes) == [NEAR, AWAY]
    event = cache.set_node(make_node("a1").build())
    assert refusals(wanted, cache.nodes)[1] == ""
    plugin = InterPodAffinity({}, Handle())
    assert event.change & plugin.helped_by and plugin.helps(event, info(wanted), cache.nodes)


def test_node_that_goes_takes_those_away_that_were_refused_there() -> None:
    wanted = pod().anti_affinity("app=web", "zone")
    cache = cache_of(*NODES, placed=[web("a1")])
    row = cache.nodes.names.index("a2")
    assert refusals(wanted, cache.nodes)[row] == AWAY
    event = cache.remove_node("a1")
    assert event is not None and refusals(wanted, cache.nodes)[cache.nodes.names.index("a2")] == ""
    plugin = InterPodAffinity({}, Handle())
    assert event.change & plugin.helped_by and plugin.helps(event, info(wanted), cache.nodes)


def test_node_that_comes_back_helps_others_of_its_zone() -> None:
    """With its pods; it need not be in the other topology of those that want to be near them."""
    wanted = pod().affinity("app=web", "zone").affinity("app=web", "rack")
    cache = cache_of(make_node("a1").label("zone", "a").label("rack", "1"), make_node("r1").label("rack", "1"))
    for item in (web("r1"), web("a2")):
        cache.add_pod(info(item), item.build().spec.nodeName)
    assert refusals(wanted, cache.nodes)[0] == NEAR
    event = cache.set_node(make_node("a2").label("zone", "a").build())
    assert refusals(wanted, cache.nodes)[0] == ""
    plugin = InterPodAffinity({}, Handle())
    assert event.change & plugin.helped_by and plugin.helps(event, info(wanted), cache.nodes)


RED = {"namespaceSelector": label_selector("team=b")}


@pytest.mark.parametrize(
    ("wanted", "there", "before"),
    [
        (pod().affinity("app=web", "zone", **RED), web("a1", "red"), NEAR),
        (pod().anti_affinity("app=web", "zone", **RED), web("a1", "blue"), AWAY),
        (pod(namespace="blue").label("app", "db"), web("a1").anti_affinity("app=db", "zone", **RED), REFUSED),
    ],
    ids=["near those that are found now", "away from those that are not any more", "not refused any more"],
)
def test_namespaces_with_other_labels_help(wanted: PodBuilder, there: PodBuilder, before: str) -> None:
    cache = cache_of(*NODES, placed=[there])
    asking, swapped = info(wanted), {"blue": {"team": "b"}, "red": {"team": "a"}}
    assert told(InterPodAffinity({}, Handle(swapped)), asking, cache.nodes)[0] == before
    plugin = InterPodAffinity({}, Handle())
    assert told(plugin, asking, cache.nodes)[0] == ""
    event = ClusterEvent(Change.OBJECT, resource=NAMESPACES.plural, obj=Namespace(metadata=ObjectMeta(name="blue")))
    assert event.change & plugin.helped_by and plugin.helps(event, asking, cache.nodes)


@pytest.mark.parametrize(
    ("wanted", "resource"),
    [(pod().affinity("app=web", "zone"), NAMESPACES.plural), (pod().affinity("app=web", "zone", **RED), "services")],
)
def test_objects_that_no_term_is_about_do_not_help(wanted: PodBuilder, resource: str) -> None:
    table = cache_of(*NODES, placed=[web("a1")]).nodes
    assert not InterPodAffinity().helps(ClusterEvent(Change.OBJECT, resource=resource), info(wanted), table)


SELECTORS = ["", "app=a", "app in (a,b)", "app notin (a)", "!app", "tier", "app=a,tier=x", "app!=b,tier"]


def any_pod(rng: random.Random, name: str) -> PodBuilder:
    built = pod(name, rng.choice(list(TEAMS)))
    for key, values in (("app", "abc"), ("tier", "xy")):
        if rng.random() < 0.7:
            built.label(key, rng.choice(values))
    for state in (built.affinity, built.anti_affinity):
        for _ in range(rng.choice([0, 0, 1, 2])):
            more: dict[str, Any] = {}
            if rng.random() < 0.2:
                more["namespaces"] = rng.sample(list(TEAMS), 2)
            if rng.random() < 0.2:
                more["namespaceSelector"] = label_selector(rng.choice(["", "team=a", "team=b"]))
            weight = rng.choice([0, 1, 2, 3])
            state(rng.choice(SELECTORS[1:] if not weight else SELECTORS), rng.choice(["zone", "rack"]), weight=weight, **more)
    return built


def any_nodes(rng: random.Random, number: int) -> list[Node]:
    nodes = [make_node(f"n{i}") for i in range(number)]
    for node in nodes:
        for key, values in (("zone", 5), ("rack", 60)):
            if rng.random() < 0.9:
                node.label(key, f"v{rng.randrange(values)}")
    return [node.build() for node in nodes]


@pytest.mark.timeout(TIMEOUT)
def test_it_agrees_with_the_plain_form() -> None:
    rng, pairs, refused = random.Random(4), 0, 0
    while pairs < PAIRS:
        nodes, cache, placed = any_nodes(rng, 250), Cache(), []
        for node in nodes:
            cache.set_node(node)
        for number in range(rng.choice([3, 10, 20])):
            there, node = any_pod(rng, f"p{number}").build(), rng.choice(nodes)
            cache.add_pod(PodInfo(there), node.metadata.name)
            placed.append((there, node))
        for _ in range(25):
            wanted = any_pod(rng, "new").build()
            plain = Affinity(wanted, placed, TEAMS)
            expected = [plain.reason(node) for node in nodes]
            assert refusals(wanted, cache.nodes) == expected
            assert scores(wanted, cache.nodes) == pytest.approx(plain.scores(nodes))
            pairs += len(nodes)
            refused += sum(map(bool, expected))
    assert 0.1 < refused / pairs < 0.9
