"""The API's messages against Kubernetes 1.36: same field numbers, types, labels and JSON names.

tests/data/kubernetes-wire-1.36.json maps package, message and field to number, type and label. It contains the messages that
this project defines, with all fields of Kubernetes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from pinnace.api import (
    admissionregistration_v1_pb2,
    apiregistration_v1_pb2,
    apps_v1_pb2,
    autoscaling_v1_pb2,
    autoscaling_v2_pb2,
    batch_v1_pb2,
    coordination_v1_pb2,
    core_v1_pb2,
    discovery_v1_pb2,
    events_v1_pb2,
    intstr_v1_pb2,
    meta_v1_pb2,
    networking_v1_pb2,
    node_v1_pb2,
    policy_v1_pb2,
    rbac_v1_pb2,
    resource_v1_pb2,
    runtime_v1_pb2,
    scheduling_v1_pb2,
    storage_v1_pb2,
    wire,
)
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import ALL, NAMESPACES, Resource
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.apiserver.registry.strategies import STRATEGIES
from pinnace.apiserver.registry.strategy import StatusStrategy

PACKAGES = {
    "k8s.io.api.admissionregistration.v1": admissionregistration_v1_pb2,
    "k8s.io.kube_aggregator.pkg.apis.apiregistration.v1": apiregistration_v1_pb2,
    "k8s.io.api.apps.v1": apps_v1_pb2,
    "k8s.io.api.autoscaling.v1": autoscaling_v1_pb2,
    "k8s.io.api.autoscaling.v2": autoscaling_v2_pb2,
    "k8s.io.api.batch.v1": batch_v1_pb2,
    "k8s.io.api.discovery.v1": discovery_v1_pb2,
    "k8s.io.api.events.v1": events_v1_pb2,
    "k8s.io.api.core.v1": core_v1_pb2,
    "k8s.io.api.coordination.v1": coordination_v1_pb2,
    "k8s.io.api.networking.v1": networking_v1_pb2,
    "k8s.io.api.node.v1": node_v1_pb2,
    "k8s.io.api.policy.v1": policy_v1_pb2,
    "k8s.io.api.rbac.v1": rbac_v1_pb2,
    "k8s.io.api.scheduling.v1": scheduling_v1_pb2,
    "k8s.io.api.storage.v1": storage_v1_pb2,
    "k8s.io.apimachinery.pkg.api.resource": resource_v1_pb2,
    "k8s.io.apimachinery.pkg.apis.meta.v1": meta_v1_pb2,
    "k8s.io.apimachinery.pkg.runtime": runtime_v1_pb2,
    "k8s.io.apimachinery.pkg.util.intstr": intstr_v1_pb2,
}
OURS = {module.DESCRIPTOR.package: package for package, module in PACKAGES.items()}
TABLE: dict[str, dict[str, dict[str, dict[str, Any]]]] = json.loads(
    (Path(__file__).parent.parent / "data/kubernetes-wire-1.36.json").read_text()
)
TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_BYTES: "bytes",
}


def type_of(field: FieldDescriptor, package: str) -> str:
    """The type as the table writes it, seen from a Kubernetes package."""
    message = field.message_type
    if message is None:
        return TYPES[field.type]
    if message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return f"map<{type_of(key, package)},{type_of(value, package)}>"
    there = OURS[message.file.package]
    return message.name if there == package else f".{there}.{message.name}"


def label_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return "map"
    return "repeated" if field.is_repeated else "optional"


FIRST_OWN_NUMBER = 1000
"""The number of the first field that Kubernetes does not have."""


@pytest.mark.parametrize("package", PACKAGES)
def test_fields_match_kubernetes(package: str) -> None:
    for message in PACKAGES[package].DESCRIPTOR.message_types_by_name.values():
        fields = [field for field in message.fields if field.number < FIRST_OWN_NUMBER]
        ours = {f.name: {"number": f.number, "type": type_of(f, package), "label": label_of(f)} for f in fields}
        theirs = TABLE[package][message.name]
        assert ours == {name: theirs.get(name) for name in ours}, message.full_name
        assert [field.json_name for field in message.fields] == [field.name for field in message.fields]


def test_table_contains_exactly_our_messages() -> None:
    ours = {package: set(module.DESCRIPTOR.message_types_by_name) for package, module in PACKAGES.items()}
    assert ours == {package: set(table) for package, table in TABLE.items()}


def test_unknown_fields_survive() -> None:
    """Fields of other clients that this version does not model are kept at every depth."""
    added = wire.field(9001, b"of the future")
    container = wire.field(1, b"main") + added
    pod = wire.field(1, wire.field(1, b"a") + added) + wire.field(2, wire.field(2, container) + added) + added
    parsed = Pod.FromString(pod)
    assert parsed.spec.containers[0].name == "main"
    copied = Pod()
    copied.CopyFrom(parsed)
    assert copied.SerializeToString(deterministic=True) == pod


def test_unknown_fields_survive_a_stamp() -> None:
    pod = Pod.FromString(wire.field(1, wire.field(9001, b"of the future")) + wire.encode_resource_version(7))
    assert pod.metadata.resourceVersion == "7"
    assert b"of the future" in pod.SerializeToString()


class ServiceShape:
    """`pinnace.api.wire` and the generic service encode messages of all kinds with these field numbers."""

    def fields(self, message: Any) -> dict[str, tuple[int, str | None, bool]]:
        return {
            field.name: (field.number, field.message_type and field.message_type.full_name, field.is_repeated)
            for field in message.DESCRIPTOR.fields
        }

    def check_objects(self, resource: Resource[Any]) -> None:
        assert self.fields(resource.message)["metadata"] == (1, "pinnace.meta.v1.ObjectMeta", False)

    def check_create_and_update(self, resource: Resource[Any]) -> None:
        kind = resource.message.DESCRIPTOR.full_name
        for verb in ("Create", "Update"):
            expected = {"object": (1, kind, False), "options": (2, f"pinnace.meta.v1.{verb}Options", False)}
            assert self.fields(resource.request(verb)) == expected

    def check_batches(self, resource: Resource[Any]) -> None:
        kind = resource.message.DESCRIPTOR.full_name
        for verb in ("Create", "Update"):
            if hasattr(resource.messages, f"{verb}{resource.kind}BatchRequest"):
                expected = {"items": (1, kind, True), "options": (2, f"pinnace.meta.v1.{verb}Options", False)}
                assert self.fields(resource.request(verb, "BatchRequest")) == expected

    def check_watches(self, resource: Resource[Any]) -> None:
        event = resource.request("", "WatchEvent")
        kind = resource.message.DESCRIPTOR.full_name
        assert self.fields(event) == {"type": (1, None, False), "object": (2, kind, False)}
        expected = {"events": (1, event.DESCRIPTOR.full_name, True), "resourceVersion": (2, None, False)}
        assert self.fields(resource.watch_response) == expected | {"history": (3, None, False)}

    def check_lists(self, resource: Resource[Any]) -> None:
        kind = resource.message.DESCRIPTOR.full_name
        expected = {"metadata": (1, "pinnace.meta.v1.ListMeta", False), "items": (2, kind, True)}
        assert self.fields(resource.list_message) == expected

    def check_service_has_the_standard_verbs(self, resource: Resource[Any]) -> None:
        service = resource.messages.DESCRIPTOR.services_by_name[resource.service.rpartition(".")[2]]
        assert service.full_name == resource.service
        verbs = set(service.methods_by_name)
        assert verbs >= {"Create", "Get", "List", "Watch", "Update", "Patch", "Delete"}
        assert ("DeleteCollection" in verbs) != (resource is NAMESPACES)
        assert ("UpdateStatus" in verbs) == isinstance(STRATEGIES[resource.plural], StatusStrategy)


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_services_have_one_shape(resource: Resource[Any]) -> None:
    shape = ServiceShape()
    shape.check_objects(resource)
    shape.check_create_and_update(resource)
    shape.check_batches(resource)
    shape.check_watches(resource)
    shape.check_lists(resource)
    shape.check_service_has_the_standard_verbs(resource)


def test_event_types_have_the_numbers_of_the_wire() -> None:
    assert [kind.number for kind in WatchEventType.DESCRIPTOR.values] == [0, 1, 2, 3]
