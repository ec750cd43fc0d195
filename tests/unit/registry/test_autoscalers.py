"""Validation and defaults of horizontal pod autoscalers."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import HORIZONTAL_POD_AUTOSCALERS
from pinnace.apiserver.registry.strategies import STRATEGIES
from tests.unit.registry.objects import created

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Utilization", "averageUtilization": 50}
SUPPORTED = 'supported values: "ContainerResource", "External", "Object", "Pods", "Resource"'


def autoscaler(**spec: Any) -> Any:
    form = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}
    return from_dict(HORIZONTAL_POD_AUTOSCALERS, form)


def violations(**spec: Any) -> list[str]:
    return created(HORIZONTAL_POD_AUTOSCALERS, autoscaler(**spec))


def test_behavior_gets_the_default_rules_of_both_directions() -> None:
    obj = autoscaler(behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    STRATEGIES[HORIZONTAL_POD_AUTOSCALERS.plural].set_defaults(obj)
    behavior = to_dict(obj)["spec"]["behavior"]
    whole = {"type": "Percent", "value": 100, "periodSeconds": 15}
    assert behavior["scaleDown"] == {"selectPolicy": "Disabled", "policies": [whole]}
    assert behavior["scaleUp"] == {
        "selectPolicy": "Max",
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, whole],
    }


def test_unknown_metric_type_is_reported_twice() -> None:
    text = f'spec.metrics[0].type: Unsupported value: "Nope": {SUPPORTED}'
    assert violations(metrics=[{"type": "Nope"}]) == [text, text]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minReplicas": 0}, ["minReplicas: Invalid value: 0: must be greater than or equal to 1"]),
        ({"minReplicas": 4}, ["maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`"]),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "v1"}},
            ['scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'],
        ),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "a/b/c"}},
            ['scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
        ),
        ({"scaleTargetRef": {"kind": "ReplicationController", "name": "web", "apiVersion": "v1"}}, []),
        (
            {"scaleTargetRef": {"apiVersion": "apps/v1"}},
            ["scaleTargetRef.kind: Required value", "scaleTargetRef.name: Required value"],
        ),
        (
            {"metrics": [{"type": "Resource"}]},
            ["metrics[0].resource: Required value: must populate information for the given metric source"],
        ),
        (
            {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": CPU}, "pods": {}}]},
            [
                "metrics[0].pods.metric.name: Required value: must specify a metric name",
                "metrics[0].pods.target.type: Required value: must specify a metric target type",
                'metrics[0].pods.target.type: Invalid value: "": must be either Utilization, Value, or AverageValue',
                "metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue",
                "metrics[0].pods: Forbidden: must populate the given metric source only",
            ],
        ),
        (
            {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {**CPU, "averageValue": "0"}}}]},
            [
                'metrics[0].resource.target.averageValue: Invalid value: "0": must be positive',
                "metrics[0].resource.target.averageValue: Forbidden: "
                "may not set both a target raw value and a target utilization",
            ],
        ),
        (
            {"metrics": [{"type": "ContainerResource", "containerResource": {"name": "x y", "target": CPU}}]},
            [
                "metrics[0].containerResource.name: Invalid value",
                "metrics[0].containerResource.container: Required value: must specify a container",
            ],
        ),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "tolerance": "-1"}}},
            [
                "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                'behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pod", "value": 0, "periodSeconds": 1801}]}}},
            [
                'behavior.scaleDown.policies[0].type: Unsupported value: "Pod": supported values: "Percent", "Pods"',
                "behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero",
                "behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        ),
    ],
)
def test_violations_are_those_of_kubernetes(spec: dict[str, Any], expected: list[str]) -> None:
    found = violations(**spec)
    assert len(found) == len(expected), found
    assert all(text.startswith(f"spec.{beginning}") for text, beginning in zip(found, expected, strict=True)), found


def test_target_in_the_core_group_is_kept_by_an_update() -> None:
    """It was stored before there was the rule."""
    strategy = STRATEGIES[HORIZONTAL_POD_AUTOSCALERS.plural]
    before = autoscaler(scaleTargetRef={"kind": "Deployment", "name": "web"}, minReplicas=1)
    strategy.set_defaults(before)
    before.metadata.resourceVersion, before.metadata.uid = "1", "u"
    after = autoscaler()
    after.CopyFrom(before)
    after.spec.maxReplicas = 9
    assert strategy.validate_update(after, before) == []
    after.spec.scaleTargetRef.kind = "ReplicaSet"
    assert [item.field for item in strategy.validate_update(after, before)] == ["spec.scaleTargetRef.apiVersion"]
