"""Descriptions of fields: the fields that are marked as required are those that validation requires."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from pinnace.api import codec
from pinnace.api.codec import FieldPath, Problem, fields_of, from_dict, to_dict
from pinnace.api.core_v1_pb2 import Container, Pod, PodSpec
from pinnace.api.resources import ALL, CLUSTER_ROLES, PODS, Resource
from pinnace.api.scalars import SCALARS
from tests.fuzz import sound
from tests.unit.registry.objects import created

WITH_CONDITIONS = {
    "EndpointPort.name",  # of several ports
    "MetricTarget.averageUtilization",  # depends on the type of the metric
    "MetricTarget.averageValue",
    "MetricTarget.value",
    "CrossVersionObjectReference.apiVersion",  # of a target outside of the core group
    "MetricSpec.containerResource",  # depends on the type
    "MetricSpec.external",
    "MetricSpec.object",
    "MetricSpec.pods",
    "MetricSpec.resource",
    "HTTPIngressPath.path",  # for Exact and Prefix
    "Ingress.spec",  # empty without its fields
    "IngressClassParametersReference.namespace",  # for the scope Namespace
    "LabelSelectorRequirement.values",  # for In
    "NodeSelectorRequirement.values",
    "ScopedResourceSelectorRequirement.values",
    "JobSpec.backoffLimitPerIndex",  # with maxFailedIndexes
    "JobSpec.completions",  # of an Indexed job
    "LocalObjectReference.name",  # only in some places
    "MatchResources.resourceRules",  # of a policy
    "Mutation.applyConfiguration",  # depends on patchType
    "Mutation.jsonPatch",
    "TypedLocalObjectReference.kind",
    "TypedLocalObjectReference.name",
    "ObjectMeta.labels",  # of a template: the selector must match
    "ObjectMeta.name",  # or generateName
    "ObjectMeta.namespace",  # set by the commands
    "ObjectReference.kind",  # of an event
    "ObjectReference.name",
    "PersistentVolume.spec",  # empty without its fields
    "PodSpec.restartPolicy",  # of a job
    "PolicyRule.apiGroups",  # of a rule about resources
    "PolicyRule.resources",
    "ServiceSpec.ports",  # unless it is headless
    "Toleration.effect",  # with tolerationSeconds
}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
NAME = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
SELECTOR = {"matchLabels": {"part": "of"}}
AGGREGATED = from_dict(CLUSTER_ROLES, {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [SELECTOR]}})
MORE = from_dict(
    PODS,
    {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {
            "schedulingGates": [{"name": "example.com/wait"}],
            "volumes": [
                {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}},
                {
                    "name": "files",
                    "projected": {"sources": [{"downwardAPI": {"items": [NAME]}}, {"serviceAccountToken": {"path": "t"}}]},
                },
            ],
            "readinessGates": [{"conditionType": "example.com/known"}],
            "containers": [
                {
                    "name": "main",
                    "image": "app",
                    "env": [
                        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "key"}}},
                    ],
                    "livenessProbe": {"grpc": {"port": 80}},
                }
            ],
        },
    },
)
OBJECTS = [
    *((resource, sound.objects()[resource.message.DESCRIPTOR.full_name][1]) for resource in ALL),
    (PODS, MORE),
    (CLUSTER_ROLES, AGGREGATED),
]


def test_comments_become_one_line() -> None:
    assert codec.message_description(Pod.DESCRIPTOR) == "A group of containers on one node."
    image = codec.field_description(Container.DESCRIPTOR.fields_by_name["image"])
    assert image.required and image.text.startswith("The name of the image.")
    assert not codec.field_description(PodSpec.DESCRIPTOR.fields_by_name["nodeName"]).required


@pytest.mark.parametrize(("resource", "obj"), OBJECTS, ids=lambda item: item.plural if isinstance(item, Resource) else "")
def test_required_fields_match_validation(resource: Resource[Any], obj: Any) -> None:
    """Removes each field of valid objects in turn."""
    data = to_dict(obj)
    data.pop("status", None)
    before = set(created(resource, from_dict(resource, data)))
    for path, name, required in list(_fields(resource.message.DESCRIPTOR, data, ())):
        wrong = set(created(resource, from_dict(resource, _without(data, path)))) - before
        here = [item for item in wrong if item.startswith(f"{Problem(path, '').field}: ")]
        assert wrong or not required, name
        assert required or not here or name in WITH_CONDITIONS, (name, here)


def test_objects_have_every_required_field() -> None:
    said = {
        f"{message.rpartition('.')[2]}.{field}"
        for message, fields in json.loads(codec.FILE.read_text()).items()
        for field, text in fields.items()
        if text.startswith("Required.") and not message.startswith("pinnace.events.v1.")  # see test_events_v1.py
    }
    there = {name for resource, obj in OBJECTS for _, name, _ in _fields(resource.message.DESCRIPTOR, to_dict(obj), ())}
    assert said <= there


def _fields(message: Any, data: dict[str, Any], path: FieldPath) -> Iterator[tuple[FieldPath, str, bool]]:
    """Path, "Message.field", and whether the field is marked as required."""
    for name, value in data.items():
        if (field := fields_of(message).get(name)) is None:
            continue
        of, where = field.descriptor, (*path, name)
        yield where, f"{of.containing_type.name}.{name}", codec.field_description(of).required
        if field.value is None and of.message_type is not None and of.message_type.full_name not in SCALARS:
            for at, item in [((*where, i), each) for i, each in enumerate(value)] if of.is_repeated else [(where, value)]:
                yield from _fields(of.message_type, item, at)


def _without(data: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    left = deepcopy(data)
    parent: Any = left
    for step in path[:-1]:
        parent = parent[step]
    del parent[path[-1]]
    return left
