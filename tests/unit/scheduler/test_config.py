"""The configuration file: read, checked, written back; and plugins of one's own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pinnace.api.resources import PRIORITY_CLASSES
from pinnace.scheduler import config
from pinnace.scheduler.config import (
    Configuration,
    ConfigurationError,
    ProfileConfiguration,
    build_frameworks,
    check_configuration,
    parse_configuration,
    required_resources,
    with_plugin,
    write_configuration,
)
from pinnace.scheduler.framework import Handle, PodInfo, Status
from pinnace.scheduler.framework.profile import Offline, Point, implements_point
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.plugins.registry import DEFAULT_PLUGINS
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "plugins" / "cheapest_node.py") + ":CheapestNode"
GATE = f"{__name__}:Gate"


class Gate:
    """Wants all that a constructor can have."""

    name = "Gate"
    needs = (PRIORITY_CLASSES,)

    def __init__(self, args: dict[str, Any], handle: Handle) -> None:
        if args.get("open", True) not in (True, False):
            raise ValueError("open: expected true or false")
        self.open = args.get("open", True)
        self.handle = handle

    def pre_enqueue(self, pod: PodInfo) -> bool:
        return bool(self.open)

    def permit(self, state: Any, pod: PodInfo, node: str) -> Status | None:
        return None


def profile(text: str, config: str = "[]") -> ProfileConfiguration:
    [result] = parse_configuration(f"{HEAD}profiles: [{{plugins: {{{text}}}, pluginConfig: {config}}}]").profiles
    return result


def test_everything_has_a_default() -> None:
    assert parse_configuration(HEAD) == Configuration()
    [default] = Configuration().profiles
    assert default.scheduler_name == "default-scheduler"
    assert default.plugins and set(default.plugins) == set(DEFAULT_PLUGINS)


def test_every_field_is_read() -> None:
    config = parse_configuration(
        HEAD + "leaderElection: {resourceName: second}\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 20\n"
        "profiles: [{schedulerName: mine}]",
        seed=7,
    )
    assert config.election == "second" and config.seed == 7
    assert [item.scheduler_name for item in config.profiles] == ["mine"]
    assert (config.initial_backoff, config.max_backoff) == (2.0, 20.0)


class TestPlugins:
    def test_are_disabled_and_weighed_by_point(self) -> None:
        result = profile(
            "multiPoint: {disabled: [{name: NodeName}]}, filter: {disabled: [{name: NodePorts}]}, "
            'score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 5}]}'
        )
        assert "NodeName" not in result.plugins
        assert "NodePorts" not in result.points[Point.FILTER] and "NodePorts" in result.points[Point.PRE_FILTER]
        assert "TaintToleration" in result.points[Point.FILTER]
        assert result.weights == {"NodeResourcesFit": 5.0}

    def test_disabled_plugin_can_be_enabled_at_one_point(self) -> None:
        result = profile(
            "multiPoint: {disabled: [{name: NodeResourcesFit}, {name: TaintToleration}]}, "
            "preScore: {enabled: [{name: TaintToleration}]}, score: {enabled: [{name: TaintToleration}]}"
        )
        assert result.weights["TaintToleration"] == 1.0
        assert "TaintToleration" not in result.points[Point.FILTER] and "NodeResourcesFit" not in result.plugins

    def test_weight_that_is_left_out_is_one(self) -> None:
        """That of the point counts before the one for all points, also where it is left out; who is not named keeps his own."""
        result = profile(
            "multiPoint: {enabled: [{name: TaintToleration}, {name: NodeResourcesFit, weight: 7}, "
            "{name: NodeResourcesBalancedAllocation, weight: 8}, {name: ImageLocality, weight: 6}]}, "
            "score: {enabled: [{name: NodeResourcesBalancedAllocation, weight: 9}, {name: ImageLocality}, "
            "{name: NodeAffinity}]}"
        )
        assert result.weights == Configuration().profiles[0].weights | {
            "TaintToleration": 1.0,
            "NodeResourcesFit": 7.0,
            "NodeResourcesBalancedAllocation": 9.0,
            "ImageLocality": 1.0,
            "NodeAffinity": 1.0,
        }
        assert result.weights["PodTopologySpread"] == 2.0

    def test_plugins_without_default_score_score_when_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        defaults = dict(DEFAULT_PLUGINS) | {"NodeResourcesFit": (DEFAULT_PLUGINS["NodeResourcesFit"][0], 0.0)}
        monkeypatch.setattr(config, "DEFAULT_PLUGINS", defaults)
        assert "NodeResourcesFit" not in profile("").weights and profile("") == ProfileConfiguration()
        assert profile("score: {enabled: [{name: NodeResourcesFit}]}").weights["NodeResourcesFit"] == 1.0
        assert profile("multiPoint: {enabled: [{name: NodeResourcesFit}]}").weights["NodeResourcesFit"] == 1.0

    def test_run_in_the_order_of_kubernetes(self) -> None:
        """What a point names and multiPoint has, the rest of multiPoint, what only the point has."""
        result = profile(
            'multiPoint: {disabled: [{name: "*"}], enabled: [{name: PrioritySort}, {name: NodeName}, {name: NodePorts}, '
            "{name: NodeUnschedulable}, {name: DefaultBinder}]}, "
            "preFilter: {enabled: [{name: NodeAffinity}]}, "
            "filter: {enabled: [{name: NodeAffinity}, {name: NodeUnschedulable}, {name: NodePorts}]}"
        )
        assert result.points[Point.FILTER] == ["NodeUnschedulable", "NodePorts", "NodeName", "NodeAffinity"]

    def test_multi_point_replaces_in_place(self) -> None:
        result = profile(f'multiPoint: {{enabled: [{{name: "{GATE}"}}, {{name: NodeUnschedulable}}]}}')
        order = [name for name in DEFAULT_PLUGINS if "pre_filter" in dir(DEFAULT_PLUGINS[name][0])]
        assert list(result.points[Point.PRE_FILTER]) == order
        assert list(result.points[Point.PRE_ENQUEUE])[-1] == "Gate" and result.points[Point.PERMIT] == ["Gate"]

    def test_classic_names(self) -> None:
        result = profile(
            "multiPoint: {disabled: [{name: PodFitsHostPorts}]}, score: {enabled: [{name: LeastRequestedPriority, weight: 4}]}"
        )
        assert "NodePorts" not in result.plugins and result.weights["NodeResourcesFit"] == 4.0

    def test_plugins_from_files_are_configured(self) -> None:
        result = profile(f'score: {{enabled: [{{name: "{EXAMPLE}", weight: 9}}]}}')
        assert result.weights["CheapestNode"] == 9.0 and result.sources["CheapestNode"].spec == EXAMPLE
        frameworks = build_frameworks(with_plugin(Configuration(), EXAMPLE), Offline())
        cache = cache_of(make_node("dear").label("price", "50"), make_node("cheap").label("price", "1"), make_node("unknown"))
        assert schedule_one(info(make_pod("a").req(cpu=1)), NodeSelector(cache, frameworks["default-scheduler"], 0)) == Placed(
            "cheap"
        )

    def test_take_part_where_they_have_a_method(self) -> None:
        [all_points] = Configuration().profiles
        for point, names in all_points.points.items():
            expected = [name for name, (plugin, _) in DEFAULT_PLUGINS.items() if implements_point(plugin, point)]
            if point is Point.SCORE:
                expected = [name for name in expected if DEFAULT_PLUGINS[name][1]]
            assert list(names) == expected


class TestPluginConfig:
    def test_reaches_the_plugin(self) -> None:
        text = f"""profiles:
- plugins: {{multiPoint: {{enabled: [{{name: "{GATE}"}}]}}}}
  pluginConfig: [{{name: Gate, args: {{apiVersion: kubescheduler.config.k8s.io/v1, kind: GateArgs, open: false}}}}]
"""
        config = parse_configuration(HEAD + text)
        assert config.profiles[0].args == {"Gate": {"open": False}}
        assert build_frameworks(config, Offline())["default-scheduler"].find_gate(info(make_pod("a"))) is not None
        assert parse_configuration(write_configuration(config)).profiles[0].args["Gate"] == {"open": False}

    def test_needs_are_collected_from_the_plugins_in_use(self) -> None:
        assert set(required_resources(with_plugin(Configuration(), GATE))) == {
            *required_resources(Configuration()),
            PRIORITY_CLASSES,
        }
        configured_only = parse_configuration(f'{HEAD}profiles: [{{pluginConfig: [{{name: "{GATE}", args: {{open: true}}}}]}}]')
        assert required_resources(configured_only) == required_resources(Configuration())

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ("{}", "pluginConfig: expected a list"),
            ("[{name: Nonsense}]", 'pluginConfig[0].name: no plugin "Nonsense"'),
            ("[{name: NodePorts, args: []}]", "pluginConfig[0].args: expected an object"),
            ("[{name: NodePorts}, {name: PodFitsPorts}]", "pluginConfig[1].name: NodePorts is configured twice"),
            ("[{name: NodePorts, args: {kind: NodeNameArgs}}]", "args.kind: expected NodePortsArgs"),
            ("[{name: NodePorts, args: {apiVersion: v1}}]", "args.apiVersion: expected kubescheduler.config.k8s.io/v1"),
        ],
    )
    def test_mistakes_are_named(self, config: str, message: str) -> None:
        with pytest.raises(ConfigurationError) as raised:
            profile("", config)
        assert message in str(raised.value)

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ("[{name: NodePorts, args: {a: 1}}]", 'profile default-scheduler: plugin "NodePorts": accepts no args'),
            (f'[{{name: "{GATE}", args: {{open: maybe}}}}]', f'plugin "{GATE}": open: expected true or false'),
        ],
    )
    def test_args_are_checked_by_the_plugin(self, config: str, message: str) -> None:
        text = f'profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: "{GATE}"}}]}}}}, pluginConfig: {config}}}]'
        with pytest.raises(ConfigurationError) as raised:
            check_configuration(parse_configuration(HEAD + text))
        assert message in str(raised.value)


class TestProfiles:
    def test_several(self) -> None:
        config = parse_configuration(
            HEAD + "profiles: [{schedulerName: default-scheduler}, "
            "{schedulerName: packing, plugins: {filter: {disabled: [{name: NodePorts}]}}}]"
        )
        frameworks = build_frameworks(config, Offline())
        assert list(frameworks) == ["default-scheduler", "packing"]
        cache = cache_of(make_node("n"), placed=[make_pod("there").host_port(80).node("n")])
        pod = info(make_pod("a").host_port(80))
        assert schedule_one(pod, NodeSelector(cache, frameworks["packing"], 0)) == Placed("n")

    def test_names_are_unique(self) -> None:
        with pytest.raises(ConfigurationError, match=r"profiles\[1\].schedulerName: duplicate schedulerName default-scheduler"):
            parse_configuration(HEAD + "profiles: [{schedulerName: default-scheduler}, {schedulerName: default-scheduler}]")

    @pytest.mark.parametrize(("profiles", "nameless"), [("{}, {schedulerName: a}", 0), ("{schedulerName: a}, {}", 1)])
    def test_unnamed_profile_of_several_is_refused(self, profiles: str, nameless: int) -> None:
        with pytest.raises(ConfigurationError, match=rf"profiles\[{nameless}\].schedulerName: expected text"):
            parse_configuration(f"{HEAD}profiles: [{profiles}]")

    def test_queue_is_sorted_alike(self) -> None:
        text = f"""profiles:
- schedulerName: default-scheduler
- schedulerName: other
  plugins: {{queueSort: {{disabled: [{{name: "*"}}], enabled: [{{name: "{__name__}:Lifo"}}]}}}}
"""
        with pytest.raises(ConfigurationError, match="queueSort must be the same in default-scheduler and other"):
            check_configuration(parse_configuration(HEAD + text))


class Lifo:
    name = "Lifo"

    def sort_key(self, pod: PodInfo, since: float) -> tuple[float]:
        return (-since,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "podMaxBackoffSeconds: 2.5\nleaderElection: {resourceName: other}",
        'profiles: [{plugins: {multiPoint: {disabled: [{name: "*"}], enabled: [{name: PrioritySort}, '
        "{name: DefaultBinder}]}}}]",
        "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {filter: {disabled: [{name: NodePorts}]}, "
        "score: {enabled: [{name: TaintToleration, weight: 9}]}}}]",
        f"""profiles:
- plugins:
    score: {{enabled: [{{name: "{EXAMPLE}", weight: 2}}]}}
    permit: {{enabled: [{{name: "{GATE}"}}]}}
""",
    ],
)
def test_written_configuration_reads_the_same(text: str) -> None:
    config = check_configuration(parse_configuration(HEAD + text))
    again = parse_configuration(write_configuration(config))
    assert write_configuration(again) == write_configuration(config)
    for read, original in zip(again.profiles, config.profiles, strict=True):
        assert (read.scheduler_name, read.points, read.weights) == (original.scheduler_name, original.points, original.weights)
    assert (again.election, again.max_backoff) == (config.election, config.max_backoff)


def test_written_configuration_contains_defaults() -> None:
    document = yaml.safe_load(write_configuration(Configuration()))
    [written] = document["profiles"]
    assert written["schedulerName"] == "default-scheduler" and document["podMaxBackoffSeconds"] == 10
    assert {"name": "TaintToleration", "weight": 3} in written["plugins"]["score"]["enabled"]
    assert written["plugins"]["bind"] == {"enabled": [{"name": "DefaultBinder"}]}


@pytest.mark.parametrize(
    "text",
    [
        "profiles:\nextenders:\nleaderElection:\npodMaxBackoffSeconds:",
        "profiles: []",
        "profiles: [{schedulerName: , plugins: , pluginConfig: }]",
        "profiles: [{plugins: {score: {enabled: , disabled: }, filter: }}]",
        "profiles: [{pluginConfig: [{name: NodeAffinity, args: }]}]",
        "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: }}]}]",
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: , scoringStrategy: {resources: }}}]}]",
        "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {resources: "
        "[{name: cpu, weight: }, {name: memory}]}}}]}]",
    ],
)
def test_null_and_empty_settings_are_defaults(text: str) -> None:
    """As Kubernetes reads it: a key whose lines were commented out."""
    assert write_configuration(check_configuration(parse_configuration(HEAD + text))) == write_configuration(Configuration())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: Pod", "expected apiVersion kubescheduler.config.k8s.io/v1"),
        ("[]", "the document: expected fields"),
        ("{", "line 2: invalid YAML"),
        (HEAD + "parallelism: 16", "parallelism: unknown field; supported: apiVersion"),
        (HEAD + "leaderElection: {leaseDuration: 15s}", "leaderElection.leaseDuration: unknown field"),
        (HEAD + "profiles: [{plugins: {blind: {}}}]", "profiles[0].plugins.blind: unknown field"),
        (HEAD + "profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]", 'no plugin "Nonsense"; valid names are'),
        (HEAD + "profiles: [{plugins: {filter: {disabled: [{name: Nonsense}]}}}]", 'no plugin "Nonsense"; valid names are'),
        (HEAD + "profiles: [{plugins: {score: {enabled: [{name: NodeName, weight: -1}]}}}]", "weight: expected an integer"),
        (HEAD + "profiles: [{plugins: {score: {enabled: [{name: NodeName}]}}}]", "NodeName does not implement score"),
        (
            HEAD + "profiles: [{plugins: {filter: {enabled: [{name: NodePorts}, {name: PodFitsPorts}]}}}]",
            "NodePorts is enabled twice",
        ),
        (HEAD + "profiles: [{plugins: {score: {enabled: {}}}}]", "score.enabled: expected a list"),
        (HEAD + 'profiles: [{plugins: {score: {enabled: [{name: "no.such:Plugin"}]}}}]', "cannot import no.such"),
        (HEAD + "profiles: [{schedulerName: 5}]", "profiles[0].schedulerName: expected text"),
        (
            HEAD + "podInitialBackoffSeconds: 20",
            "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (20), got 10",
        ),
        (HEAD + "podMaxBackoffSeconds: soon", "podMaxBackoffSeconds: expected a number of seconds"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(text)
    assert message in str(raised.value)


class Typo:
    name = "Typo"

    def scores(self) -> None: ...


def test_plugin_that_would_never_be_asked_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"Typo implements no extension point: it has no method pre_enqueue,.* score,"):
        parse_configuration(HEAD + f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: '{__name__}:Typo'}}]}}}}}}]")


def test_plugin_of_the_command_line_that_takes_part_in_nothing_is_refused() -> None:
    """It was accepted, and did nothing."""
    with pytest.raises(ConfigurationError, match="--plugin: Typo implements no extension point: it has no method pre_enqueue"):
        with_plugin(Configuration(), f"{__name__}:Typo")


def test_plugins_that_make_no_profile_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="CheapestNode is enabled twice"):
        with_plugin(with_plugin(Configuration(), EXAMPLE), EXAMPLE)
    with pytest.raises(ConfigurationError, match="duplicate plugin name NodeName, also used by NodeName"):
        with_plugin(Configuration(), "pinnace.scheduler.plugins.nodes:NodeName")
    with pytest.raises(ConfigurationError, match="must sort the queue"):
        check_configuration(
            parse_configuration(HEAD + "profiles: [{plugins: {multiPoint: {disabled: [{name: PrioritySort}]}}}]")
        )
