"""`extenders` in the configuration: read, checked, written back, and what they mean for the profiles."""

from pathlib import Path

import pytest
import yaml

from pinnace.scheduler.config import (
    ConfigurationError,
    build_frameworks,
    check_configuration,
    parse_configuration,
    write_configuration,
)
from pinnace.scheduler.extenders.extender import Extenders
from pinnace.scheduler.extenders.interface import ExtenderConfiguration, ExtenderTls
from pinnace.scheduler.framework.profile import Offline
from pinnace.scheduler.node_selector import NodeSelector
from pinnace.scheduler.scheduling_cycle import Placed, schedule_one
from tests.builders import make_node, make_pod
from tests.unit.scheduler.pods import cache_of, info

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SMALL = "urlPrefix: http://h/x, filterVerb: f"
FULL = f"""{HEAD}extenders:
- urlPrefix: https://gpus.example:8443/scheduler
  filterVerb: filter
  prioritizeVerb: score
  preemptVerb: preempt
  bindVerb: bind
  weight: 3
  enableHTTPS: true
  tlsConfig: {{insecure: true}}
  httpTimeout: 1m0.5s
  nodeCacheCapable: true
  managedResources: [{{name: example.com/gpu, ignoredByScheduler: true}}, {{name: example.com/fpga}}]
  ignorable: true
- {{urlPrefix: "grpc://localhost:9000", filterVerb: Filter}}
"""
VERBS = {"filter": "filter", "prioritize": "score", "preempt": "preempt", "bind": "bind"}


def test_every_field_is_read() -> None:
    full, small = parse_configuration(FULL).extenders
    assert full == ExtenderConfiguration(
        "https://gpus.example:8443/scheduler",
        VERBS,
        weight=3,
        enable_https=True,
        tls=ExtenderTls(insecure=True),
        timeout=60.5,
        node_cache_capable=True,
        managed_resources={"example.com/gpu": True, "example.com/fpga": False},
        ignorable=True,
    )
    assert small == ExtenderConfiguration("grpc://localhost:9000", {"filter": "Filter"}), "everything else has a default"
    assert small.timeout == 5.0


def test_written_extenders_read_the_same_and_contain_defaults() -> None:
    configuration = check_configuration(parse_configuration(FULL))
    assert parse_configuration(write_configuration(configuration)).extenders == configuration.extenders
    _, small = yaml.safe_load(write_configuration(configuration))["extenders"]
    assert small == {
        "urlPrefix": "grpc://localhost:9000",
        "filterVerb": "Filter",
        "weight": 0,
        "enableHTTPS": False,
        "httpTimeout": "5s",
        "nodeCacheCapable": False,
        "managedResources": [],
        "ignorable": False,
    }


@pytest.mark.parametrize("timeout", ["300h", "0.00005s", "1234.567s"])
def test_timeout_is_written_as_one(timeout: str) -> None:
    configuration = check_configuration(parse_configuration(f"{HEAD}extenders: [{{{SMALL}, httpTimeout: {timeout}}}]"))
    assert parse_configuration(write_configuration(configuration)).extenders == configuration.extenders


@pytest.mark.parametrize(
    ("extenders", "message"),
    [
        ("{}", "extenders: expected a list"),
        ("[{urlPrefix: http://h}]", "extenders[0]: expected at least one of filterVerb, prioritizeVerb, preemptVerb, bindVerb"),
        ("[{filterVerb: f}]", "extenders[0].urlPrefix: expected text"),
        ("[{urlPrefix: h:80, filterVerb: f}]", "extenders[0].urlPrefix: expected http://, https:// or grpc://host:port"),
        ("[{urlPrefix: http://h:x, filterVerb: f}]", "urlPrefix: expected http://"),
        ("[{urlPrefix: http://h..svc/x, filterVerb: f}]", "urlPrefix: expected http://"),
        ("[{urlPrefix: 'http://h h', filterVerb: f}]", "urlPrefix: expected http://"),
        ("[{urlPrefix: http://h, filterVerb: für}]", "filterVerb: expected a segment of a URL path"),
        ("[{urlPrefix: grpc://h, filterVerb: Filter}]", "urlPrefix: expected http://"),
        ("[{urlPrefix: grpc://h:1, filterVerb: f}]", "filterVerb: expected Filter, the name of the method"),
        ("[{urlPrefix: http://h, prioritizeVerb: p}]", "extenders[0].weight: must have a positive weight applied to it"),
        (f"[{{{SMALL}, weight: -1}}]", "weight: expected an integer of 0 or more"),
        (f"[{{{SMALL}, enableHTTPS: true}}]", "enableHTTPS: requires a urlPrefix that begins with https://"),
        (f"[{{{SMALL}, tlsConfig: {{insecure: true}}}}]", "tlsConfig: requires a urlPrefix that begins with https://"),
        ("[{urlPrefix: https://h, filterVerb: f, tlsConfig: {keyFile: k}}]", "tlsConfig.keyFile: requires certFile"),
        (f"[{{{SMALL}, httpTimeout: 5}}]", "httpTimeout: expected a duration greater than 0"),
        (f"[{{{SMALL}, httpTimeout: 0s}}]", "httpTimeout: expected a duration greater than 0"),
        (f"[{{{SMALL}, ignorable: often}}]", "ignorable: expected true or false"),
        (f"[{{{SMALL}, managedResources: [{{name: cpu}}]}}]", "name: cpu is an invalid extended resource name"),
        (f"[{{{SMALL}, managedResources: [{{name: a.kubernetes.io/b}}]}}]", "is an invalid extended resource name"),
        (
            f"[{{{SMALL}, managedResources: [{{name: e.com/a}}, {{name: e.com/a}}]}}]",
            "managedResources[1].name: duplicate extender managed resource name e.com/a",
        ),
        (
            f"[{{{SMALL}, managedResources: [{{name: e.com/a}}]}}, "
            "{urlPrefix: http://i, filterVerb: f, managedResources: [{name: e.com/a}]}]",
            "extenders[1].managedResources: duplicate extender managed resource name e.com/a",
        ),
        (f"[{{{SMALL}}}, {{{SMALL}}}]", "extenders[1].urlPrefix: duplicate urlPrefix http://h/x"),
        (
            "[{urlPrefix: http://h, bindVerb: b}, {urlPrefix: http://i, bindVerb: b}]",
            "extenders: found 2 extenders implementing bind: only one extender can implement bind",
        ),
        (f"[{{{SMALL}, timeout: 5s}}]", "extenders[0].timeout: unknown field; supported: urlPrefix"),
    ],
)
def test_mistakes_are_named(extenders: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(f"{HEAD}extenders: {extenders}")
    assert message in str(raised.value)


def test_files_are_read_before_anything_starts(tmp_path: Path) -> None:
    text = f"{HEAD}extenders: [{{urlPrefix: https://h, filterVerb: f, tlsConfig: {{caFile: {tmp_path / 'none.pem'}}}}}]"
    with pytest.raises(ConfigurationError, match="extenders: tlsConfig:"):
        check_configuration(parse_configuration(text))


def test_resource_that_the_scheduler_ignores_is_no_reason_to_refuse() -> None:
    pod = make_pod("a").container({"example.com/gpu": 1, "example.com/other": 1})
    ignoring = build_frameworks(parse_configuration(FULL), Offline())["default-scheduler"]
    cache = cache_of(make_node("n").extended("example.com/other", 1))
    assert schedule_one(info(pod), NodeSelector(cache, ignoring, 0)) == Placed("n")
    fpga = schedule_one(info(make_pod("b").container({"example.com/fpga": 1})), NodeSelector(cache, ignoring, 0))
    assert not isinstance(fpga, Placed)


def test_ignored_resources_join_those_of_the_arguments() -> None:
    args = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/other]}}]}]\n"
    configuration = parse_configuration(FULL + args)
    pod = make_pod("a").container({"example.com/gpu": 1, "example.com/other": 1})
    framework = build_frameworks(configuration, Offline())["default-scheduler"]
    assert schedule_one(info(pod), NodeSelector(cache_of(make_node("n")), framework, 0)) == Placed("n")
    [profile] = parse_configuration(write_configuration(configuration)).profiles
    assert profile.args["NodeResourcesFit"]["ignoredResources"] == ["example.com/other"], "what was given"


def test_extender_that_binds_comes_before_all_plugins_for_its_pods_only() -> None:
    configuration = parse_configuration(FULL)
    framework = build_frameworks(configuration, Offline(), Extenders(configuration.extenders).binders)["default-scheduler"]
    theirs = schedule_one(
        info(make_pod("a").container({"example.com/gpu": 1})), NodeSelector(cache_of(make_node("n")), framework, 0)
    )
    assert isinstance(theirs, Placed) and theirs.cycle is not None
    assert [plugin.name for plugin in theirs.cycle.binds] == ["https://gpus.example:8443/scheduler"]
    assert schedule_one(info(make_pod("b")), NodeSelector(cache_of(make_node("n")), framework, 0)) == Placed("n")
