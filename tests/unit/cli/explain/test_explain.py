"""`explain`: where paths lead, what kubectl calls types, and how it is told."""

import pytest

from pinnace.api.resources import ALL, DEPLOYMENTS, PODS
from pinnace.cli.outcomes import Failure
from pinnace.cli.verbs.explain import FieldDoc, completions, explanation, find, split


def at(path: str) -> FieldDoc:
    return find(*split(path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pod", "Pod"),
        ("po.spec", "PodSpec"),
        ("pods.spec.containers", "[]Container"),
        ("pod.spec.containers[0].image", "string"),
        ("pod.v1.spec", "PodSpec"),
        ("deployment.apps.spec.replicas", "integer"),
        ("deployments.v1.apps.spec.strategy.rollingUpdate.maxSurge", "IntOrString"),
        ("pod.spec.containers[*].resources.limits[cpu]", "map[string]Quantity"),
        ("pod.metadata.labels[app.kubernetes.io/name]", "map[string]string"),
        ("pod.metadata.creationTimestamp", "string"),
        ("pod.spec.hostNetwork", "boolean"),
        ("pod.spec.volumes.emptyDir", "EmptyDirVolumeSource"),  # inlined
        ("lease.spec.renewTime", "string"),
        ("pod.apiVersion", "string"),
    ],
)
def test_paths_lead_to_fields_of_types(path: str, expected: str) -> None:
    assert at(path).type == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("podz", 'unknown resource "podz"; did you mean "pod"?'),
        ("pod.spec.contianers", 'Pod.spec has no field "contianers"; did you mean "containers"?'),
        ("pod.spec.nodeselector", 'Pod.spec has no field "nodeselector"; did you mean "nodeSelector"?'),
        ("pod.spec.template.xyz", 'Pod.spec has no field "template"'),
        ("pod.metadata.labels.app", 'Pod.metadata.labels is a <map[string]string>, and has no field "app"'),
        ("deployment.batch.spec", 'Deployment has no field "batch"'),
    ],
)
def test_wrong_paths_say_what_was_meant(path: str, expected: str) -> None:
    with pytest.raises(Failure) as raised:
        at(path)
    assert raised.value.report.lines == (expected,)


def test_field_path_is_printed_as_in_kubectl() -> None:
    path = "deployment.spec.strategy.rollingUpdate"
    assert explanation(DEPLOYMENTS, "rollingUpdate", at(path), recursive=False).splitlines() == [
        "GROUP:      apps",
        "KIND:       Deployment",
        "VERSION:    v1",
        "",
        "FIELD: rollingUpdate <RollingUpdateDeployment>",
        "",
        "DESCRIPTION:",
        "    Only with RollingUpdate.",
        "    The limits of a rolling update: numbers of pods, or percentages of",
        "    spec.replicas. They cannot both be 0. Default: 25% each.",
        "",
        "FIELDS:",
        "  maxSurge\t<IntOrString>",
        "    Maximum number of pods above spec.replicas. A percentage is rounded up.",
        "",
        "  maxUnavailable\t<IntOrString>",
        "    Maximum number of unavailable pods. A percentage is rounded down.",
        "",
    ]


def test_fields_of_fields() -> None:
    lines = explanation(PODS, "tolerations", at("pod.spec.tolerations"), recursive=True).splitlines()
    assert lines[lines.index("FIELDS:") + 1 :] == [
        "  effect\t<string>",
        "  key\t<string>",
        "  operator\t<string>",
        "  tolerationSeconds\t<integer>",
        "  value\t<string>",
    ]
    lines = explanation(PODS, "", at("pod"), recursive=True).splitlines()
    assert "    containers\t<[]Container> -required-" in lines and "      image\t<string> -required-" in lines


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_kind_says_what_it_is_and_what_it_has(resource: object) -> None:
    assert resource in ALL
    place = at(resource.plural)
    assert place.texts and {"apiVersion", "kind", "metadata"} <= set(place.fields)
    for name, field in place.fields.items():
        assert field.texts, name


def test_paths_are_completed_step_by_step() -> None:
    assert completions("dep") == ["deployments"]
    assert completions("pod.spec.toler") == ["pod.spec.tolerations"]
    assert "pod.spec.containers.image" in completions("pod.spec.containers.")
    assert completions("pod.nothing.at") == [] == completions("nothing.at")
