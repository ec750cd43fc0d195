"""The fields of the API's messages as JSON has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

INLINED = frozenset(
    "pinnace.core.v1." + name
    for name in (
        "Volume.volumeSource",
        "PersistentVolumeSpec.persistentVolumeSource",
        "Probe.handler",
        "EphemeralContainer.ephemeralContainerCommon",
        "ConfigMapKeySelector.localObjectReference",
        "SecretKeySelector.localObjectReference",
        "ConfigMapEnvSource.localObjectReference",
        "SecretEnvSource.localObjectReference",
        "ConfigMapVolumeSource.localObjectReference",
        "ConfigMapProjection.localObjectReference",
        "SecretProjection.localObjectReference",
    )
)
"""Message fields without a name of their own in JSON: their fields appear in the parent (`json:",inline"` in Go)."""


@dataclass(frozen=True, slots=True)
class Field:
    """`parents`: names of the inlined messages on the way to it. `value`: for a map, the type of its values."""

    descriptor: FieldDescriptor
    parents: tuple[str, ...]
    value: FieldDescriptor | None


@cache  # as many entries as there are messages
def fields_of(message_type: Descriptor) -> Mapping[str, Field]:
    """By JSON name; inlined ones included."""
    fields: dict[str, Field] = {}
    for descriptor in message_type.fields:
        if descriptor.full_name in INLINED and descriptor.message_type is not None:
            for name, inner in fields_of(descriptor.message_type).items():
                fields[name] = Field(inner.descriptor, (descriptor.name, *inner.parents), inner.value)
        else:
            fields[descriptor.json_name] = Field(descriptor, (), map_value(descriptor))
    return fields


def map_value(field: FieldDescriptor) -> FieldDescriptor | None:
    """The type of a map's values; None when the field is no map."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["value"]
