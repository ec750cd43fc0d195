"""Plugins of one's own are checked when they are loaded."""

from pathlib import Path

import pytest

from scheduler.framework.loader import PluginLoadError, load

GOOD = """
class Good:
    name = "Good"
    def filter(self, state, pod, nodes): ...
    def score(self, state, pod, nodes, feasible, extra=1): ...
"""


def test_a_module_or_a_file(tmp_path: Path) -> None:
    assert load("scheduler.plugins.node_name:NodeName").name == "NodeName"
    file = tmp_path / "my_plugin.py"
    file.write_text(GOOD)
    assert load(f"{file}:Good").name == "Good"


@pytest.mark.parametrize(
    ("source", "class_name", "message"),
    [
        (GOOD, "Bad", "has no class Bad"),
        (GOOD, "not a name", "expected module:Class"),
        ("raise RuntimeError('boom')", "Good", "cannot import .*: RuntimeError: boom"),
        ("class Good:\n    name = 'Good'", "Good", "has none of the methods pre_enqueue"),
        ("class Good:\n    def filter(self, state, pod, nodes): ...", "Good", "needs an attribute `name`"),
        ("class Good:\n    def __init__(self): raise KeyError('x')", "Good", r"Good\(\) failed: KeyError"),
        ("class Good:\n    name = 'G'\n    def filter(self, pod): ...", "Good", r"filter must take \(state, pod, nodes\)"),
        ("class Good:\n    name = 'G'\n    score = 5", "Good", r"score must take \(state, pod, nodes, feasible\)"),
        (
            "from scheduler.framework import PerNodeFilter\nclass Good(PerNodeFilter):\n    name = 'G'",
            "Good",
            "abstract method '?filter_node",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, source: str, class_name: str, message: str) -> None:
    file = tmp_path / "my_plugin.py"
    file.write_text(source)
    with pytest.raises(PluginLoadError, match=message):
        load(f"{file}:{class_name}")


@pytest.mark.parametrize("spec", ["nothing", ":Class", "module:", "no.such.module:Class"])
def test_specs_that_lead_nowhere(spec: str) -> None:
    with pytest.raises(PluginLoadError):
        load(spec)
