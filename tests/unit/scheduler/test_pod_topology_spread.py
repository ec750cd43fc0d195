"""PodTopologySpread: what Kubernetes documents, and agreement with the plain form."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pinnace.api.core_v1_pb2 import Node, Pod, Service, ServiceSpec
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import NAMESPACES, SERVICES, Resource
from pinnace.client.informer import Index
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import SKIP, CycleState, NodeTable
from pinnace.scheduler.plugins.helper import SiblingPods
from pinnace.scheduler.plugins.topology_spread import PodTopologySpread
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler.pairs import PAIRS, TIMEOUT
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.pods_reference import Spread

SKEW = "node(s) didn't match pod topology spread constraints"
LABEL = f"{SKEW} (missing required label)"
HOST, ZONE, SOFT = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "ScheduleAnyway"
A1, A2 = make_node("a1").label("zone", "a"), make_node("a2").label("zone", "a")
B1, C1, NOWHERE = make_node("b1").label("zone", "b"), make_node("c1").label("zone", "c"), make_node("nowhere")


class Handle:
    """Knows one service."""

    def objects(self, resource: object) -> Mapping[str, Any]:
        assert resource is SERVICES
        service = Service(metadata=ObjectMeta(name="web", namespace="default"), spec=ServiceSpec(selector={"app": "web"}))
        return {"default/web": service, "default/none": Service(metadata=ObjectMeta(name="none", namespace="default"))}

    def index(self, resource: Any, by: Callable[[Any], str]) -> Index[Any]:
        return Index(by, self.objects(resource).values())


def pod(name: str = "new", namespace: str = "default") -> PodBuilder:
    return make_pod(name, namespace).label("app", "web")


def on(*nodes: str) -> list[PodBuilder]:
    return [pod(f"p{number}").node(node) for number, node in enumerate(nodes)]


def refusals(plugin: PodTopologySpread, wanted: Pod, table: NodeTable) -> list[str]:
    state, asking = CycleState(), PodInfo(wanted)
    if plugin.pre_filter(state, asking, table) is SKIP:
        return [""] * len(table)
    told = plugin.filter(state, asking, table).explain()
    return [", ".join(told.reasons(int(code))) if code else "" for code in told.codes]


def scores(plugin: PodTopologySpread, wanted: Pod, table: NodeTable, feasible: list[bool] | None = None) -> list[float] | None:
    state, asking = CycleState(), PodInfo(wanted)
    mask = np.array(feasible or [True] * len(table), np.bool_)
    if plugin.pre_score(state, asking, table, mask) is SKIP:
        return None
    result: list[float] = plugin.normalize(state, plugin.score(state, asking, table, mask), mask).tolist()
    return [score if can else 0.0 for score, can in zip(result, mask, strict=True)]


@pytest.mark.parametrize(
    ("wanted", "nodes", "placed", "expected"),
    [
        pytest.param(pod(), [A1, B1], on("a1", "a1"), ["", ""], id="no constraint"),
        pytest.param(pod().spread("app=web", "zone"), [A1, B1], on("a1"), [SKEW, ""], id="one more would be two more"),
        pytest.param(pod().spread("app=web", "zone"), [A1, B1], on("a1", "b1"), ["", ""], id="balanced"),
        pytest.param(pod().spread("app=web", "zone", skew=2), [A1, B1], on("a1"), ["", ""], id="maxSkew 2"),
        pytest.param(pod().spread("app=web", "zone"), [A1, A2, B1], on("a1"), [SKEW, SKEW, ""], id="all nodes of the zone"),
        pytest.param(pod().spread("app=web", HOST), [A1, A2, B1], on("a1"), [SKEW, "", ""], id="by node"),
        pytest.param(pod().spread("app=web", "zone"), [A1, NOWHERE], on("a1"), ["", LABEL], id="outside the topology"),
        pytest.param(pod().spread("app=web", "zone"), [A1, B1], on("nowhere"), ["", ""], id="pods on nodes that are gone"),
        pytest.param(pod().spread("app=db", "zone"), [A1, B1], on("a1", "a1"), ["", ""], id="a selector for others"),
        pytest.param(
            pod().spread("!x", "zone"), [A1, B1], [*on("a1"), pod("y", "other").node("b1")], [SKEW, ""], id="own namespace only"
        ),
        pytest.param(
            pod().spread("app=web", "zone"), [A1, B1], [pod("x").node("a1").terminating()], ["", ""], id="deleted ones are gone"
        ),
        pytest.param(pod().spread("", "zone"), [A1, B1], on("a1", "a1"), ["", ""], id="an empty selector counts nobody"),
        pytest.param(
            pod().spread("app=web", "zone", minDomains=3), [A1, B1], on("a1", "b1"), [SKEW, SKEW], id="too few domains"
        ),
        pytest.param(
            pod().spread("app=web", "zone", minDomains=3), [A1, B1, C1], on("a1", "b1"), [SKEW, SKEW, ""], id="enough domains"
        ),
        pytest.param(
            pod().spread("app=web", "zone").node_selector("zone", "a"), [A1, B1], on("a1"), ["", ""],
            id="by default only nodes that the selector matches count",
        ),
        pytest.param(
            pod().spread("app=web", "zone", nodeAffinityPolicy="Ignore").node_selector("zone", "a"), [A1, B1], on("a1"),
            [SKEW, ""], id="nodeAffinityPolicy Ignore",
        ),
        pytest.param(
            pod().spread("app=web", "zone"), [A1, make_node("t").label("zone", "t").taint("x")], on("a1"), [SKEW, ""],
            id="by default taints do not matter",
        ),
        pytest.param(
            pod().spread("app=web", "zone", nodeTaintsPolicy="Honor"),
            [A1, make_node("t").label("zone", "t").taint("x")], on("a1"), ["", ""], id="nodeTaintsPolicy Honor",
        ),
        pytest.param(
            pod().label("app", "web").label("v", "1").spread("app=web,v in (2)", "zone", matchLabelKeys=["v", "no-such"]),
            [A1, B1], [*on("a1"), pod("y").label("app", "web").label("v", "2").node("b1")], ["", ""],
            id="the label at the creation counts for matchLabelKeys",
        ),
        pytest.param(
            pod().spread("app=web", "zone").spread("app=web", HOST), [A1, A2, B1, NOWHERE], on("a1", "b1"),
            [SKEW, "", SKEW, LABEL], id="several constraints",
        ),
        pytest.param(pod().spread("app=web", "zone", when=SOFT), [A1, B1], on("a1"), ["", ""], id="soft ones refuse nothing"),
    ],
)  # fmt: skip
def test_filter(wanted: PodBuilder, nodes: list[NodeBuilder], placed: list[PodBuilder], expected: list[str]) -> None:
    assert refusals(PodTopologySpread(), wanted.build(), cache_of(*nodes, placed=placed).nodes) == expected


@pytest.mark.parametrize(
    ("wanted", "nodes", "placed", "expected"),
    [
        pytest.param(pod(), [A1, B1], on("a1"), None, id="no constraint"),
        pytest.param(pod().spread("app=web", "zone", when=SOFT), [A1, B1], on("a1"), [0, 100], id="the emptier zone"),
        pytest.param(pod().spread("app=web", "zone", when=SOFT), [A1, B1], [], [100, 100], id="all empty"),
        pytest.param(
            pod().spread("app=web", "zone", when=SOFT), [A1, B1, C1], on("a1", "a1", "b1"), [0, 100 / 3, 100], id="by ratio"
        ),
        pytest.param(pod().spread("app=web", "zone", when=SOFT), [A1, NOWHERE], on("a1"), [100, 0], id="outside the topology"),
        pytest.param(
            pod().spread("app=web", HOST, when=SOFT).node_selector("zone", "a"), [A1, B1], on("b1"), [100, 0],
            id="a node's own pods always count",
        ),
        pytest.param(pod().spread("app=web", "zone"), [A1, B1], on("a1"), None, id="hard ones score nothing"),
    ],
)  # fmt: skip
def test_score(wanted: PodBuilder, nodes: list[NodeBuilder], placed: list[PodBuilder], expected: list[float] | None) -> None:
    result = scores(PodTopologySpread(), wanted.build(), cache_of(*nodes, placed=placed).nodes)
    assert result == (expected if expected is None else pytest.approx(expected))


def test_larger_skew_tolerates_more() -> None:
    table = cache_of(A1, B1, placed=on("a1")).nodes
    strict, lenient = (
        scores(PodTopologySpread(), pod().spread("app=web", "zone", skew=skew, when=SOFT).build(), table) for skew in (1, 5)
    )
    assert strict is not None and lenient is not None
    assert strict[1] - strict[0] > lenient[1] - lenient[0] > 0


def owned(name: str) -> PodBuilder:
    return make_pod(name).owner("ReplicaSet", "rs", uid="u1")


def test_pods_of_one_controller_are_spread_by_default() -> None:
    placed = [owned("x").node("a1"), make_pod("y").owner("ReplicaSet", "other", uid="u2").node("b1")]
    table = cache_of(A1, B1, placed=placed).nodes
    result = scores(PodTopologySpread(), owned("new").build(), table)
    assert result is not None and result[0] < result[1] == 100
    assert scores(PodTopologySpread({"defaultingType": "List"}), owned("new").build(), table) is None
    assert scores(PodTopologySpread(), make_pod("alone").build(), table) is None


@pytest.mark.parametrize(
    ("kind", "spread"),
    [("ReplicaSet", True), ("ReplicationController", True), ("StatefulSet", True), ("Job", False), ("DaemonSet", False)],
)
def test_only_controllers_of_pods_that_serve_spread_them(kind: str, spread: bool) -> None:
    """As in Kubernetes: who packs nodes packs the pods of a Job, too."""
    there, new = (make_pod(name).owner(kind, "c", uid="u1") for name in ("there", "new"))
    table = cache_of(A1, B1, placed=[there.node("a1")]).nodes
    assert (scores(PodTopologySpread(), new.build(), table) is not None) is spread
    assert refusals(PodTopologySpread(DEFAULTS), new.build(), table) == [SKEW if spread else "", ""]


def test_service_pods_are_spread_by_default() -> None:
    table = cache_of(A1, B1, placed=on("a1")).nodes
    result = scores(PodTopologySpread(None, Handle()), pod().build(), table)
    assert result is not None and result[0] < result[1]
    assert scores(PodTopologySpread(None, Handle()), pod(namespace="other").build(), table) is None
    assert scores(PodTopologySpread(None, Handle()), make_pod("x").label("app", "db").build(), table) is None


class Services(Handle):
    def __init__(self, *selectors: Mapping[str, str]) -> None:
        self._selectors = selectors

    def objects(self, resource: object) -> Mapping[str, Any]:
        named = {f"s{number}": selector for number, selector in enumerate(self._selectors)}
        return {
            f"default/{name}": Service(
                metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=ServiceSpec(selector=selector)
            )
            for name, selector in named.items()
        }


def test_pod_is_spread_among_the_pods_of_all_services_that_select_it() -> None:
    siblings = SiblingPods(Services({"app": "web"}, {"tier": "front", "app": "web"}, {"app": "db"}, {"tier": "back"}, {}))
    result = siblings.selection_of(info(make_pod("a").label("app", "web").label("tier", "front").label("x", "y")))
    assert result is not None and str(result.labels) == "app=web,tier=front"
    assert siblings.selection_of(info(make_pod("a", namespace="other").label("app", "web"))) is None


@pytest.mark.parametrize("value", ["v{}", "other"])
def test_services_of_others_cost_a_decision_little(value: str) -> None:
    """20,000 services in one namespace cost 28 ms for each pod of every other namespace, and 69 ms in their own."""
    siblings = SiblingPods(Services(*({"app": "web", "n": value.format(number)} for number in range(20_000))))
    for namespace in ("default", "other"):
        pod = info(make_pod("a", namespace=namespace).label("app", "web").label("n", "v7"))
        began = time.process_time()
        for _ in range(10):
            siblings.selection_of(pod)
        assert (time.process_time() - began) / 10 < 0.01


def test_systems_defaults_score_nodes_without_a_zone_too() -> None:
    zoned = make_node("z").label(ZONE, "a")
    result = scores(PodTopologySpread(), owned("new").build(), cache_of(zoned, NOWHERE, placed=[owned("x").node("z")]).nodes)
    assert result is not None and result[0] < result[1]


DEFAULTS = {
    "defaultingType": "List",
    "defaultConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
}


def test_default_constraints_of_ones_own() -> None:
    table = cache_of(A1, B1, placed=[owned("x").node("a1")]).nodes
    assert refusals(PodTopologySpread(DEFAULTS), owned("new").build(), table) == [SKEW, ""]
    assert refusals(PodTopologySpread(DEFAULTS), owned("new").spread("app=web", HOST).build(), table) == ["", ""]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"defaultingType": "Both"}, "defaultingType: expected System or List, got 'Both'"),
        ({"defaultConstraints": DEFAULTS["defaultConstraints"]}, "defaultConstraints: requires defaultingType List"),
        ({"skew": 1}, "skew: unknown field; supported: defaultingType, defaultConstraints"),
        ({"defaultConstraints": 1}, "defaultConstraints: expected a list"),
        ({"defaultConstraints": [1]}, r"defaultConstraints\[0\]: expected fields"),
        ({"defaultConstraints": [{"labelSelector": {}}]}, r"defaultConstraints\[0\].labelSelector: unknown field"),
        ({"defaultConstraints": [{"maxSkew": 1}]}, r"defaultConstraints\[0\].topologyKey: expected text"),
        ({"defaultConstraints": [{"topologyKey": "a/b/c"}]}, r"defaultConstraints\[0\].topologyKey: a valid label key"),
        (
            {"defaultConstraints": [{"topologyKey": "a", "whenUnsatisfiable": "Never"}]},
            r"defaultConstraints\[0\].whenUnsatisfiable: expected DoNotSchedule or ScheduleAnyway, got 'Never'",
        ),
        (
            {"defaultConstraints": [{"topologyKey": "a", "whenUnsatisfiable": SOFT}]},
            r"defaultConstraints\[0\].maxSkew: expected a whole number from 1 to",
        ),
        (
            {"defaultConstraints": [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": SOFT, "nodeTaintsPolicy": "No"}]},
            r"defaultConstraints\[0\].nodeTaintsPolicy: expected Honor or Ignore, got 'No'",
        ),
        (
            {"defaultConstraints": [{"topologyKey": "a", "maxSkew": skew, "whenUnsatisfiable": SOFT} for skew in (1, 2)]},
            r"defaultConstraints\[1\]: duplicate constraint with a and ScheduleAnyway",
        ),
    ],
)
def test_arguments_that_are_wrong(args: dict[str, object], problem: str) -> None:
    if isinstance(args.get("defaultConstraints"), list | int) and "requires" not in problem:
        args = {"defaultingType": "List", **args}
    with pytest.raises(ValueError, match=problem):
        PodTopologySpread(args)


WEB, DB = on("a1")[0], make_pod("db").label("app", "db").node("a1")


@pytest.mark.parametrize(
    ("wanted", "change", "other", "expected"),
    [
        (pod().spread("app=web", "zone"), Change.POD_PLACED, WEB, True),
        (pod().spread("app=web", "zone"), Change.POD_FREED, WEB, True),
        (pod().spread("app=web", "zone"), Change.POD_FREED, DB, False),
        (pod().spread("app=web", "zone"), Change.POD_LABELS, DB, True),
        (pod().spread("app=web", "zone"), Change.NODE_REMOVED, DB, True),
        (pod().spread("app=web", "zone"), Change.NODE_TAINTS, DB, True),
        (pod().spread("app=web", "rack"), Change.NODE_ADDED, DB, False),
        (pod().spread("app=web", "rack"), Change.NODE_TAINTS, DB, False),
        (pod().spread("app=web", "rack"), Change.NODE_LABELS, DB, True),
        (pod().spread("app=web", "zone"), Change.NODE_ALLOCATABLE, DB, False),
        (pod(), Change.POD_FREED, DB, True),
    ],
)
def test_hints(wanted: PodBuilder, change: Change, other: PodBuilder, expected: bool) -> None:
    plugin, cache, there = PodTopologySpread(), cache_of(A1), other.build()
    group = cache.nodes.pods.add_pod(there, "a1")
    event = ClusterEvent(change, "a1", group if change & (Change.POD_FREED | Change.POD_PLACED) else None)
    assert (bool(change & plugin.helped_by) and plugin.helps(event, info(wanted), cache.nodes)) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (DB, make_pod("db").label("app", "db").terminating(), False),
        (DB, make_pod("db").label("app", "cache"), False),
        (WEB, DB, True),
        (DB, WEB, True),
        (WEB, make_pod("web").label("app", "web").terminating(), True),
    ],
    ids=["another goes", "another is relabelled", "one less", "one more", "one goes"],
)
def test_relabelled_pod_wakes_pods_with_matching_constraints(before: PodBuilder, after: PodBuilder, expected: bool) -> None:
    """A pod that is being deleted is counted no more."""
    cache = cache_of(A1, B1, placed=[before.node("a1").uid("changed")])
    event = cache.update_labels(after.uid("changed").build())
    plugin = PodTopologySpread()
    assert event.change & plugin.helped_by
    assert plugin.helps(event, info(pod().spread("app=web", "zone")), cache.nodes) is expected


def test_node_that_leaves_its_zone_may_take_the_empty_one_away() -> None:
    """A selector keeps the pod in zone a, which is full beside zone b."""
    wanted, plugin = (
        pod().spread("app=web", "zone", nodeAffinityPolicy="Ignore").node_selector("zone", "a"),
        PodTopologySpread(),
    )
    cache = cache_of(A1, B1, placed=on("a1"))
    assert refusals(plugin, wanted.build(), cache.nodes)[0] == SKEW
    event = cache.set_node(make_node("b1").build())
    assert refusals(plugin, wanted.build(), cache.nodes)[0] == ""
    assert event.change & plugin.helped_by and plugin.helps(event, info(wanted), cache.nodes)


@pytest.mark.parametrize(
    ("wanted", "resource", "expected"),
    [(pod(), SERVICES, True), (pod(), NAMESPACES, False), (pod().spread("app=web", "zone"), SERVICES, False)],
    ids=["by default", "of no service", "by its own constraints"],
)
def test_service_requeues_pods_with_default_spread_constraints(
    wanted: PodBuilder, resource: Resource[Any], expected: bool
) -> None:
    plugin, event = PodTopologySpread(), ClusterEvent(Change.OBJECT, resource=resource.plural)
    assert event.change & plugin.helped_by
    assert plugin.helps(event, info(wanted), cache_of(A1).nodes) is expected


SELECTORS = ["app=a", "app in (a,b)", "app notin (a)", "!app", "tier", "app=a,tier=x"]


def any_pod(rng: random.Random, name: str) -> PodBuilder:
    built = make_pod(name, rng.choice(["default", "other"]))
    for key, values in (("app", "ab"), ("tier", "xy")):
        if rng.random() < 0.7:
            built.label(key, rng.choice(values))
    return built


def any_spread(rng: random.Random) -> Pod:
    built = any_pod(rng, "new")
    for key in rng.sample(["zone", "rack", HOST], rng.choice([1, 1, 2])):
        more: dict[str, Any] = {}
        if rng.random() < 0.2:
            more["nodeAffinityPolicy"] = rng.choice(["Honor", "Ignore"])
        if rng.random() < 0.3:
            more["nodeTaintsPolicy"] = rng.choice(["Honor", "Ignore"])
        when = rng.choice(["DoNotSchedule", SOFT])
        if when != SOFT and rng.random() < 0.2:
            more["minDomains"] = rng.choice([1, 4, 9])
        built.spread(rng.choice(SELECTORS), key, skew=rng.choice([1, 1, 2]), when=when, **more)
    if rng.random() < 0.3:
        built.node_affinity(("zone", rng.choice(["In", "NotIn"]), ["v1", "v2"]))
    if rng.random() < 0.3:
        built.tolerate("a", effect="NoSchedule", operator="Exists")
    return built.build()


def any_nodes(rng: random.Random, number: int) -> list[Node]:
    nodes = [make_node(f"n{i}") for i in range(number)]
    for node in nodes:
        for key, values in (("zone", 5), ("rack", 20)):
            if rng.random() < 0.9:
                node.label(key, f"v{rng.randrange(values)}")
        if rng.random() < 0.2:
            node.taint("a", effect=rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"]))
    return [node.build() for node in nodes]


@pytest.mark.timeout(TIMEOUT)
def test_it_agrees_with_the_plain_form() -> None:
    rng, pairs, refused, plugin = random.Random(5), 0, 0, PodTopologySpread()
    while pairs < PAIRS:
        nodes, cache, placed = any_nodes(rng, 250), Cache(), []
        for node in nodes:
            cache.set_node(node)
        for number in range(rng.choice([5, 40])):
            builder, node = any_pod(rng, f"p{number}"), rng.choice(nodes)
            there = builder.terminating().build() if rng.random() < 0.1 else builder.build()
            cache.add_pod(PodInfo(there), node.metadata.name)
            placed.append((there, node))
        for _ in range(25):
            wanted = any_spread(rng)
            plain = Spread(wanted, placed, nodes)
            expected = [plain.reason(node) for node in nodes]
            assert refusals(plugin, wanted, cache.nodes) == expected
            feasible = [not reason for reason in expected]
            if any(feasible):
                result = scores(plugin, wanted, cache.nodes, feasible)
                assert result is None or result == pytest.approx(plain.scores(feasible))
            pairs += len(nodes)
            refused += sum(map(bool, expected))
    assert 0.05 < refused / pairs < 0.9
