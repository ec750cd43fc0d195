"""Autoscalers in autoscaling/v1 and autoscaling/v2."""

import json
from typing import Any

import pytest

from pinnace.api.autoscaling import BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS, to_v1, to_v2
from pinnace.api.codec import from_dict, to_dict
from pinnace.api.resources import HORIZONTAL_POD_AUTOSCALERS, HORIZONTAL_POD_AUTOSCALERS_V1
from tests.fuzz.sound import objects

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}


def old(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "n", "annotations": annotations or {}}
    form = {"metadata": metadata, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}
    return to_dict(to_v2(from_dict(HORIZONTAL_POD_AUTOSCALERS_V1, form)))


def new(**spec: Any) -> dict[str, Any]:
    form = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}
    return to_dict(to_v1(from_dict(HORIZONTAL_POD_AUTOSCALERS, form)))


def test_every_field_survives_the_way_to_v1_and_back() -> None:
    _, obj = objects()["pinnace.autoscaling.v2.HorizontalPodAutoscaler"]
    there = to_v1(obj)
    back = to_v2(there)
    expected, actual = to_dict(obj), to_dict(back)
    for form in (expected, actual):  # cpu follows the other metrics, as in Kubernetes
        form["spec"]["metrics"].sort(key=json.dumps)
    assert actual == expected
    assert set(there.metadata.annotations) == {METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS}
    assert there.spec.targetCPUUtilizationPercentage == 50
    assert there.status.currentCPUUtilizationPercentage == 70


def test_metrics_are_those_of_kubernetes_in_the_annotation() -> None:
    annotation = new(metrics=[MEMORY])["metadata"]["annotations"][METRICS]
    assert annotation == '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}}]'


def test_behavior_has_the_names_of_go_in_the_annotation() -> None:
    rules = {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}
    annotation = json.loads(new(behavior={"scaleUp": rules})["metadata"]["annotations"][BEHAVIOR])
    assert annotation == {"ScaleUp": {"SelectPolicy": "Max", "Policies": [{"Type": "Pods", "Value": 4, "PeriodSeconds": 60}]}}


@pytest.mark.parametrize(
    "text", ["", "nonsense", "7", "[7]", '[{"type": 7}]', '[{"type": "Resource", "resource": {"name": {}}}]']
)
def test_unreadable_annotation_leaves_the_default_metric(text: str) -> None:
    (metric,) = old({METRICS: text, BEHAVIOR: text, CONDITIONS: text, CURRENT_METRICS: text})["spec"]["metrics"]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}


def test_annotations_do_not_reach_v2() -> None:
    result = old({METRICS: "[]", "mine": "kept"}, targetCPUUtilizationPercentage=70)
    assert result["metadata"]["annotations"] == {"mine": "kept"}
    assert [metric["resource"]["target"]["averageUtilization"] for metric in result["spec"]["metrics"]] == [70]
