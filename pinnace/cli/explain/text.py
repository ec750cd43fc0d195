"""The text of `explain`, in the form that kubectl gives it."""

import textwrap
from collections.abc import Iterator
from typing import Any

from pinnace.api.resources import Resource
from pinnace.cli.explain.places import Place

_WIDTH = 80
_DEEP = 4
"""Characters that a description is indented by."""


def text(resource: Resource[Any], name: str, place: Place, *, recursive: bool) -> str:
    """`name`: the field's; "" is the object as a whole. `recursive`: fields of fields, without what they mean."""
    return "\n".join(_lines(resource, name, place, recursive)) + "\n"


def _lines(resource: Resource[Any], name: str, place: Place, recursive: bool) -> Iterator[str]:
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


def _tree(place: Place, depth: int) -> Iterator[str]:
    for name, field in place.fields.items():
        yield "  " * depth + _titled(name, field)
        yield from _tree(field, depth + 1)


def _described(place: Place) -> Iterator[str]:
    for name, field in place.fields.items():
        yield f"  {_titled(name, field)}"
        for paragraph in field.texts[:1]:
            yield from _wrapped(paragraph)
        yield ""


def _titled(name: str, place: Place, gap: str = "\t") -> str:
    return f"{name}{gap}<{place.type}>{' -required-' if place.required else ''}"


def _wrapped(paragraph: str) -> list[str]:
    indent = " " * _DEEP
    return textwrap.wrap(paragraph, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
