"""The checks of plugins find each mistake, and correct plugins pass."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pinnace.scheduler.framework import (
    BoolArray,
    CycleState,
    Dependency,
    FilterResult,
    FloatArray,
    NodeTable,
    NodeView,
    PerNodeFilter,
    PerNodeScore,
    PodInfo,
)
from pinnace.scheduler.framework.profile import PluginLoadError
from pinnace.scheduler.framework.results import PluginError
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from pinnace.verification.plugins import PluginCluster, check_plugin, make_node, make_pod
from pinnace.verification.plugins.checks import find_plugins
from pinnace.verification.plugins.scaffold import FILTER, SCORE, ScaffoldError, write_plugin

ROOT = Path(__file__).parents[3]


class Fullest(PerNodeScore):
    name = "Fullest"
    score_depends_on = Dependency.FREE_RESOURCES

    def score_node(self, pod: Any, node: NodeView) -> float:
        return min(100 * node.used("cpu") / max(node.allocatable("cpu"), 1), 100)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.minimum(100 * (nodes.allocatable("cpu") - nodes.free("cpu")) / np.maximum(nodes.allocatable("cpu"), 1), 100)


class Rounded(Fullest):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.floor(super().score(state, pod, nodes, feasible))


class Unclipped(PerNodeScore):
    name = "Unclipped"

    def score_node(self, pod: Any, node: NodeView) -> float:
        return 100 * node.used("cpu") / node.allocatable("cpu")


class NotANumber(Fullest):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return np.full(len(nodes), np.nan)


class Forgetful(PerNodeScore):
    name = "Forgetful"
    calls = count()

    def score_node(self, pod: Any, node: NodeView) -> float:
        return next(self.calls) % 100


class Relabelling(PerNodeScore):
    name = "Relabelling"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        pod.raw.metadata.labels["seen"] = "true"
        return np.zeros(len(nodes))

    def score_node(self, pod: Any, node: NodeView) -> float:
        return 0.0


class Spending(Fullest):
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        free = nodes.free("cpu")
        free -= 1
        return np.zeros(len(nodes))


class Relative:
    """Depends on the other nodes, and says that it does not."""

    name = "Relative"
    score_depends_on = Dependency.FREE_RESOURCES

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        return 100 * nodes.free("cpu").clip(0) / max(int(nodes.free("cpu").max()), 1)


class Silent:
    name = "Silent"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult(
            nodes.free("cpu") > 1000, lambda: FilterResult.coded(np.zeros(len(nodes), np.int32), [""]).explain()
        )


class OtherReason(PerNodeFilter):
    name = "OtherReason"

    def filter_node(self, pod: Any, node: NodeView) -> str | None:
        return None if node.free("cpu") >= 1000 else "node(s) were full"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        return FilterResult.refusing(nodes.free("cpu") < 1000, "node(s) were busy")


def problems(plugin: Any, **options: Any) -> Sequence[str]:
    return check_plugin(plugin, trials=20, **options).problems


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Rounded, "score gives .*, score_node "),
        (Unclipped, r'plugin "Unclipped" failed in Score: ValueError: scores must be from 0 to 100, got'),
        (NotANumber, "scores must be from 0 to 100, got nan to nan"),
        (Forgetful, "score gives .* in a second call: it must be the same"),
        (Relabelling, "score changes the pod"),
        (Spending, "score changes the array of cpu"),
        (Relative, "score_depends_on is FREE_RESOURCES, but node .* alone gives another result"),
        (Silent, "is refused without a reason"),
        (OtherReason, r"filter says 'node\(s\) were busy', filter_node 'node\(s\) were full'"),
    ],
    ids=lambda value: getattr(value, "name", "") and value.__name__,
)
def test_checks_find_a_mistake(plugin: Any, message: str) -> None:
    assert any(re.search(message, problem) for problem in problems(plugin))


def test_checks_are_repeatable_and_correct_plugin_passes() -> None:
    report = check_plugin(Fullest, trials=8)
    assert (report.problems, report.notes) == ([], [])
    assert check_plugin(Rounded, trials=8, seed=3) == check_plugin(Rounded, trials=8, seed=3)


@pytest.mark.parametrize("name", DEFAULT_PLUGINS)
def test_built_in_plugins_pass(name: str) -> None:
    """They keep the promises of their `Dependency`, too."""
    if {"filter", "score"} & set(dir(DEFAULT_PLUGINS[name][0])):
        assert problems(DEFAULT_PLUGINS[name][0]) == []


def test_label_of_nodes_makes_scores_differ() -> None:
    spec = f"{ROOT}/examples/plugins/fast_disks.py:FastDisks"
    equal = check_plugin(spec, args={"disk": "ssd"}, trials=4)
    assert any("all scores of a pod were equal" in note for note in equal.notes)
    varied = check_plugin(spec, args={"disk": "ssd"}, labels={"disk": ["ssd", "hdd"]}, trials=4)
    assert varied.problems == [] and not any("equal" in note for note in varied.notes)


@pytest.mark.parametrize("kind", [SCORE, FILTER])
def test_new_plugin_passes_its_checks(kind: str, tmp_path: Path) -> None:
    source, *others = write_plugin("KeepIt", kind, tmp_path / "new")
    assert [path.name for path in (source, *others)] == ["keep_it.py", "test_keep_it.py", "profiles.yaml", "study.yaml"]
    (spec,) = find_plugins(str(source))
    report = check_plugin(spec, trials=8)
    assert (report.plugin, report.problems, report.notes) == ("KeepIt", [], [])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("keepIt", '"keepIt" is no name of a plugin'),
        ("../Evil", "is no name of a plugin"),
        ("GpuShare", "GpuShare is a plugin of the scheduler"),
        ("Json", "a Python module has the name json"),
        ("There", "there.py already exists; nothing was written"),
    ],
)
def test_new_plugin_refuses_names_and_existing_files(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there.py").write_text("mine")
    with pytest.raises(ScaffoldError, match=message):
        write_plugin(name, SCORE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["there.py"] and (tmp_path / "there.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [("class A:\n  title = 'x'\n", "no class with an attribute `name`"), ("def (", "invalid syntax"), (None, "cannot be read")],
    ids=["no name", "syntax", "missing"],
)
def test_file_without_a_plugin_is_an_error(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "a.py").write_text(text)
    with pytest.raises(PluginLoadError, match=message):
        find_plugins(str(tmp_path / "a.py"))


def test_cluster_returns_results_by_node() -> None:
    cluster = PluginCluster([make_node("a", cpu="8"), make_node("b", cpu="8")], [make_pod("p", node="a", cpu="6")])
    assert cluster.score(Fullest, make_pod("new", cpu="1")) == {"a": 75, "b": 0}
    assert cluster.score(Fullest, make_pod("new", cpu="3")) == {"b": 0}  # it does not fit on a
    refusals: Mapping[str, str] = cluster.refusals(OtherReason, make_pod("new", cpu="1"))
    assert refusals == {"a": "", "b": ""}
    with pytest.raises(PluginError, match="got nan"):
        cluster.score(NotANumber, make_pod())
    with pytest.raises(TypeError, match="Fullest has no method `filter`"):
        cluster.refusals(Fullest, make_pod())
    with pytest.raises(ValueError, match='pod p: there is no node "c"'):
        PluginCluster([make_node("a")], [make_pod("p", node="c")])
