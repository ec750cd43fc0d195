"""How plugins are run: in order, skipped when they say so, and blamed by name when they fail."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.cache.cache import Cache, Change, ClusterEvent
from pinnace.scheduler.explain.explain import plugin_scores
from pinnace.scheduler.framework import SKIP, FilterResult, NodeView, Nominated, PerNodeFilter, PerNodeScore, PodInfo, Status
from pinnace.scheduler.framework.profile import Enabled, Point, profile_of
from pinnace.scheduler.framework.results import Diagnosis, PluginError, Proposed
from pinnace.scheduler.framework.runtime import Framework
from pinnace.scheduler.plugins.queue_and_bind import DefaultBinder, PrioritySort
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of, default_plugins, framework, info

POD = info(make_pod("a").req(cpu=1))
NODES = cache_of(make_node("n"), make_node("m")).nodes
BOTH = np.ones(2, np.bool_)


class Custom:
    """A plugin with whatever methods a test gives it."""

    def __init__(self, name: str = "Custom", **methods: Any) -> None:
        self.name = name
        for method, answer in methods.items():
            fixed = callable(answer) or isinstance(answer, Change)
            setattr(self, method, answer if fixed else lambda *_, answer=answer: answer)


def boom(*_: object) -> None:
    raise RuntimeError("boom")


class OnlyM(PerNodeFilter):
    name = "OnlyM"

    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        return None if node.name == "m" else f"node(s) were not {pod.metadata.name}'s favourite"


class ByName(PerNodeScore):
    name = "ByName"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score_node(self, pod: Pod, node: NodeView) -> float:
        self.asked.append(node.name)
        return 100.0 if node.name == "m" else 0.0


def test_plugin_failure_is_reported_with_its_line() -> None:
    class Helped(PerNodeScore):
        name = "Helped"

        def score_node(self, pod: Pod, node: NodeView) -> float:
            return float("")

    with pytest.raises(PluginError, match=r"float: '' \(test_framework\.py:\d+\)$"):
        framework(Enabled(Helped())).score({}, POD, NODES, BOTH)
    with pytest.raises(PluginError, match=r"got 0\.0 to 101\.0$"):
        framework(Enabled(Custom(score=np.array([0.0, 101.0])))).score({}, POD, NODES, BOTH)


def test_failure_that_stops_nothing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    profile = framework(Enabled(Custom(pre_enqueue=boom)))
    assert profile.find_gate(POD) is None and profile.find_gate(info(make_pod("b"))) is None
    [record] = caplog.records
    assert record.levelname == "ERROR" and record.exc_info is not None
    assert record.getMessage().startswith('plugin "Custom" failed in PreEnqueue: RuntimeError: boom (test_framework.py:')


def test_plain_filter() -> None:
    judged = framework(Enabled(OnlyM())).run_filters({}, POD, NODES)
    assert judged.feasible.tolist() == [False, True]
    alone = cache_of(make_node("n"), make_node("o")).nodes
    refused = framework(Enabled(OnlyM())).run_filters({}, POD, alone)
    assert refused.message == "0/2 nodes are available: 2 node(s) were not a's favourite."


def test_plain_score_is_asked_about_feasible_nodes_only() -> None:
    plugin = ByName()
    total = framework(Enabled(plugin, weight=1000)).score({}, POD, NODES, np.array([True, False]))
    assert plugin.asked == ["n"]
    assert total[1] == -np.inf and 0 <= total[0] <= 200


def test_node_as_a_plain_plugin_sees_it() -> None:
    seen = {}

    class Look(PerNodeFilter):
        name = "Look"

        def filter_node(self, pod: Pod, node: NodeView) -> str | None:
            seen[node.name] = (
                node.allocatable("cpu"),
                node.free("cpu"),
                node.used("cpu"),
                node.labels["zone"],
                node.node.metadata.uid,
            )
            return None

    table = cache_of(make_node("n").label("zone", "east"), placed=[make_pod("p").req(cpu=1).node("n")]).nodes
    framework(Enabled(Look())).run_filters({}, POD, table)
    assert seen == {"n": (4000, 3000, 1000, "east", "uid-n")}


def _prize(of: Mapping[str, str]) -> float:
    return float(of["prize"])


@pytest.mark.parametrize(
    "reads",
    [
        lambda pod, node: _prize(node.labels),
        lambda pod, node: _prize(node.annotations),
        lambda pod, node: _prize(node.node.metadata.labels),
        lambda pod, node: _prize(pod.metadata.labels),
        lambda pod, node: _prize(pod.spec.nodeSelector),
    ],
)
def test_plain_plugin_that_reads_what_is_missing_changes_nothing(reads: Any) -> None:
    class Prize(PerNodeScore):
        name = "Prize"

        def score_node(self, pod: Pod, node: NodeView) -> float:
            return float(reads(pod, node))

    own, node = make_pod("a").build(), make_node("n").build()
    cache = Cache()
    cache.set_node(node)
    before = own.SerializeToString(), node.SerializeToString()
    with pytest.raises(PluginError, match="KeyError: 'prize'"):
        framework(Enabled(Prize())).score({}, PodInfo(own), cache.nodes, np.ones(1, np.bool_))
    assert (own.SerializeToString(), node.SerializeToString()) == before


@pytest.mark.parametrize(
    "reads",
    [
        lambda pod, nodes: _prize(nodes.nodes[0].metadata.labels),
        lambda pod, nodes: _prize(pod.pod.metadata.labels),
        lambda pod, nodes: _prize(pod.pod.spec.nodeSelector),
    ],
)
def test_native_plugin_that_reads_what_is_missing_changes_nothing(reads: Any) -> None:
    own, node = make_pod("a").build(), make_node("n").build()
    cache = Cache()
    cache.set_node(node)
    before = own.SerializeToString(), node.SerializeToString()
    with pytest.raises(PluginError, match="KeyError: 'prize'"):
        framework(Enabled(Custom(filter=lambda state, pod, nodes: reads(pod, nodes)))).run_filters(
            {}, PodInfo(own), cache.nodes
        )
    assert (own.SerializeToString(), node.SerializeToString()) == before


def test_skipped_plugins_are_not_called() -> None:
    skipping = Custom(pre_filter=SKIP, filter=boom, pre_score=SKIP, score=boom)
    assert framework(Enabled(skipping)).run_filters({}, POD, NODES).feasible.all()
    framework(Enabled(skipping)).score({}, POD, NODES, BOTH)


def test_plugin_takes_part_only_where_it_is_enabled() -> None:
    profile = dict(profile_of([*default_plugins(), Enabled(Custom(filter=boom, score=np.array([1.0, 2.0])), weight=3)]))
    without = profile | {Point.FILTER: []}
    assert Framework("x", without).run_filters({}, POD, NODES).feasible.all()
    with pytest.raises(PluginError):
        Framework("x", profile).run_filters({}, POD, NODES)
    total = Framework("x", without).score({}, POD, NODES, BOTH)
    assert total[1] - total[0] == pytest.approx(3.0)


def test_pre_filter_can_refuse_for_all_nodes() -> None:
    refused = framework(Enabled(Custom(pre_filter=Status("no budget"), filter=boom))).run_filters({}, POD, NODES)
    assert not refused.feasible.any() and refused.pre_filter == ("Custom", "no budget")


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Custom(pre_filter=boom), 'plugin "Custom" failed in PreFilter: RuntimeError: boom'),
        (Custom(filter=boom), 'plugin "Custom" failed in Filter: RuntimeError: boom'),
        (Custom(filter=BOTH), 'plugin "Custom" failed in Filter: TypeError: expected a FilterResult, got array'),
        (
            Custom(filter=FilterResult.refusing(np.zeros(3, np.bool_), "")),
            "Filter: ValueError: `passed` must be 2 booleans",
        ),
        (Custom(filter=FilterResult.coded(np.array([1, 1]), ["", ])), 'plugin "Custom" failed in Filter: IndexError'),
    ],
)  # fmt: skip
def test_filter_that_fails_is_named(plugin: Custom, message: str) -> None:
    with pytest.raises(PluginError) as raised:
        str(framework(Enabled(plugin)).run_filters({}, POD, NODES).message)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Custom(pre_score=boom, score=np.zeros(2)), 'plugin "Custom" failed in PreScore: RuntimeError: boom'),
        (Custom(score=boom), 'plugin "Custom" failed in Score: RuntimeError: boom'),
        (Custom(score=np.array([0.0, 101.0])), "Score: ValueError: scores must be from 0 to 100, got 0.0 to 101.0"),
        (Custom(score=np.array([0.0, np.nan])), "scores must be from 0 to 100"),
        (Custom(score=np.zeros(3)), "Score: TypeError: scores must be an array of 2 real numbers, got an array of shape (3,)"),
        (Custom(score=np.zeros(2), normalize=boom), 'plugin "Custom" failed in NormalizeScore: RuntimeError: boom'),
    ],
)
def test_score_that_fails_is_named(plugin: Custom, message: str) -> None:
    failing = framework(Enabled(plugin))
    with pytest.raises(PluginError) as raised:
        failing.score({}, POD, NODES, BOTH)
    with pytest.raises(PluginError) as explained:
        list(plugin_scores(failing, {}, POD, NODES, BOTH))
    assert message in str(raised.value) == str(explained.value)


def test_plugin_keeps_its_own_array() -> None:
    own = np.array([1.0, 2.0])
    both = framework(Enabled(Custom("A", score=own)), Enabled(Custom("B", score=own), weight=2))
    total = both.score({}, POD, NODES, BOTH)
    assert own.tolist() == [1.0, 2.0]
    assert total[1] - total[0] == pytest.approx(3.0)


def test_failures_where_no_pod_can_be_blamed_change_nothing() -> None:
    broken = Custom(pre_enqueue=boom, sort_key=boom, filter=boom, helps=boom, helped_by=Change.POD_FREED)
    alone = Framework("x", profile_of([Enabled(DefaultBinder()), Enabled(broken)]))
    assert alone.find_gate(POD) is None
    assert alone.sort_key(POD, 0.0) == ()
    assert alone.event_helps("Custom", ClusterEvent(Change.POD_FREED, "n"), POD, NODES)
    assert not alone.event_helps("Custom", ClusterEvent(Change.NODE_LABELS, "n"), POD, NODES)


def test_anything_helps_a_plugin_without_a_hint() -> None:
    assert framework(Enabled(Custom(filter=boom))).event_helps("Custom", ClusterEvent(Change.NODE_LABELS, "n"), POD, NODES)


def test_names_are_unique() -> None:
    with pytest.raises(ValueError, match="enabled twice: Custom"):
        framework(Enabled(Custom(filter=boom)), Enabled(Custom(filter=boom)))

    plugin = Enabled(Custom(filter=boom))
    with pytest.raises(ValueError, match="enabled twice: Custom"):
        Framework("x", dict(profile_of(default_plugins())) | {Point.FILTER: [plugin, plugin]})


@pytest.mark.parametrize("sorters", [[], [PrioritySort(), Custom(sort_key=boom)]])
def test_exactly_one_plugin_sorts(sorters: list[Any]) -> None:
    with pytest.raises(ValueError, match="exactly one plugin must sort"):
        Framework("x", profile_of(Enabled(sorter) for sorter in sorters))


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (Point.BIND, "at least one plugin must bind"),
        (Point.PRE_SCORE, "Custom is enabled at score, but not at preScore"),
        (Point.PRE_FILTER, "is enabled at filter, but not at preFilter"),
    ],
)
def test_points_that_belong_together(missing: Point, message: str) -> None:
    plugins = [
        Enabled(PrioritySort()),
        Enabled(DefaultBinder()),
        Enabled(Custom(pre_filter=None, filter=boom, pre_score=None, score=boom)),
    ]
    with pytest.raises(ValueError, match=message):
        Framework("x", dict(profile_of(plugins)) | {missing: []})


def test_plugin_that_is_never_asked_to_bind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="Custom would never be called to bind"):
        framework(Enabled(Custom(bind=boom)))


class TestPostFilter:
    def test_first_that_makes_room_is_the_last_that_is_asked(self) -> None:
        plugins = [
            Custom("A", post_filter=Status("not me")),
            Custom("B", post_filter=Nominated("m")),
            Custom("C", post_filter=boom),
        ]
        assert self.run(*plugins) == ("m", "")

    def test_results_of_other_plugins_are_reported(self) -> None:
        assert self.run(Custom("A", post_filter=Status("not me.")), Custom("B", post_filter=None)) == ("", "not me.")
        assert self.run(Custom("A", post_filter=Status("not me.")), Custom("B", post_filter=Status("nor me."))) == (
            "",
            "not me. nor me.",
        )

    def test_failure_is_named(self) -> None:
        with pytest.raises(PluginError, match='plugin "A" failed in PostFilter: RuntimeError: boom'):
            self.run(Custom("A", post_filter=boom))

    @staticmethod
    def run(*plugins: Custom) -> tuple[str, str] | Proposed:
        answer = framework(*map(Enabled, plugins)).post_filter({}, POD, NODES, Diagnosis(2))
        return answer if isinstance(answer, Proposed) else (answer[0].node, answer[0].reason)
