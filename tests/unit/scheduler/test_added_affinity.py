"""NodeAffinity's addedAffinity: an affinity that the scheduler adds to that of each pod."""

from typing import Any

import numpy as np
import pytest

from pinnace.fit.room import AFFINITY_REASON
from pinnace.scheduler.cache.cache import Change, ClusterEvent
from pinnace.scheduler.config import (
    Configuration,
    ConfigurationError,
    check_configuration,
    parse_configuration,
    write_configuration,
)
from pinnace.scheduler.framework import SKIP
from pinnace.scheduler.plugins.node_affinity import ENFORCED, NodeAffinity
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.asking_why import remedies
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.test_plugins import refusals

REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
NODES = [make_node("east").label("zone", "east"), make_node("west").label("zone", "west"), make_node("plain")]
ZONED = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
IN_EAST = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}


def adding(*, required: dict[str, Any] | None = None, preferred: dict[str, Any] | None = None) -> dict[str, Any]:
    added: dict[str, Any] = {REQUIRED: {"nodeSelectorTerms": [required]}} if required else {}
    return {"addedAffinity": added | ({PREFERRED: [{"weight": 10, "preference": preferred}]} if preferred else {})}


def configuration(args: str) -> Configuration:
    return parse_configuration(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {args}}}]}}]"
    )


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("a"), ["", "", ENFORCED]),
        (make_pod("a").node_selector("zone", "east"), ["", AFFINITY_REASON, ENFORCED]),
        (make_pod("a").node_affinity(("zone", "DoesNotExist", [])), [AFFINITY_REASON, AFFINITY_REASON, ENFORCED]),
    ],
)
def test_required_added_affinity_applies_to_every_pod(pod: PodBuilder, expected: list[str]) -> None:
    assert refusals(NodeAffinity(adding(required=ZONED)), pod, *NODES) == expected


def test_preferred_added_affinity_adds_to_the_score_of_the_pod() -> None:
    plugin, nodes, all_nodes = NodeAffinity(adding(preferred=ZONED)), cache_of(*NODES).nodes, np.ones(3, np.bool_)
    assert plugin.pre_score({}, info(make_pod("a")), nodes, all_nodes) is None
    assert NodeAffinity().pre_score({}, info(make_pod("a")), nodes, all_nodes) is SKIP
    fond = info(make_pod("a").prefer_nodes(5, ("zone", "In", ["west"])))
    assert plugin.score({}, fond, nodes, all_nodes).tolist() == [10, 15, 0]


def test_only_a_node_that_both_like_helps() -> None:
    plugin, nodes = NodeAffinity(adding(required=IN_EAST)), cache_of(*NODES).nodes
    pod = info(make_pod("a").node_affinity(("zone", "Exists", [])))
    helped = [plugin.helps(ClusterEvent(Change.NODE_ADDED, node), pod, nodes) for node in ("east", "west", "plain")]
    assert helped == [True, False, False]


def test_it_is_read_and_written_back() -> None:
    given = configuration(f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{ZONED}]}}}}}}")
    assert check_configuration(parse_configuration(write_configuration(check_configuration(given)))).profiles[0].args[
        "NodeAffinity"
    ] == adding(required=ZONED)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("{added: {}}", "added: unknown field; supported: addedAffinity"),
        ("{addedAffinity: {required: {}}}", "addedAffinity.required: unknown field"),
        (f"{{addedAffinity: {{{REQUIRED}: {{}}}}}}", "nodeSelectorTerms: expected at least one"),
        (
            f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: [{{key: a, operator: Is}}]}}]}}}}}}",
            f"addedAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator: expected In, NotIn",
        ),
        (
            f"{{addedAffinity: {{{PREFERRED}: [{{weight: 101, preference: {{}}}}]}}}}",
            f"addedAffinity.{PREFERRED}[0].weight: expected a whole number from 1 to 100, got 101",
        ),
    ],
)
def test_mistakes_are_named(args: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_configuration(configuration(args))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("{key: a/b/c, operator: Exists}", "key: a valid label key"),
        ("{key: a, operator: In, values: [b, c d]}", "values[1]: "),
        ("{key: a, operator: Gt, values: [many]}", "values[0]: expected a whole number, got 'many'"),
    ],
)
def test_unsatisfiable_added_affinity_is_refused(requirement: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_configuration(
            configuration(f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: [{requirement}]}}]}}}}}}")
        )
    assert f"nodeSelectorTerms[0].matchExpressions[0].{message}" in str(raised.value)


def test_why_says_that_it_is_not_the_pod() -> None:
    enforcing = configuration(f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{ZONED}]}}}}}}")
    told = "label a node to match addedAffinity in the scheduler's configuration -> plain"
    assert remedies(make_pod("a"), [NODES[2]], configuration=enforcing) == [told]
