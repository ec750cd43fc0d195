"""Where a path such as pod.spec.containers leads: fields by their names in manifests, with types as kubectl writes them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api import codec, resources
from pinnace.api.codec import Field, fields_of
from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.resources import Resource
from pinnace.api.scalars import SCALARS
from pinnace.cli.command import did_you_mean
from pinnace.cli.objects.targets import parse_resource
from pinnace.cli.outcomes import usage

_PRIMITIVES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_INT32: "integer",
    FieldDescriptor.TYPE_INT64: "integer",
    FieldDescriptor.TYPE_BYTES: "string",
}
_TIMES = (Time.DESCRIPTOR.full_name, MicroTime.DESCRIPTOR.full_name)
"""Strings in manifests."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field, or an object as a whole. `type` is as in kubectl: []Container, map[string]string. `message`: what has the fields
    of it, or of its items; None: it has none."""

    type: str
    texts: tuple[str, ...]
    """What is known of it, and then of its type."""
    required: bool = False
    message: Descriptor | None = None
    resource: Resource[Any] | None = None
    """Of an object as a whole."""

    @property
    def fields(self) -> Mapping[str, "Place"]:
        """By name, in alphabetical order."""
        if self.message is None:
            return {}
        found = {name: _of_field(field) for name, field in fields_of(self.message).items()}
        if self.resource is not None:
            found["apiVersion"] = Place("string", (f"The API group and its version: {self.resource.api_version}.",))
            found["kind"] = Place("string", (f"What the object is: {self.resource.kind}.",))
        return dict(sorted(found.items()))


def split(path: str) -> tuple[Resource[Any], Sequence[str]]:
    """The resource, with or without its API group, and the names of fields that follow. Indexes and keys, which the paths of
    errors have, are passed over: pod.spec.containers[0].image. Raises Failure (usage)."""
    name, _, rest = re.sub(r"\[[^\]]*\]", "", path).partition(".")
    resource = parse_resource(name)
    version = resource.api_version.rpartition("/")[2]
    for group in (f"{version}.{resource.group}", resource.group, version):
        if group and f"{rest}.".startswith(f"{group}."):
            rest = rest.removeprefix(group)
            break
    return resource, [step for step in rest.split(".") if step]


def find(resource: Resource[Any], steps: Sequence[str]) -> Place:
    """Raises Failure (usage)."""
    message = resource.message.DESCRIPTOR
    place, way = (
        Place(resource.kind, _texts(codec.of_message(message)), message=message, resource=resource),
        [resource.kind],
    )
    for step in steps:
        fields = place.fields
        if not fields:
            raise usage(f'{".".join(way)} is a <{place.type}>, and has no field "{step}"')
        if step not in fields:
            hint = f"`pinnace explain {'.'.join((way[0].lower(), *way[1:]))}` shows its fields"
            raise usage(f'{".".join(way)} has no field "{step}"{did_you_mean(step, list(fields))}', hint=hint)
        place = fields[step]
        way.append(step)
    return place


def completions(incomplete: str) -> list[str]:
    """Paths that begin like this, one step further."""
    kind, dot, rest = incomplete.partition(".")
    resource = resources.by_name(kind)
    if not dot or resource is None:
        return [each.plural for each in resources.ALL if each.plural.startswith(incomplete)]
    place = Place(resource.kind, (), message=resource.message.DESCRIPTOR, resource=resource)
    *steps, last = rest.split(".")
    for step in steps:
        place = place.fields.get(step, Place("", ()))
    return [".".join((kind, *steps, name)) for name in place.fields if name.startswith(last)]


def _of_field(field: Field) -> Place:
    said = codec.of_field(field.descriptor)
    of = field.value or field.descriptor
    name, message = _type(of)
    if field.value is not None:
        name = f"map[string]{name}"
    elif field.descriptor.is_repeated:
        name = f"[]{name}"
    about = codec.of_message(of.message_type) if of.message_type is not None else ""
    return Place(name, _texts(said.text, about), said.required, message)


def _type(field: FieldDescriptor) -> tuple[str, Descriptor | None]:
    """Of one value: its name, and the message if that has fields in manifests."""
    if field.message_type is None:
        return _PRIMITIVES[field.type], None
    name = field.message_type.full_name
    if name in _TIMES:
        return "string", None
    return field.message_type.name, None if name in SCALARS else field.message_type


def _texts(*texts: str) -> tuple[str, ...]:
    """Each once, without those that say nothing."""
    return tuple(dict.fromkeys(text for text in texts if text))
