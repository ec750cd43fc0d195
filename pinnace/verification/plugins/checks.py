"""Checks of one plugin on random clusters: what the scheduler requires, and that both forms of the plugin agree.

    random cluster, random pod --> score, filter        valid and finite, scores from 0 to 100, reasons for refused nodes
                                    |                    equal when called again, and from a new object
                                    |                    the pod, the nodes and the table are unchanged
                                    |                    as `score_node` and `filter_node`, the plain forms, for each node
                                    '                    as the declared `Dependency` promises: a ROW by itself gives the same
    5,000 nodes --> seconds

A plugin has two forms if it derives from PerNodeScore and also defines `score`, or from PerNodeFilter and also defines
`filter`. The inherited method calls the plain form for each node, and is compared with the plugin's own.

Not checked: Reserve, Permit, PreBind, Bind and the events of `helps`. A study or a cluster shows those.
"""

import ast
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.fit.table import BoolArray
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.cache.table import SomeNodes
from pinnace.scheduler.framework import (
    Dependency,
    FilterPlugin,
    FloatArray,
    NodeTable,
    PerNodeFilter,
    PerNodeScore,
    Plugin,
    PreFilterPlugin,
    ScorePlugin,
)
from pinnace.scheduler.framework.filtering import BY_ROWS, read_dependency, run_filter, run_pre_filter
from pinnace.scheduler.framework.plugin_errors import ROUNDING, call_plugin
from pinnace.scheduler.framework.profile import METHODS, PluginLoadError, load_plugin_class
from pinnace.scheduler.framework.results import PluginError
from pinnace.study.trace import Generated, generate
from pinnace.verification.plugins.world import (
    PluginCluster,
    describe_pod,
    random_cluster,
    random_pod,
    run_filter_plugin,
    run_score_plugin,
)

TRIALS = 40
"""Number of random clusters."""
NODES, PODS_PER_CLUSTER, PODS_PER_TRIAL = 25, 60, 4
MANY = 5000
"""Nodes of the cluster for measurements."""
CALLS, MEASURING = 20, 2.0
"""Maximum number of measured calls, and seconds for them."""
BLOCKED = 2.0
"""Seconds after which the scheduler interrupts a plugin (docs/scheduler-plugins.md)."""
_CHECKED = ("pre_filter", "filter", "pre_score", "score", "normalize")
_Values = FloatArray | Sequence[tuple[str, ...]] | None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the checks of one plugin."""

    plugin: str
    problems: list[str] = field(default_factory=list)
    """One for each kind of problem. Empty if the plugin is correct."""
    notes: list[str] = field(default_factory=list)
    """What was not checked, and why."""
    pairs: int = 0
    """The number of pairs of pod and node."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The median of a call for MANY nodes, by method."""


class _Found(Exception):
    """A problem. `kind`: problems of one kind are reported once."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def find_plugins(source: str) -> list[str]:
    """Return `FILE.py:CLASS` for each plugin in `FILE.py`: a class at its top level that sets `name`. A source with a class is
    returned as it is. Raise PluginLoadError."""
    path = Path(source)
    if path.suffix != ".py":
        return [source]
    try:
        tree = ast.parse(path.read_text(), source)
    except OSError as error:
        raise PluginLoadError(f"{source}: cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError) as error:
        raise PluginLoadError(f"{source}: {error}") from None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and any(map(_sets_name, node.body))]
    if not classes:
        raise PluginLoadError(f"{source}: no class with an attribute `name`: name one, as in {source}:CLASS")
    return [f"{source}:{node.name}" for node in classes]


def _sets_name(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "name" for target in targets)


def check_plugin(
    plugin: type[Plugin] | str,
    *,
    args: Mapping[str, Any] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    trials: int = TRIALS,
    seed: int = 0,
    measure: bool = False,
) -> Report:
    """Check a plugin, a class or `FILE.py:CLASS`. `args`: from pluginConfig. `labels`: labels that the plugin reads from nodes,
    with possible values. Equal arguments give equal clusters. Raise PluginLoadError if it cannot be constructed."""
    kind = load_plugin_class(plugin) if isinstance(plugin, str) else plugin
    check = _Check(kind, args or {}, labels or {}, seed)
    for trial in range(trials):
        check.run_trial(trial)
    seconds = _measure(check) if measure and not check.problems else {}
    return Report(str(kind.name), list(check.problems.values()), check.notes(), check.pairs, seconds)


class _Check:
    def __init__(self, kind: type[Plugin], args: Mapping[str, Any], labels: Mapping[str, Sequence[str]], seed: int) -> None:
        self.kind = kind
        self.args = args
        self.labels = labels
        self.seed = seed
        self.pairs = 0
        self.problems: dict[str, str] = {}
        """By kind."""
        self._varied = {"score": False, "filter": False}
        """True if the results of a method were not all equal."""
        self._past = generate("past", Generated(nodes=6, hours=1, gpus=0.5, seed=seed)).tasks
        """For plugins that learn."""

    def run_trial(self, trial: int) -> None:
        rng = random.Random(f"{self.seed}/{trial}")
        nodes = 1 if trial == 0 else NODES
        cluster = random_cluster(rng, nodes, PODS_PER_CLUSTER, labels=self.labels, args=self.args)
        for number in range(PODS_PER_TRIAL):
            pod = random_pod(rng, f"new-{number}")
            mask = np.array([rng.random() < 0.7 for _ in range(nodes)], np.bool_)
            where = f"trial {trial} of seed {self.seed}, a pod with {describe_pod(pod)}"
            for method, protocol, check in (
                ("filter", FilterPlugin, self._check_filter),
                ("score", ScorePlugin, self._check_score),
            ):
                plugin = self.create(cluster)
                if isinstance(plugin, protocol):
                    self._guard(method, where, lambda: check(plugin, cluster, pod, mask))  # noqa: B023
            self.pairs += nodes

    def create(self, cluster: PluginCluster) -> Plugin:
        plugin = cluster.create(self.kind)
        if (learn := getattr(plugin, "learn", None)) is not None:
            learn(self._past)
        return plugin

    def notes(self) -> list[str]:
        kind: Any = self.kind
        notes = []
        for method, plain, base in (("score", "score_node", PerNodeScore), ("filter", "filter_node", PerNodeFilter)):
            if not hasattr(kind, method):
                continue
            if not hasattr(kind, plain):
                notes.append(f"{method} has no plain form to compare with: derive from {base.__name__}, and define {plain}")
            elif not _has_both(kind, method, base):
                notes.append(f"{plain} is called for each node; a method `{method}` with arrays is faster")
            if not self._varied[method] and not self.problems:
                same = "all scores of a pod were equal" if method == "score" else "no node was refused"
                notes.append(f"{same}: if the plugin reads labels of nodes, set them, as in --label disk=ssd,hdd")
        methods = {name for _, name in METHODS.values()} | {"unreserve"}
        if others := sorted(name for name in methods - set(_CHECKED) if hasattr(kind, name)):
            notes.append(f"not checked: {', '.join(others)}")
        return notes

    def _guard(self, method: str, where: str, check: Callable[[], None]) -> None:
        """Record what the check raises."""
        try:
            check()
        except PluginError as error:
            self.problems.setdefault(f"{method}/{error.point}", f"{error} ({where})")
        except _Found as error:
            self.problems.setdefault(error.kind, f"{error} ({where})")

    # --- one pod on one cluster

    def _check_score(self, plugin: Any, cluster: PluginCluster, pod: Pod, mask: BoolArray) -> None:
        nodes = cluster.nodes
        feasible = mask & cluster.feasible_nodes(PodInfo(pod))
        if not feasible.any():
            return

        def run(scorer: Any, table: NodeTable, rows: BoolArray) -> FloatArray | None:
            scores = run_score_plugin(scorer, cluster.new_state(), PodInfo(pod), table, rows.copy())
            return None if scores is None else np.where(rows, scores, 0.0)

        scores = self._call("score", cluster, pod, lambda: run(plugin, nodes, feasible))
        self._repeat("score", scores, run(plugin, nodes, feasible), run(self.create(cluster), nodes, feasible), nodes)
        if scores is None:
            return
        self._varied["score"] |= len(np.unique(scores[feasible])) > 1
        if _has_both(self.kind, "score", PerNodeScore):
            arguments = plugin, cluster.new_state(), PodInfo(pod), nodes
            plain = call_plugin(plugin, "score_node", PerNodeScore.score, *arguments, feasible)
            for row in np.flatnonzero(feasible & ~(np.abs(scores - plain) <= ROUNDING)).tolist():
                raise _Found("forms", f"node {nodes.names[row]}: score gives {scores[row]:g}, score_node {plain[row]:g}")
        if read_dependency(plugin, "score_depends_on") in BY_ROWS and not hasattr(plugin, "normalize"):
            for row in np.flatnonzero(feasible).tolist():
                alone = run(self.create(cluster), SomeNodes(nodes, slice(row, row + 1)), feasible[row : row + 1])
                if alone is None or abs(alone[0] - scores[row]) > ROUNDING:
                    raise _Found("rows", _not_by_rows(plugin, "score_depends_on", nodes.names[row]))

    def _check_filter(self, plugin: Any, cluster: PluginCluster, pod: Pod, mask: BoolArray) -> None:
        nodes = cluster.nodes

        def run(filterer: Any, table: NodeTable) -> list[tuple[str, ...]]:
            return run_filter_plugin(filterer, cluster.new_state(), PodInfo(pod), table)

        reasons = self._call("filter", cluster, pod, lambda: run(plugin, nodes))
        self._repeat("filter", reasons, run(plugin, nodes), run(self.create(cluster), nodes), nodes)
        self._varied["filter"] |= any(reasons)
        if _has_both(self.kind, "filter", PerNodeFilter) and not isinstance(plugin, PreFilterPlugin):
            arguments = plugin, cluster.new_state(), PodInfo(pod), nodes
            plain = call_plugin(plugin, "filter_node", PerNodeFilter.filter, *arguments)
            for row, passed in enumerate(plain.passed.tolist()):
                expected = () if passed else plain.reasons_at(row)
                if expected != reasons[row]:
                    said = [", ".join(item) or "passes" for item in (reasons[row], expected)]
                    raise _Found("filter forms", f"node {nodes.names[row]}: filter says {said[0]!r}, filter_node {said[1]!r}")
        if read_dependency(plugin, "filter_depends_on") in BY_ROWS:
            for row in range(len(nodes)):
                if run(self.create(cluster), SomeNodes(nodes, slice(row, row + 1))) != [reasons[row]]:
                    raise _Found("filter rows", _not_by_rows(plugin, "filter_depends_on", nodes.names[row]))

    def _call(self, method: str, cluster: PluginCluster, pod: Pod, call: Callable[[], Any]) -> Any:
        """Call the plugin, and check that it changes nothing."""
        nodes, before = cluster.nodes, pod.SerializeToString(deterministic=True)
        objects = [node.SerializeToString(deterministic=True) for node in nodes.raw]
        amounts = {name: (nodes.free(name).copy(), nodes.allocatable(name).copy()) for name in ("cpu", "memory", "pods")}
        began = perf_counter()
        result = call()
        if (took := perf_counter() - began) > BLOCKED:
            raise _Found(
                "slow", f"{method} takes {took:.1f} s for {len(nodes)} nodes; the scheduler interrupts it after {BLOCKED:g} s"
            )
        if pod.SerializeToString(deterministic=True) != before:
            raise _Found("pod changed", f"{method} changes the pod; use copy.deepcopy(pod) to change a copy")
        if [node.SerializeToString(deterministic=True) for node in nodes.raw] != objects:
            raise _Found("node changed", f"{method} changes a node")
        for name, (free, allocatable) in amounts.items():
            if not (np.array_equal(nodes.free(name), free) and np.array_equal(nodes.allocatable(name), allocatable)):
                raise _Found("table changed", f"{method} changes the array of {name}; use nodes.free({name!r}).copy()")
        return result

    def _repeat(self, method: str, first: _Values, again: _Values, other: _Values, nodes: NodeTable) -> None:
        for second, what in ((again, "a second call"), (other, "a new object of the class")):
            if (first is None) is not (second is None):
                raise _Found(f"{method} again", f"{method} skips the pod once, but not in {what}")
            if first is None or second is None:
                continue
            for row, (one, two) in enumerate(zip(first, second, strict=True)):
                if one != two:
                    raise _Found(
                        f"{method} again",
                        f"node {nodes.names[row]}: {method} gives {one}, but {two} in {what}: it must be the same",
                    )


def _has_both(kind: Any, method: str, base: type) -> bool:
    plain = f"{method}_node"
    return hasattr(kind, plain) and getattr(kind, method) is not getattr(base, method)


def _not_by_rows(plugin: Any, attribute: str, node: str) -> str:
    declared: Dependency = getattr(plugin, attribute)
    return f"{attribute} is {declared.name}, but node {node} alone gives another result than among all nodes"


def _measure(check: _Check) -> dict[str, float]:
    """Return the median seconds of a call for MANY nodes."""
    rng = random.Random(check.seed)
    cluster = random_cluster(rng, MANY, 2 * MANY, labels=check.labels, args=check.args)
    plugin: Any = check.create(cluster)
    seconds: dict[str, float] = {}
    for method in ("filter", "score"):
        if not hasattr(plugin, method):
            continue
        times: list[float] = []
        while len(times) < CALLS and sum(times) < MEASURING:
            info = PodInfo(random_pod(rng, f"new-{len(times)}"))
            state, feasible = cluster.new_state(), cluster.feasible_nodes(info)
            began = perf_counter()
            if method == "score":
                run_score_plugin(plugin, state, info, cluster.nodes, feasible)
            elif not isinstance(plugin, PreFilterPlugin) or run_pre_filter(plugin, state, info, cluster.nodes) is None:
                run_filter(plugin, state, info, cluster.nodes)
            times.append(perf_counter() - began)
        seconds[method] = sorted(times)[len(times) // 2]
    return seconds


def format_report(report: Report) -> list[str]:
    """Return the report in lines, without the problems."""
    lines = [f"{report.plugin}: {report.pairs:,} pairs of pod and node"]
    lines += [
        f"  {method}: {1000 * seconds:.2f} ms for {MANY:,} nodes, at most {1 / max(seconds, 1e-6):,.0f} pods/s"
        for method, seconds in report.seconds.items()
    ]
    return lines + [f"  {note}" for note in report.notes]
