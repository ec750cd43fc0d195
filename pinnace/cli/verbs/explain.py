"""The verbs `explain` and `api-resources`: the documentation of fields, and the supported kinds.

A path such as pod.spec.containers leads through fields by their names in manifests. The types and the layout are kubectl's.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pinnace.api import codec, resources
from pinnace.api.codec import Field, fields_of
from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.resources import Resource
from pinnace.api.scalars import SCALARS
from pinnace.cli.command import did_you_mean, verb
from pinnace.cli.objects.query import parse_resource
from pinnace.cli.outcomes import usage
from pinnace.cli.settings import Settings
from pinnace.cli.terminal import Table, out


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(path) for path in completions(incomplete)]


@verb(
    "explain",
    examples="""
        pinnace explain pod
        pinnace explain pod.spec.containers
        pinnace explain deployment.spec.strategy --recursive
        pinnace explain pod.spec.containers[0].resources      # a path from an error message
    """,
)
@click.argument("path", metavar="KIND[.FIELD...]", default="", shell_complete=_complete)
@click.option("--recursive", is_flag=True, help="Print the fields of fields, without descriptions.")
def explain(settings: Settings, path: str, recursive: bool) -> None:
    """Show documentation for a resource and its fields.

    The texts describe what a field does in this system, which can be less than in Kubernetes. No server is contacted.
    """
    if not path:
        raise usage(
            "you must specify the type of resource",
            hint="name one, such as `pod` or `pod.spec`; `pinnace api-resources` lists them",
        )
    resource, steps = split(path)
    place = find(resource, steps)
    out(explanation(resource, steps[-1] if steps else "", place, recursive=recursive))


_PRIMITIVES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_INT32: "integer",
    FieldDescriptor.TYPE_INT64: "integer",
    FieldDescriptor.TYPE_BYTES: "string",
}
_TIMES = (Time.DESCRIPTOR.full_name, MicroTime.DESCRIPTOR.full_name)
"""Types that are strings in manifests."""


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """A field, or a whole object. `type` is in kubectl's form: []Container, map[string]string. `message`: the type with its
    fields, or those of its items; None: it has no fields.
    """

    type: str
    texts: tuple[str, ...]
    """The description of the field, followed by that of its type."""
    required: bool = False
    message: Descriptor | None = None
    resource: Resource[Any] | None = None
    """For a whole object."""

    @property
    def fields(self) -> Mapping[str, "FieldDoc"]:
        """Sorted by name."""
        if self.message is None:
            return {}
        found = {name: _of_field(field) for name, field in fields_of(self.message).items()}
        if self.resource is not None:
            found["apiVersion"] = FieldDoc("string", (f"The API group and its version: {self.resource.api_version}.",))
            found["kind"] = FieldDoc("string", (f"What the object is: {self.resource.kind}.",))
        return dict(sorted(found.items()))


def split(path: str) -> tuple[Resource[Any], Sequence[str]]:
    """The resource, with or without its API group, and the names of fields. Indexes and keys, as in paths of errors, are
    ignored: pod.spec.containers[0].image. Raises Failure (usage).
    """
    name, _, rest = re.sub(r"\[[^\]]*\]", "", path).partition(".")
    resource = parse_resource(name)
    version = resource.api_version.rpartition("/")[2]
    for group in (f"{version}.{resource.group}", resource.group, version):
        if group and f"{rest}.".startswith(f"{group}."):
            rest = rest.removeprefix(group)
            break
    return resource, [step for step in rest.split(".") if step]


def find(resource: Resource[Any], steps: Sequence[str]) -> FieldDoc:
    """Raises Failure (usage)."""
    message = resource.message.DESCRIPTOR
    place, way = (
        FieldDoc(resource.kind, _texts(codec.of_message(message)), message=message, resource=resource),
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
    """Completions of a path by one step."""
    kind, dot, rest = incomplete.partition(".")
    resource = resources.by_name(kind)
    if not dot or resource is None:
        return [each.plural for each in resources.ALL if each.plural.startswith(incomplete)]
    place = FieldDoc(resource.kind, (), message=resource.message.DESCRIPTOR, resource=resource)
    *steps, last = rest.split(".")
    for step in steps:
        place = place.fields.get(step, FieldDoc("", ()))
    return [".".join((kind, *steps, name)) for name in place.fields if name.startswith(last)]


def _of_field(field: Field) -> FieldDoc:
    said = codec.of_field(field.descriptor)
    of = field.value or field.descriptor
    name, message = _type(of)
    if field.value is not None:
        name = f"map[string]{name}"
    elif field.descriptor.is_repeated:
        name = f"[]{name}"
    about = codec.of_message(of.message_type) if of.message_type is not None else ""
    return FieldDoc(name, _texts(said.text, about), said.required, message)


def _type(field: FieldDescriptor) -> tuple[str, Descriptor | None]:
    """The type name of one value, and the message if it has fields in manifests."""
    if field.message_type is None:
        return _PRIMITIVES[field.type], None
    name = field.message_type.full_name
    if name in _TIMES:
        return "string", None
    return field.message_type.name, None if name in SCALARS else field.message_type


def _texts(*texts: str) -> tuple[str, ...]:
    """Texts without duplicates and empty ones."""
    return tuple(dict.fromkeys(text for text in texts if text))


_WIDTH = 80
_DEEP = 4
"""Indentation of descriptions."""


def explanation(resource: Resource[Any], name: str, place: FieldDoc, *, recursive: bool) -> str:
    """`name`: of the field; "" for a whole object. `recursive`: also nested fields, without descriptions."""
    return "\n".join(_lines(resource, name, place, recursive)) + "\n"


def _lines(resource: Resource[Any], name: str, place: FieldDoc, recursive: bool) -> Iterator[str]:
    version = resource.api_version.rpartition("/")[2]
    if resource.group:
        yield f"GROUP:      {resource.group}"
    yield f"KIND:       {resource.kind}"
    yield f"VERSION:    {version}"
    yield ""
    if name:
        yield f"FIELD: {_titled(name, place, ' ')}"
        yield ""
    yield "DESCRIPTION:"
    for paragraph in place.texts or ("<empty>",):
        yield from _wrapped(paragraph)
    if place.fields:
        yield ""
        yield "FIELDS:"
        yield from _tree(place, 1) if recursive else _described(place)


def _tree(place: FieldDoc, depth: int) -> Iterator[str]:
    for name, field in place.fields.items():
        yield "  " * depth + _titled(name, field)
        yield from _tree(field, depth + 1)


def _described(place: FieldDoc) -> Iterator[str]:
    for name, field in place.fields.items():
        yield f"  {_titled(name, field)}"
        for paragraph in field.texts[:1]:
            yield from _wrapped(paragraph)
        yield ""


def _titled(name: str, place: FieldDoc, gap: str = "\t") -> str:
    return f"{name}{gap}<{place.type}>{' -required-' if place.required else ''}"


def _wrapped(paragraph: str) -> list[str]:
    indent = " " * _DEEP
    return textwrap.wrap(paragraph, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


HEADERS = ("NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND")


@verb(
    "api-resources",
    examples="""
        pinnace api-resources
        pinnace api-resources --namespaced=false -o name
        pinnace api-resources --api-group apps
    """,
)
@click.option(
    "--namespaced/--no-namespaced", default=None, help="Only kinds that are in namespaces, or only those that are not."
)
@click.option("--api-group", metavar="GROUP", help='Only kinds of this group, such as apps; "" is the core\'s.')
@click.option("-o", "--output", type=click.Choice(["name"]), help="The output format.")
@click.option("--no-headers", is_flag=True, help="Do not print headers.")
def api_resources(
    settings: Settings, namespaced: bool | None, api_group: str | None, output: str | None, no_headers: bool
) -> None:
    """List the supported API resources.

    The list is that of this program. A server of another version can have others.
    """
    shown = [
        each
        for each in sorted(resources.ALL, key=lambda each: (each.group, each.plural))
        if namespaced in (None, each.namespaced) and api_group in (None, each.group)
    ]
    if output == "name":
        out("".join(f"{each.plural}{'.' if each.group else ''}{each.group}\n" for each in shown))
        return
    rows = [
        (each.plural, ",".join(each.short_names), each.api_version, str(each.namespaced).lower(), each.kind) for each in shown
    ]
    out(Table(HEADERS, show_headers=not no_headers).render(rows))
