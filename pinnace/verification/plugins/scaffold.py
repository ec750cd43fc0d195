"""A new plugin as files: the plugin in both forms, its test, and a study that compares it with the default scores."""

import importlib.util
import keyword
import re
from pathlib import Path

from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS, OPTIONAL_PLUGINS

SCORE, FILTER = "score", "filter"
MAX_NAME = 60
"""Characters of a name: the name of the profile is a DNS label."""

_SCORE_PLUGIN = '''"""{NAME}: a score plugin of the scheduler. `pinnace plugin test {MODULE}.py` checks it."""

import numpy as np

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.framework import BoolArray, CycleState, Dependency, FloatArray, NodeTable
from pinnace.scheduler.framework import NodeView, PerNodeScore, PodInfo


class {NAME}(PerNodeScore):
    """Prefers nodes whose CPU is requested most."""

    name = "{NAME}"
    score_depends_on = Dependency.FREE_RESOURCES  # what the score of a node is computed from; without the line: anything

    def score_node(self, pod: Pod, node: NodeView) -> float:
        """The plain form, for one node: 0 (worst) to 100."""
        return min(100 * node.used("cpu") / max(node.allocatable("cpu"), 1), 100)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeTable, feasible: BoolArray) -> FloatArray:
        """The vector form, for all nodes: faster, and optional. `pinnace plugin test` compares it with the plain form."""
        used = nodes.allocatable("cpu") - nodes.free("cpu")
        return np.minimum(100 * used / np.maximum(nodes.allocatable("cpu"), 1), 100)
'''

_FILTER_PLUGIN = '''"""{NAME}: a filter plugin of the scheduler. `pinnace plugin test {MODULE}.py` checks it."""

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.framework import CycleState, Dependency, FilterResult, NodeTable, NodeView, PerNodeFilter, PodInfo

RESERVE = 0.1
REASON = "node(s) had too little free CPU in reserve"


class {NAME}(PerNodeFilter):
    """Keeps a tenth of the CPU of each node free."""

    name = "{NAME}"
    filter_depends_on = Dependency.FREE_RESOURCES  # what the result for a node is computed from; without the line: anything

    def filter_node(self, pod: Pod, node: NodeView) -> str | None:
        """The plain form, for one node: None if it passes, or the reason. Equal reasons are counted in the event of the pod."""
        return None if node.free("cpu") >= RESERVE * node.allocatable("cpu") else REASON

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeTable) -> FilterResult:
        """The vector form, for all nodes: faster, and optional. `pinnace plugin test` compares it with the plain form."""
        return FilterResult.refusing(nodes.free("cpu") < RESERVE * nodes.allocatable("cpu"), REASON)
'''

_SCORE_TEST = """from {MODULE} import {NAME}

from pinnace.verification.plugins import PluginCluster, check_plugin, make_node, make_pod

CLUSTER = PluginCluster(
    nodes=[make_node("empty", cpu="8"), make_node("half", cpu="8")],
    pods=[make_pod("other", cpu="4", node="half")],
)


def test_scores_of_an_empty_and_a_used_node() -> None:
    assert CLUSTER.score({NAME}, make_pod("new", cpu="1")) == {{"empty": 0, "half": 50}}


def test_plugin_is_valid_and_its_forms_agree() -> None:
    assert check_plugin({NAME}, trials=10).problems == []
"""

_FILTER_TEST = """from {MODULE} import REASON, {NAME}

from pinnace.verification.plugins import PluginCluster, check_plugin, make_node, make_pod

CLUSTER = PluginCluster(
    nodes=[make_node("empty", cpu="8"), make_node("full", cpu="8")],
    pods=[make_pod("other", cpu="7500m", node="full")],
)


def test_node_without_a_reserve_is_refused() -> None:
    assert CLUSTER.refusals({NAME}, make_pod("new", cpu="100m")) == {{"empty": "", "full": REASON}}


def test_plugin_is_valid_and_its_forms_agree() -> None:
    assert check_plugin({NAME}, trials=10).problems == []
"""

_PROFILES = """# The policies of the study, each a profile of the scheduler.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default
- schedulerName: {PROFILE}
  plugins:
{PLUGINS}
"""
_SCORE_ENABLED = (
    '    score: {{disabled: [{{name: "*"}}], enabled: [{{name: "{MODULE}.py:{NAME}"}}]}}  # instead of the default scores'
)
_FILTER_ENABLED = '    multiPoint: {{enabled: [{{name: "{MODULE}.py:{NAME}"}}]}}  # beside the default plugins'

_STUDY = """# pinnace study run {FOLDER}/study.yaml
name: {PROFILE}
seeds: 1..3
profiles: profiles.yaml
traces:
- name: day  # services and jobs that arrive and end, as pinnace.study.trace.Generated makes them
  format: generated
  generate: {{nodes: 10, hours: 12, load: 0.9, high: 0.1}}
"""


class ScaffoldError(Exception):
    """The plugin cannot be written. The message says why."""


def write_plugin(name: str, kind: str = SCORE, folder: Path | None = None) -> list[Path]:
    """Write the files of a plugin, and return their paths. `folder`: by default, the name in lower case.

    Raise ScaffoldError.
    """
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(name) or len(name) > MAX_NAME:
        raise ScaffoldError(f'"{name}" is no name of a plugin: expected the name of a class, such as FullestFirst')
    if name in DEFAULT_PLUGINS or name in OPTIONAL_PLUGINS:
        raise ScaffoldError(f"{name} is a plugin of the scheduler: choose another name")
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)
    module, profile = "_".join(words).lower(), "-".join(words).lower()
    if importlib.util.find_spec(module) is not None or keyword.iskeyword(module):
        raise ScaffoldError(f"a Python module has the name {module}: choose another name")
    target = folder or Path(module)
    texts = (
        {f"{module}.py": _SCORE_PLUGIN, f"test_{module}.py": _SCORE_TEST}
        if kind == SCORE
        else {f"{module}.py": _FILTER_PLUGIN, f"test_{module}.py": _FILTER_TEST}
    )
    enabled = (_SCORE_ENABLED if kind == SCORE else _FILTER_ENABLED).format(MODULE=module, NAME=name)
    values = {"NAME": name, "MODULE": module, "PROFILE": profile, "PLUGINS": enabled, "FOLDER": target}
    files = {
        target / file: text.format(**values)
        for file, text in (texts | {"profiles.yaml": _PROFILES, "study.yaml": _STUDY}).items()
    }
    if present := [path for path in files if path.exists()]:
        raise ScaffoldError(f"{present[0]} already exists; nothing was written")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text)
    except OSError as error:
        raise ScaffoldError(f"{error.filename}: cannot be written: {error.strerror}") from error
    return list(files)
