"""Conversion of objects to JSON and back."""

import difflib
import json
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnace.api import core_v1_pb2, meta_v1_pb2
from pinnace.api.codec import MAX_HINTS, CodecError, Problem, decode_valid_part, explicit_fields, fields_of, from_dict, to_dict
from pinnace.api.coordination_v1_pb2 import LeaseSpec
from pinnace.api.core_v1_pb2 import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    ConfigMapProjection,
    ConfigMapVolumeSource,
    ContainerStatus,
    EphemeralContainer,
    HTTPGetAction,
    Node,
    PersistentVolumeSpec,
    Pod,
    Probe,
    SecretEnvSource,
    SecretKeySelector,
    SecretProjection,
    Volume,
)
from pinnace.api.meta_v1_pb2 import ObjectMeta, Time
from pinnace.api.resources import ALL, EVENTS, PODS, PRIORITY_CLASSES, Resource
from pinnace.api.scalars import SCALARS
from tests.examples import examples
from tests.messages import messages

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "annotations": {"a": "1"},
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "generation": 4_000_000_000,
        "labels": {"app": "web", "tier": ""},
        "name": "web",
        "ownerReferences": [{"apiVersion": "v1", "controller": False, "kind": "Pod", "name": "x", "uid": "u"}],
    },
    "spec": {
        "containers": [
            {
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k", "name": "s", "optional": False}}}],
                "image": "nginx:1.27",
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
                "name": "web",
                "ports": [{"containerPort": 80, "name": "http"}],
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "resources": {"limits": {"memory": "1.5Gi"}, "requests": {"cpu": "500m"}},
            }
        ],
        "hostNetwork": True,
        "priority": 0,
        "securityContext": {},
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists", "tolerationSeconds": 300}],
        "volumes": [
            {"emptyDir": {}, "name": "v"},
            {"configMap": {"items": [{"key": "k", "path": "p"}], "name": "c"}, "name": "w"},
        ],
    },
    "status": {
        "containerStatuses": [
            {
                "image": "",
                "imageID": "",
                "lastState": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-31T12:00:00Z"}},
                "name": "web",
                "ready": False,
                "restartCount": 0,
            }
        ],
        "phase": "Running",
    },
}

PARTS = [
    GetMessageClass(message)
    for module in (core_v1_pb2, meta_v1_pb2)
    for name, message in module.DESCRIPTOR.message_types_by_name.items()
    if message.full_name not in SCALARS and not name.endswith(("List", "Options"))
]
every_resource = pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)


def test_pod_round_trip() -> None:
    assert to_dict(from_dict(PODS, POD)) == POD


def test_fields_are_in_kubernetes_order() -> None:
    shuffled = json.loads(json.dumps({key: POD[key] for key in reversed(POD)}))
    assert json.dumps(to_dict(from_dict(PODS, shuffled))) == json.dumps(POD)


@every_resource
@given(data=st.data())
@settings(max_examples=examples(12))
def test_object_round_trip(resource: Resource[Any], data: st.DataObject) -> None:
    obj = data.draw(messages(resource.message))
    document = to_dict(obj)
    assert from_dict(resource, json.loads(json.dumps(document))) == obj
    assert to_dict(from_dict(resource, document)) == document
    assert (document["apiVersion"], document["kind"]) == (resource.api_version, resource.kind)


@given(data=st.data())
def test_message_round_trip(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(PARTS))
    message = data.draw(messages(part))
    assert from_dict(part, to_dict(message)) == message


@pytest.mark.parametrize(
    ("message", "data"),
    [
        (Volume(name="v", volumeSource={"hostPath": {"path": "/"}}), {"name": "v", "hostPath": {"path": "/"}}),
        (
            PersistentVolumeSpec(storageClassName="a", persistentVolumeSource={"nfs": {"server": "s", "path": "/"}}),
            {"storageClassName": "a", "nfs": {"server": "s", "path": "/"}},
        ),
        (Probe(handler={"exec": {"command": ["a"]}}, periodSeconds=1), {"exec": {"command": ["a"]}, "periodSeconds": 1}),
        (EphemeralContainer(ephemeralContainerCommon={"name": "d"}), {"name": "d"}),
        (ConfigMapKeySelector(localObjectReference={"name": "n"}, key="k"), {"name": "n", "key": "k"}),
        (SecretKeySelector(localObjectReference={"name": "n"}, key="k"), {"name": "n", "key": "k"}),
        (ConfigMapEnvSource(localObjectReference={"name": "n"}), {"name": "n"}),
        (SecretEnvSource(localObjectReference={"name": "n"}), {"name": "n"}),
        (ConfigMapVolumeSource(localObjectReference={"name": "n"}), {"name": "n"}),
        (ConfigMapProjection(localObjectReference={"name": "n"}), {"name": "n"}),
        (SecretProjection(localObjectReference={"name": "n"}), {"name": "n"}),
        (HTTPGetAction(port={"intVal": 80}), {"port": 80}),
        (HTTPGetAction(port={"type": 1, "strVal": "http"}), {"port": "http"}),
        (LeaseSpec(renewTime={"seconds": 1, "nanos": 5000}), {"renewTime": "1970-01-01T00:00:01.000005Z"}),
        (BytesValue(value=b"\x00\xff"), {"value": "AP8="}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_json_form_of_special_messages(message: Message, data: dict[str, Any]) -> None:
    assert to_dict(message) == data
    assert from_dict(type(message), data) == message


@pytest.mark.parametrize(
    ("data", "canonical"),
    [
        ({"metadata": {"labels": {"a": None}}}, {"metadata": {"labels": {"a": ""}}}),
        ({"metadata": {"finalizers": [None]}}, {"metadata": {"finalizers": [""]}}),
        ({"spec": {"containers": [None]}}, {"spec": {"containers": [{}]}}),
        ({"spec": {"overhead": {"cpu": None}}}, {"spec": {"overhead": {"cpu": "0"}}}),
        ({"spec": {"overhead": {"cpu": " 500m "}}}, {"spec": {"overhead": {"cpu": "500m"}}}),
    ],
)
def test_values_that_kubectl_accepts_are_accepted(data: dict[str, Any], canonical: dict[str, Any]) -> None:
    assert from_dict(Pod, data) == from_dict(Pod, canonical)


def test_inlined_messages_are_listed() -> None:
    """An unlisted message with a localObjectReference would have a field in JSON that Kubernetes does not have."""
    shown = [
        f"{message.full_name}.{name}"
        for message in Pod.DESCRIPTOR.file.message_types_by_name.values()
        for name in fields_of(message)
        if name in ("localObjectReference", "volumeSource", "persistentVolumeSource", "handler", "ephemeralContainerCommon")
    ]
    assert shown == []


def test_null_is_absent() -> None:
    meta = from_dict(ObjectMeta, {"name": "a", "creationTimestamp": None, "labels": None, "finalizers": None})
    assert meta == ObjectMeta(name="a")


@every_resource
@given(data=st.data())
@settings(max_examples=examples(12))
def test_as_written_keeps_a_complete_document(resource: Resource[Any], data: st.DataObject) -> None:
    obj = data.draw(messages(resource.message))
    document = to_dict(obj)
    assert explicit_fields(obj, document) == document


def test_as_written_keeps_given_null_and_empty_fields() -> None:
    spec = {
        "nodeName": None,
        "hostNetwork": False,
        "tolerations": [],
        "nodeSelector": {},
        "overhead": {"cpu": 1},
        "containers": [{"name": "c", "args": ["a"], "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": ""}}}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": False}, "emptyDir": None}],
    }
    data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": ""}}, "spec": spec}
    expected = {**data, "spec": {**spec, "overhead": {"cpu": "1"}}}
    assert explicit_fields(from_dict(PODS, data), data) == expected
    unknown = {**data, "spec": {**spec, "paused": False}, "more": 1}
    assert explicit_fields(decode_valid_part(PODS, unknown)[0], unknown) == expected


def test_required_zero_values_are_written() -> None:
    assert to_dict(ContainerStatus(name="c")) == {
        "name": "c", "ready": False, "restartCount": 0, "image": "", "imageID": "",
    }  # fmt: skip
    assert to_dict(PRIORITY_CLASSES.message())["value"] == 0


def test_absent_optional_differs_from_zero() -> None:
    assert "priority" not in to_dict(Pod(spec={}))["spec"]
    assert to_dict(Pod(spec={"priority": 0}))["spec"] == {"priority": 0}


def test_unrepresentable_time_does_not_hide_the_object() -> None:
    assert to_dict(ObjectMeta(creationTimestamp=Time(seconds=2**62)))["creationTimestamp"] == "9999-12-31T23:59:59Z"


def problems(data: object, target: Any = PODS, **options: Any) -> list[str]:
    with pytest.raises(CodecError) as caught:
        from_dict(target, data, **options)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], "expected an object, got a list"),
        ({"kind": "Node"}, 'kind: expected "Pod", got a string ("Node")'),
        ({"apiVersion": 1}, 'apiVersion: expected "v1", got a number (1)'),
        ({"spc": {}}, 'spc: unknown field; did you mean "spec"?'),
        ({"spec": {"tolerations": [{"efect": "x"}]}}, 'spec.tolerations[0].efect: unknown field; did you mean "effect"?'),
        ({"spec": {"nodename": "x"}}, 'spec.nodename: unknown field; did you mean "nodeName"?'),
        ({"spec": {"zzz": 1}}, "spec.zzz: unknown field"),
        ({"spec": {"volumes": [{"volumeSource": {}}]}}, "spec.volumes[0].volumeSource: unknown field"),
        ({"spec": []}, "spec: expected an object, got a list"),
        ({"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        ({"spec": {"containers": "x"}}, 'spec.containers: expected a list, got a string ("x")'),
        ({"spec": {"hostNetwork": "true"}}, 'spec.hostNetwork: expected true or false, got a string ("true")'),
        ({"spec": {"priority": True}}, "spec.priority: expected a whole number, got a boolean (true)"),
        ({"spec": {"priority": 1.5}}, "spec.priority: expected a whole number, got a number (1.5)"),
        ({"spec": {"priority": float("inf")}}, "spec.priority: expected a whole number, got a number (inf)"),
        ({"spec": {"priority": 2**31}}, "spec.priority: 2147483648 does not fit into 32 bits"),
        ({"metadata": {"generation": 2**63}}, "metadata.generation: 9223372036854775808 does not fit into 64 bits"),
        ({"metadata": {"name": 7}}, "metadata.name: expected a string, got a number (7); put it in quotes"),
        ({"metadata": {"name": "\ud800"}}, "metadata.name: not valid Unicode"),
        (
            {"metadata": {"labels": {"on": True}}},
            "metadata.labels[on]: expected a string, got a boolean (true); put it in quotes",
        ),
        (
            {"metadata": {"labels": {1: "a"}}},
            "metadata.labels[1]: expected a string as the key, got a number (1); put it in quotes",
        ),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels: expected an object, got a list"),
        ({"metadata": {"finalizers": [1]}}, "metadata.finalizers[0]: expected a string, got a number (1); put it in quotes"),
        (
            {"metadata": {"creationTimestamp": 5}},
            "metadata.creationTimestamp: expected a time such as 2026-01-31T12:00:00Z, got a number (5)",
        ),
        (
            {"metadata": {"creationTimestamp": "yesterday"}},
            'metadata.creationTimestamp: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as '
            '"2006"',
        ),
        (
            {"spec": {"overhead": {"cpu": "1x"}}},
            'spec.overhead[cpu]: "1x" is not a quantity; expected a number with an optional suffix, e.g. 500m or 1.5Gi',
        ),
        ({"spec": {"priority": 3.0}}, "spec.priority: expected a whole number, got a number (3.0)"),
        ({"metadata": {"generation": 1e1}}, "metadata.generation: expected a whole number, got a number (10.0)"),
    ],
)
def test_error_contains_the_path_and_the_invalid_value(data: object, expected: str) -> None:
    assert problems(data) == [expected]


def test_suggestions_are_limited_to_the_first_unknown_fields() -> None:
    """The search for similar names is slow, and a patch can have thousands of unknown fields."""
    told = problems({"spec": {f"nodeNam{number}": 1 for number in range(MAX_HINTS + 5)}})
    assert len(told) == MAX_HINTS + 5 and sum("did you mean" in item for item in told) == MAX_HINTS


def test_very_long_field_name_gets_no_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difflib, "get_close_matches", lambda *args, **options: pytest.fail("a look at a long name"))
    assert problems({"x" * 1000: 1}) == [f"{'x' * 1000}: unknown field"]


@pytest.mark.parametrize("port", [True, 1.5, 2**31, [80]])
def test_port_is_a_number_or_a_string(port: object) -> None:
    (problem,) = problems({"port": port}, HTTPGetAction)
    assert problem.startswith("port: expected a number or a string, got")


@pytest.mark.parametrize("value", ["%%%", 5, "YQ"])
def test_bytes_are_base64(value: object) -> None:
    assert len(problems({"value": value}, BytesValue)) == 1


def test_all_violations_are_reported_at_once() -> None:
    data = {"metadata": {"name": 1, "labls": {}}, "spec": {"containers": [{"image": 2}, {"ports": [{"hostPort": "x"}]}]}}
    assert [problem.partition(":")[0] for problem in problems(data)] == [
        "metadata.name",
        "metadata.labls",
        "spec.containers[0].image",
        "spec.containers[1].ports[0].hostPort",
    ]


def test_unknown_fields_are_distinguished_from_invalid_values() -> None:
    obj, result = decode_valid_part(PODS, {"spec": {"zzz": 1, "hostNetwork": "x", "nodeName": "n"}})
    assert [(problem.field, problem.unknown) for problem in result] == [("spec.zzz", True), ("spec.hostNetwork", False)]
    assert obj == from_dict(PODS, {"spec": {"nodeName": "n"}})


def test_managed_fields_are_read_and_written_as_a_tree() -> None:
    entry = {"manager": "kubectl", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}
    data = {"metadata": {"name": "a", "managedFields": [entry]}}
    assert to_dict(from_dict(PODS, data))["metadata"]["managedFields"] == [entry]
    assert problems({"metadata": {"managedFields": [{"fieldsV1": 1}]}}) == [
        "metadata.managedFields[0].fieldsV1: expected an object, got a number (1)"
    ]


def test_problems_are_prefixed_with_the_path() -> None:
    assert problems({"kind": "Pod", "spec": 1}, path=("items", 3)) == [
        "items[3].spec: expected an object, got a number (1)",
    ]


def test_problem_without_a_path_is_its_message() -> None:
    assert str(Problem((), "x")) == "x"


def test_quantities_may_be_numbers() -> None:
    node = from_dict(Node, {"status": {"capacity": {"cpu": 4, "memory": 0.5}}})
    assert (node.status.capacity["cpu"].string, node.status.capacity["memory"].string) == ("4", "0.5")


def test_kind_and_version_are_optional() -> None:
    assert from_dict(EVENTS, {"metadata": {"name": "a"}}).metadata.name == "a"
