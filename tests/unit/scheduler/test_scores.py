"""NodeAffinity's score, ImageLocality, SelectorSpread, NodePreferAvoidPods: what Kubernetes documents, and agreement with
plain forms."""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.wellknown import REGION_LABEL as REGION
from pinnace.api.wellknown import ZONE_LABEL as ZONE
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import NodeTable, ScorePlugin
from pinnace.scheduler.plugins.node_affinity import NodeAffinity
from pinnace.scheduler.plugins.nodes import ANNOTATION, ImageLocality, NodePreferAvoidPods
from pinnace.scheduler.plugins.topology_spread import PodTopologySpread, SelectorSpread
from pinnace.verification.plugins.world import run_score_plugin
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.unit.scheduler import reference
from tests.unit.scheduler.pairs import PAIRS, TIMEOUT
from tests.unit.scheduler.pods import cache_of


def pod() -> PodBuilder:
    return make_pod("new")


def scores(plugin: ScorePlugin, wanted: Pod, table: NodeTable, feasible: Sequence[bool] | None = None) -> list[float] | None:
    """None: they would be the same everywhere. 0 for a node that is not feasible."""
    mask = np.array(feasible or [True] * len(table), np.bool_)
    result = run_score_plugin(plugin, {}, PodInfo(wanted), table, mask)
    return None if result is None else np.where(mask, result, 0).tolist()


EAST, WEST, PLAIN = (
    make_node("east").label("zone", "east").label("ssd", ""),
    make_node("west").label("zone", "west"),
    make_node("n"),
)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pod(), None),
        (pod().node_affinity(("zone", "Exists", [])), None),
        (pod().prefer_nodes(10, ("zone", "In", ["east"])), [100, 0, 0]),
        (pod().prefer_nodes(10, ("zone", "Exists", [])).prefer_nodes(30, ("ssd", "Exists", [])), [100, 25, 0]),
        (pod().prefer_nodes(10, ("zone", "Exists", []), ("ssd", "DoesNotExist", [])), [0, 100, 0]),
        (pod().prefer_nodes(10, ("zone", "In", ["north"])), [0, 0, 0]),
        (pod().prefer_nodes(10), [0, 0, 0]),
    ],
)
def test_preferred_node_affinity(wanted: PodBuilder, expected: list[float] | None) -> None:
    assert scores(NodeAffinity(), wanted.build(), cache_of(EAST, WEST, PLAIN).nodes) == expected


def test_only_feasible_nodes_count_for_preferred_node_affinity() -> None:
    wanted = pod().prefer_nodes(10, ("zone", "Exists", [])).prefer_nodes(30, ("ssd", "Exists", [])).build()
    table = cache_of(EAST, WEST, PLAIN).nodes
    assert scores(NodeAffinity(), wanted, table, [False, True, True]) == [0, 100, 0]


HAS, LACKS = make_node("has").image(523, "app:1", "registry/app@sha256:1").image(23, "small:latest"), make_node("lacks")
HALF = 100 * (523 / 2 - 23) / (1000 - 23)
"""The image counts half when half of the nodes have it."""


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pod().image("app:1"), [HALF, 0]),
        (pod().image("registry/app@sha256:1"), [HALF, 0]),
        (pod().image("app:2"), [0, 0]),
        (pod().image("small"), [0, 0]),
        (pod().image("app:1").image("small"), [100 * (523 / 2 + 23 / 2 - 23) / (2000 - 23), 0]),
        (pod().image("app:1").init(), [100 * (523 / 2 - 23) / (2000 - 23), 0]),
        (pod().image("app:1").image("app:1").image("app:1"), [100 * (3 * 523 / 2 - 23) / (3000 - 23), 0]),
    ],
)
def test_image_locality(wanted: PodBuilder, expected: list[float]) -> None:
    assert scores(ImageLocality(), wanted.build(), cache_of(HAS, LACKS).nodes) == pytest.approx(expected)


def test_images_that_no_node_reports_do_not_matter() -> None:
    cache = cache_of(LACKS)
    assert scores(ImageLocality(), pod().image("app:1").build(), cache.nodes) is None
    cache.set_node(make_node("lacks").image(2000, "app:1").build())
    assert scores(ImageLocality(), pod().image("app:1").build(), cache.nodes) == [100]
    cache.set_node(LACKS.build())
    assert scores(ImageLocality(), pod().image("app:1").build(), cache.nodes) is None


def test_images_too_small_to_matter_cost_no_score() -> None:
    """All nodes of a fleet have the image of a pod's sandbox."""
    cache = cache_of(make_node("a").image(1, "pause"), make_node("b").image(1, "pause"))
    assert scores(ImageLocality(), pod().image("pause").build(), cache.nodes) is None
    cache.set_node(make_node("b").image(30, "app:1").build())
    assert scores(ImageLocality(), pod().image("app:1").build(), cache.nodes) is not None


def test_images_follow_the_nodes() -> None:
    rng, cache, has = random.Random(6), Cache(), dict[str, int]()
    for _ in range(300):
        name, size = f"n{rng.randrange(5)}", rng.choice([0, 1, 2])
        if rng.random() < 0.3:
            cache.remove_node(name)
            has.pop(name, None)
        else:
            cache.set_node((make_node(name).image(size, "app:1") if size else make_node(name)).build())
            has[name] = size
        assert bool(cache.nodes.largest_image) is any(has.values())
        assert (cache.nodes.image("app:1") / (1 << 20)).tolist() == [has[name] for name in cache.nodes.names]


def owned(name: str, uid: str = "u1") -> PodBuilder:
    return make_pod(name).owner("ReplicaSet", "rs", uid=uid)


A1, A2 = make_node("a1").label(ZONE, "a"), make_node("a2").label(ZONE, "a")
B1, C1 = make_node("b1").label(ZONE, "b"), make_node("c1").label(ZONE, "a").label(REGION, "other")


def on(*nodes: str) -> list[PodBuilder]:
    return [owned(f"p{number}").node(node) for number, node in enumerate(nodes)]


@pytest.mark.parametrize(
    ("wanted", "nodes", "placed", "expected"),
    [
        pytest.param(pod(), [A1, B1], on("a1"), None, id="a pod of nobody's"),
        pytest.param(owned("new").spread("a", "b"), [A1, B1], on("a1"), None, id="a pod that says itself how it is spread"),
        pytest.param(owned("new"), [EAST, WEST], [], [100, 100], id="the first"),
        pytest.param(owned("new"), [EAST, WEST, PLAIN], on("east", "east", "west"), [0, 50, 100], id="without zones"),
        pytest.param(owned("new", "u2"), [EAST, WEST], on("east"), [100, 100], id="another controller's"),
        pytest.param(owned("new"), [EAST, WEST], [owned("x").node("east").terminating()], [100, 100], id="deleted"),
        pytest.param(owned("new"), [A1, A2, B1], on("a1"), [0, 100 / 3, 100], id="the zone counts two thirds"),
        pytest.param(owned("new"), [A1, PLAIN], on("a1"), [0, 100], id="a node without a zone counts as itself"),
        pytest.param(owned("new"), [A1, C1], on("a1"), [0, 100], id="zones of the same name in two regions"),
    ],
)
def test_selector_spread(
    wanted: PodBuilder, nodes: list[NodeBuilder], placed: list[PodBuilder], expected: list[float] | None
) -> None:
    result = scores(SelectorSpread(), wanted.build(), cache_of(*nodes, placed=placed).nodes)
    assert result == (expected if expected is None else pytest.approx(expected))


def test_selector_spread_takes_no_arguments() -> None:
    with pytest.raises(ValueError, match="zone: unknown field"):
        SelectorSpread({"zone": 1})


def test_calculate_anti_affinity_is_a_case_of_topology_spread() -> None:
    """The old priority function spread the pods of a service over the values of one label."""
    over_racks = {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    plugin = PodTopologySpread({"defaultingType": "List", "defaultConstraints": [over_racks]})
    nodes = [make_node("a").label("rack", "1"), make_node("b").label("rack", "1"), make_node("c").label("rack", "2"), PLAIN]
    result = scores(plugin, owned("new").build(), cache_of(*nodes, placed=on("a", "b", "c")).nodes)
    assert result == pytest.approx([100 / 3, 100 / 3, 100, 0])


def avoiding(*controllers: tuple[str, str]) -> str:
    each = [{"podSignature": {"podController": {"kind": kind, "uid": uid}}} for kind, uid in controllers]
    return json.dumps({"preferAvoidPods": each})


@pytest.mark.parametrize(
    ("wanted", "annotation", "expected"),
    [
        (owned("new"), avoiding(("ReplicaSet", "u1")), [0, 100]),
        (owned("new"), avoiding(("ReplicaSet", "u2"), ("ReplicaSet", "u1")), [0, 100]),
        (owned("new"), avoiding(("ReplicationController", "u1")), [100, 100]),
        (make_pod("new").owner("ReplicationController", "rc", uid="u1"), avoiding(("ReplicationController", "u1")), [0, 100]),
        (owned("new", "u2"), avoiding(("ReplicaSet", "u1")), [100, 100]),
        (owned("new"), "{", [100, 100]),
        (owned("new"), '{"preferAvoidPods": [{}]}', [100, 100]),
        (make_pod("new").owner("Job", "j", uid="u1"), avoiding(("Job", "u1")), None),
        (pod(), avoiding(("ReplicaSet", "u1")), None),
        (owned("new"), "", [100, 100]),
    ],
)
def test_node_prefer_avoid_pods(wanted: PodBuilder, annotation: str, expected: list[float] | None) -> None:
    table = cache_of(make_node("picky").annotation(ANNOTATION, annotation), make_node("n")).nodes
    assert scores(NodePreferAvoidPods(), wanted.build(), table) == expected


def test_without_the_annotation_nothing_is_avoided() -> None:
    assert scores(NodePreferAvoidPods(), owned("new").build(), cache_of(PLAIN).nodes) is None


Placed = Sequence[tuple[Pod, str]]
IMAGES = [f"i{number}:1" for number in range(4)]


def plain_node_affinity(wanted: Pod, nodes: Sequence[Node], placed: Placed, feasible: Sequence[bool]) -> list[float]:
    terms = wanted.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution
    result = [sum(t.weight for t in terms if reference.term_matches(t.preference, node)) for node in nodes]
    most = max((each for each, can in zip(result, feasible, strict=True) if can), default=0)
    return [100 * item / most if most else 0 for item in result]


def plain_image_locality(wanted: Pod, nodes: Sequence[Node], placed: Placed, feasible: Sequence[bool]) -> list[float]:
    has = [{name: image.sizeBytes for image in node.status.images for name in image.names} for node in nodes]
    spread = Counter(name for item in has for name in item)
    containers, mib, result = wanted.spec.containers, 1 << 20, list[float]()
    most = 1000 * mib * max(len(containers), 1)
    for item in has:
        total = sum(item.get(c.image, 0) * spread[c.image] / len(nodes) for c in containers)
        result.append(100 * (min(max(total, 23 * mib), most) - 23 * mib) / (most - 23 * mib))
    return result


def plain_selector_spread(wanted: Pod, nodes: Sequence[Node], placed: Placed, feasible: Sequence[bool]) -> list[float]:
    def zone(node: Node) -> tuple[str | None, str | None]:
        return node.metadata.labels.get(REGION), node.metadata.labels.get(ZONE)

    (owner,) = wanted.metadata.ownerReferences
    by_node, by_zone = Counter[str](), Counter[tuple[str | None, str | None]]()
    for other, name in placed:
        if other.metadata.ownerReferences[0].uid == owner.uid and other.metadata.namespace == wanted.metadata.namespace:
            by_node[name] += 1
    candidates = [node for node, can in zip(nodes, feasible, strict=True) if can]
    for node in candidates:
        if zone(node) != (None, None):
            by_zone[zone(node)] += by_node[node.metadata.name]
    most, most_in_zone = max((by_node[node.metadata.name] for node in candidates), default=0), max(by_zone.values(), default=0)
    result = list[float]()
    for node in nodes:
        score = 100 * (most - by_node[node.metadata.name]) / most if most else 100.0
        if zone(node) in by_zone:
            zoned = 100 * (most_in_zone - by_zone[zone(node)]) / most_in_zone if most_in_zone else 100.0
            score = score / 3 + zoned * 2 / 3
        result.append(score)
    return result


def plain_avoidance(wanted: Pod, nodes: Sequence[Node], placed: Placed, feasible: Sequence[bool]) -> list[float]:
    (owner,) = wanted.metadata.ownerReferences
    return [0 if f'"{owner.uid}"' in node.metadata.annotations[ANNOTATION] else 100 for node in nodes]


def any_node(rng: random.Random, name: str) -> Node:
    node = make_node(name).annotation(ANNOTATION, avoiding(*(("ReplicaSet", uid) for uid in rng.choice(["", "1", "12", "3"]))))
    for key, values in ((ZONE, "123"), (REGION, "12"), ("size", "1234")):
        if rng.random() < 0.8:
            node.label(key, rng.choice(values))
    for image in rng.sample(IMAGES, rng.randrange(4)):
        node.image(rng.choice([10, 400, 3000]), image, f"{image}-alias")
    return node.build()


def any_pod(rng: random.Random, name: str) -> PodBuilder:
    return make_pod(name, rng.choice(["default", "other"])).owner("ReplicaSet", "rs", uid=rng.choice("1234"))


def any_wish(rng: random.Random) -> Pod:
    wanted = any_pod(rng, "new")
    for _ in range(rng.randrange(1, 4)):
        key, operator = rng.choice([ZONE, REGION, "size"]), rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        values = {"In": ["1", "2"], "NotIn": ["1"], "Gt": ["1"], "Lt": ["3"]}.get(operator, [])
        wanted.prefer_nodes(rng.randrange(1, 100), (key, operator, values), ("size", "Exists", []))
        wanted.image(rng.choice(IMAGES))
    return wanted.build()


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("plugin", "plain"),
    [
        (NodeAffinity(), plain_node_affinity),
        (ImageLocality(), plain_image_locality),
        (SelectorSpread(), plain_selector_spread),
        (NodePreferAvoidPods(), plain_avoidance),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_they_agree_with_the_plain_forms(
    plugin: ScorePlugin, plain: Callable[[Pod, Sequence[Node], Placed, Sequence[bool]], list[float]]
) -> None:
    rng, pairs = random.Random(7), 0
    while pairs < PAIRS:
        nodes, cache, placed = [any_node(rng, f"n{number}") for number in range(500)], Cache(), list[tuple[Pod, str]]()
        for node in nodes:
            cache.set_node(node)
        for number in range(rng.choice([20, 200])):
            placed.append((any_pod(rng, f"p{number}").build(), f"n{rng.randrange(500)}"))
            cache.add_pod(PodInfo(placed[-1][0]), placed[-1][1])
        for _ in range(20):
            wanted, feasible = any_wish(rng), [rng.random() < 0.7 for _ in nodes]
            expected = plain(wanted, nodes, placed, feasible)
            result = scores(plugin, wanted, cache.nodes, feasible)
            assert result == pytest.approx([each if can else 0 for each, can in zip(expected, feasible, strict=True)])
            pairs += len(nodes)
