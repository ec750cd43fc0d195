"""The configuration file, and plugins of one's own."""

from pathlib import Path

import pytest

from scheduler.config import Configuration, ConfigurationError, check, default_plugins, parse, with_plugin
from scheduler.cycle import Placed, schedule_one
from scheduler.framework.runtime import Framework
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EXAMPLE = str(Path(__file__).parents[3] / "examples" / "plugins" / "cheapest_node.py") + ":CheapestNode"


def plugins(text: str) -> dict[str, tuple[float, bool, bool]]:
    """(weight, filters, scores) by name."""
    configuration = parse(f"{HEAD}profiles: [{{plugins: {{{text}}}}}]")
    return {each.plugin.name: (each.weight, each.filters, each.scores) for each in configuration.plugins}


def test_everything_has_a_default() -> None:
    configuration = parse(HEAD)
    assert (configuration.scheduler_name, configuration.election) == ("default-scheduler", "scheduler")
    assert (configuration.initial_backoff, configuration.max_backoff) == (1.0, 10.0)
    assert [each.plugin.name for each in configuration.plugins] == [each.plugin.name for each in default_plugins()]


def test_every_field_is_read() -> None:
    configuration = parse(
        HEAD + "leaderElection: {resourceName: second}\npodInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 20\n"
        "profiles: [{schedulerName: mine}]",
        seed=7,
    )
    assert configuration.election == "second" and configuration.scheduler_name == "mine" and configuration.seed == 7
    assert (configuration.initial_backoff, configuration.max_backoff) == (2.0, 20.0)


def test_plugins_are_disabled_and_weighed_by_point() -> None:
    found = plugins(
        "multiPoint: {disabled: [{name: NodeName}]}, filter: {disabled: [{name: NodePorts}]}, "
        'score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit, weight: 5}]}'
    )
    assert "NodeName" not in found
    assert found["NodePorts"][1] is False
    assert found["NodeResourcesFit"] == (5.0, True, True)
    assert found["TaintToleration"] == (3.0, True, False)


def test_a_disabled_plugin_can_be_enabled_at_one_point() -> None:
    found = plugins(
        "multiPoint: {disabled: [{name: NodeResourcesFit}, {name: TaintToleration}]}, "
        "filter: {enabled: [{name: NodeResourcesFit}]}, score: {enabled: [{name: TaintToleration}]}"
    )
    assert found["NodeResourcesFit"] == (1.0, True, False)
    assert found["TaintToleration"] == (3.0, False, True)


def test_a_plugin_of_ones_own() -> None:
    assert plugins(f'score: {{enabled: [{{name: "{EXAMPLE}", weight: 9}}]}}')["CheapestNode"] == (9.0, False, True)
    configuration = check(with_plugin(Configuration(), EXAMPLE))
    framework = Framework("default-scheduler", configuration.plugins)
    cache = cache_of(make_node("dear").label("price", "50"), make_node("cheap").label("price", "1"), make_node("unknown"))
    assert schedule_one(info(make_pod("a").req(cpu=1)), cache, framework, 0) == Placed("cheap")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v1\nkind: Pod", "expected apiVersion kubescheduler.config.k8s.io/v1"),
        ("[]", "the document: expected fields"),
        ("{", "not YAML"),
        (HEAD + "extenders: []", "extenders: not supported; there are apiVersion"),
        (HEAD + "leaderElection: {leaseDuration: 15s}", "leaderElection.leaseDuration: not supported"),
        (HEAD + "profiles: [{}, {}]", "profiles: exactly one profile"),
        (HEAD + "profiles: [{pluginConfig: []}]", "profiles[0].pluginConfig: not supported"),
        (HEAD + "profiles: [{plugins: {bind: {}}}]", "profiles[0].plugins.bind: not supported"),
        (HEAD + "profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]", 'no plugin "Nonsense"; there are'),
        (HEAD + "profiles: [{plugins: {filter: {disabled: [{name: Nonsense}]}}}]", 'no plugin "Nonsense" is enabled'),
        (HEAD + "profiles: [{plugins: {score: {enabled: [{name: NodeName, weight: -1}]}}}]", "weight: expected a whole number"),
        (HEAD + "profiles: [{plugins: {score: {enabled: {}}}}]", "score.enabled: expected a list"),
        (HEAD + 'profiles: [{plugins: {score: {enabled: [{name: "no.such:Plugin"}]}}}]', "cannot import no.such"),
        (HEAD + "profiles: [{schedulerName: 5}]", "profiles[0].schedulerName: expected text"),
        (HEAD + "podMaxBackoffSeconds: soon", "podMaxBackoffSeconds: expected a number of seconds"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(text)
    assert message in str(raised.value)


def test_plugins_that_make_no_profile_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="enabled twice: CheapestNode"):
        check(with_plugin(with_plugin(Configuration(), EXAMPLE), EXAMPLE))
    with pytest.raises(ConfigurationError, match="must sort the queue"):
        check(parse(HEAD + "profiles: [{plugins: {multiPoint: {disabled: [{name: PrioritySort}]}}}]"))
