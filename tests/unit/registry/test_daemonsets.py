"""Daemon sets: defaults, validation, and the number of the template."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import DAEMON_SETS
from pinnace.api.wellknown import TEMPLATE_GENERATION_ANNOTATION
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import Data, changed, created, status_changed

LABELS: Data = {"app": "agent"}
POD: Data = {"containers": [{"name": "c", "image": "i:1"}]}
STRATEGY_TYPES = 'supported values: "RollingUpdate", "OnDelete"'
NO_MATCH = 'Invalid value: {"app":"agent"}: `selector` does not match template `labels`'
ROLLING = "spec.updateStrategy.rollingUpdate"


def daemon_set(pod: Data | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    template = {"metadata": {"labels": LABELS}, "spec": POD | (pod or {})}
    metadata = {"name": "agent", "namespace": "n", "annotations": annotations or {}}
    defaults = {"selector": {"matchLabels": LABELS}, "template": template}
    return from_dict(DAEMON_SETS, {"metadata": metadata, "spec": defaults | spec})


def rolling(**bounds: int | str) -> Data:
    return {"type": "RollingUpdate", "rollingUpdate": bounds}


def test_defaults_are_those_of_kubernetes() -> None:
    obj = daemon_set()
    assert created(DAEMON_SETS, obj) == []
    assert to_dict(obj.spec.updateStrategy) == rolling(maxUnavailable=1, maxSurge=0)
    assert obj.spec.revisionHistoryLimit == 10
    assert obj.metadata.annotations[TEMPLATE_GENERATION_ANNOTATION] == "1"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (daemon_set(updateStrategy={"type": "OnDelete"}), []),
        (daemon_set(updateStrategy=rolling(maxUnavailable=0, maxSurge="100%")), []),
        (
            daemon_set(updateStrategy={"type": "Sometimes"}),
            [f'spec.updateStrategy: Unsupported value: {{"Type":"Sometimes","RollingUpdate":null}}: {STRATEGY_TYPES}'],
        ),
        (
            daemon_set(updateStrategy={"type": "x", "rollingUpdate": {"maxSurge": "5%"}}),
            [
                'spec.updateStrategy: Unsupported value: {"Type":"x","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":"5%"}}: '
                f"{STRATEGY_TYPES}"
            ],
        ),
        (daemon_set(selector=None), [f"spec.template.metadata.labels: {NO_MATCH}"]),
        (
            daemon_set(selector={"matchExpressions": [{"key": "app", "operator": "x"}]}),
            ['spec.selector.matchExpressions[0].operator: Invalid value: "x": not a valid selector operator'],
        ),
        (
            daemon_set(updateStrategy=rolling(maxUnavailable=1, maxSurge=1)),
            [f"{ROLLING}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"],
        ),
        (
            daemon_set(updateStrategy=rolling(maxUnavailable="0%")),
            [f"{ROLLING}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
        ),
        (
            daemon_set(updateStrategy=rolling(maxUnavailable="101%")),
            [f'{ROLLING}.maxUnavailable: Invalid value: "101%": must not be greater than 100%'],
        ),
        (
            daemon_set({"restartPolicy": "Never", "activeDeadlineSeconds": 5}),
            [
                'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
            ],
        ),
        (
            daemon_set(minReadySeconds=-1, revisionHistoryLimit=-1),
            [
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (daemon_set(selector={}), ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]),
    ],
)
def test_new_daemon_set_is_validated(obj: Any, expected: list[str]) -> None:
    assert created(DAEMON_SETS, obj) == expected


def test_server_counts_templates() -> None:
    old, strategy = daemon_set(annotations={TEMPLATE_GENERATION_ANNOTATION: "5"}), STRATEGIES["daemonsets"]
    created(DAEMON_SETS, old)
    assert old.metadata.annotations[TEMPLATE_GENERATION_ANNOTATION] == "5"
    same = daemon_set(annotations={TEMPLATE_GENERATION_ANNOTATION: "77"}, minReadySeconds=3)
    strategy.prepare_update(same, old)
    assert same.metadata.annotations[TEMPLATE_GENERATION_ANNOTATION] == "5"
    other = daemon_set({"hostNetwork": True})
    strategy.prepare_update(other, old)
    assert other.metadata.annotations[TEMPLATE_GENERATION_ANNOTATION] == "6"


def test_selector_is_immutable_and_collision_count_grows() -> None:
    old = daemon_set()
    created(DAEMON_SETS, old)
    new = daemon_set(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    assert [problem.partition(":")[0] for problem in changed(DAEMON_SETS, new, old)] == ["spec.selector"]
    old.status.collisionCount = 2
    new = daemon_set()
    new.status.collisionCount, new.status.numberReady = 1, -1
    assert [problem.partition(":")[0] for problem in status_changed(DAEMON_SETS, new, old)] == [
        "status.numberReady",
        "status.collisionCount",
    ]
