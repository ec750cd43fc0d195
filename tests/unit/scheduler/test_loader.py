"""Plugins of one's own are checked when they are loaded."""

from pathlib import Path
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.scheduler.framework import Plugin
from pinnace.scheduler.framework.profile import Offline, PluginLoadError, create_plugin, load_plugin_class
from tests.builders import make_pod

GOOD = """
class Good:
    name = "Good"
    def filter(self, state, pod, nodes): ...
    def score(self, state, pod, nodes, feasible, extra=1): ...
"""


G = "class Good:\n    name = 'G'\n    "


def load(spec: str, **args: object) -> Plugin:
    return create_plugin(load_plugin_class(spec), spec, args, Offline())


def test_module_or_a_file(tmp_path: Path) -> None:
    assert load("pinnace.scheduler.plugins.nodes:NodeName").name == "NodeName"
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
        ("class Good:\n    name = 'G'\n    def __init__(self): raise KeyError('x')", "Good", r"Good\(\) failed: KeyError"),
        ("class Good:\n    name = 'G'\n    def filter(self, pod): ...", "Good", r"filter must take \(state, pod, nodes\)"),
        ("class Good:\n    name = 'G'\n    score = 5", "Good", r"score must take \(state, pod, nodes, feasible\)"),
        (f"{G}def __init__(self, args): raise ValueError('a.b: no')", "Good", ':Good": a.b: no'),
        (f"{G}def reserve(self, state, pod, node): ...", "Good", "has reserve, but reserve and unreserve"),
        (f"{G}def bind(self, state, pod, node, fence): ...", "Good", "bind must be a coroutine"),
        (f"{G}async def score(self, state, pod, nodes, feasible): ...", "Good", "must be an ordinary"),
        (
            "from scheduler.framework import PerNodeFilter\nclass Good(PerNodeFilter):\n    name = 'G'",
            "Good",
            "abstract method '?filter_node",
        ),
    ],
)
def test_loader_names_the_problem_of_a_plugin(tmp_path: Path, source: str, class_name: str, message: str) -> None:
    file = tmp_path / "my_plugin.py"
    file.write_text(source)
    with pytest.raises(PluginLoadError, match=message):
        load(f"{file}:{class_name}")


@pytest.mark.parametrize("spec", ["nothing", ":Class", "module:", "no.such.module:Class"])
def test_specs_that_lead_nowhere(spec: str) -> None:
    with pytest.raises(PluginLoadError):
        load(spec)


def test_constructor_gets_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "my_plugin.py"
    method = "def pre_enqueue(self, pod): ..."
    file.write_text(f"{G}def __init__(self, handle, args): self.got = handle, args\n    {method}")
    handle = Offline()
    made = create_plugin(load_plugin_class(f"{file}:Good"), "", {"a": 1}, handle)
    shown, args = vars(made)["got"]
    assert shown.waiting is handle.waiting and args == {"a": 1}
    file.write_text(f"{G}{method}")
    load(f"{file}:Good")
    with pytest.raises(PluginLoadError, match="accepts no args"):
        load(f"{file}:Good", a=1)


class _Stores(Offline):
    def __init__(self, *pods: Pod) -> None:
        super().__init__()
        self._pods = {pod.metadata.name: pod for pod in pods}

    def objects(self, resource: Any) -> Any:
        return self._pods


def test_objects_are_shown_to_plugins_to_read(tmp_path: Path) -> None:
    file = tmp_path / "my_plugin.py"
    file.write_text(
        "from pinnace.api.resources import PODS\n"
        "class Curious:\n"
        "    name = 'Curious'\n"
        "    def __init__(self, handle):\n"
        "        self.stored = handle.objects(PODS)\n"
        "        self.index = handle.index(PODS, lambda pod: pod.metadata.labels.get('app', ''))\n"
        "    def filter(self, state, pod, nodes): ...\n"
    )
    pod = make_pod("p").label("app", "web").build()
    plugin: Any = create_plugin(load_plugin_class(f"{file}:Curious"), "Curious", {}, _Stores(pod))
    for shown in (plugin.stored["p"], plugin.index.under("web")[pod.metadata.uid]):
        assert shown == pod
        with pytest.raises(KeyError):
            _ = shown.metadata.labels["prize"]
    assert set(plugin.index.keys) == {"web"} and not plugin.index.under("other") and dict(pod.metadata.labels) == {"app": "web"}
