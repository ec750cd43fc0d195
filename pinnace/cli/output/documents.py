"""The output formats yaml, json, name, jsonpath and custom-columns, and the order of `--sort-by`.

As in kubectl, several objects are a `v1` List. `--sort-by` orders missing values first, then numbers and quantities by amount,
then text; digits within a text are compared as numbers, so web-2 precedes web-10. The sort is stable.

`written` and `completed` remove and restore the fields that the API server and `apply` set.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import yaml

from pinnace.api import quantity
from pinnace.api.codec import to_dict
from pinnace.api.documents import is_text
from pinnace.api.merge import LAST_APPLIED
from pinnace.api.resources import Object
from pinnace.cli import jsonpath
from pinnace.cli.jsonpath import Path, text_of
from pinnace.cli.objects.query import Item, reference
from pinnace.cli.outcomes import usage
from pinnace.cli.terminal import Table
from pinnace.printers.columns import NONE

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ALSO_BOOLEANS = frozenset("yYnN")
"""Booleans in YAML 1.1 and for some tools, but neither for PyYAML nor for pinnace."""


class _Dumper(_Base):  # type: ignore[misc]  # the C implementation if available
    """Quotes every text that another YAML parser would read as another type. PyYAML does not quote `12e4567` and `08`, which it
    does not parse as numbers."""

    def text(self, text: str) -> yaml.ScalarNode:
        style = None if is_text(text) and text not in _ALSO_BOOLEANS else "'"
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Dumper.add_representer(str, _Dumper.text)


@dataclass(frozen=True, slots=True)
class Document:
    """The formats yaml, json and name."""

    form: str
    managed_fields: bool = False
    """Include metadata.managedFields."""

    def one(self, item: Item) -> str:
        return one(self.form, item, managed_fields=self.managed_fields)

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return many(self.form, items, revision, managed_fields=self.managed_fields)

    def appended(self, item: Item) -> str:
        return ("---\n" if self.form == "yaml" else "") + self.one(item)


def one(form: str, item: Item, *, managed_fields: bool = False) -> str:
    """Format one object so that another can follow. `form` is yaml, json or name."""
    if form == "name":
        return reference(item[0], item[1].metadata.name) + "\n"
    return dump(form, _shown(item, managed_fields))


def many(form: str, items: Sequence[Item], revision: int = 0, *, managed_fields: bool = False) -> str:
    if form == "name":
        return "".join(one(form, item) for item in items)
    return dump(form, listed(items, revision, managed_fields=managed_fields))


def _shown(item: Item, managed_fields: bool) -> dict[str, Any]:
    data = to_dict(item[1])
    if not managed_fields:
        data["metadata"].pop("managedFields", None)
    return data


def listed(items: Sequence[Item], revision: int = 0, *, managed_fields: bool = True) -> dict[str, Any]:
    """Return a List. `revision` is its resourceVersion; 0 for a list of several kinds, which has none."""
    metadata = {"resourceVersion": str(revision) if revision else ""}
    return {"apiVersion": "v1", "items": [_shown(item, managed_fields) for item in items], "kind": "List", "metadata": metadata}


def dump(form: str, value: Mapping[str, Any]) -> str:
    """Format `value` as indented JSON or as YAML, with a final newline."""
    if form == "json":
        return json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text


@dataclass(frozen=True, slots=True)
class Templated:
    """The result of a template for an object or a List. As in kubectl, no newline is added."""

    template: jsonpath.Template

    def one(self, item: Item) -> str:
        return self.template.render(to_dict(item[1]))

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return self.template.render(listed(items, revision))

    def appended(self, item: Item) -> str:
        return self.one(item)


@dataclass(frozen=True, slots=True)
class Column:
    header: str
    path: jsonpath.Path


class Columned:
    """A table with custom columns: the results of the paths for each object, or <none>."""

    def __init__(self, own: Sequence[Column], headers: bool) -> None:
        self._columns = own
        self._table = Table([column.header for column in own], show_headers=headers)

    def one(self, item: Item) -> str:
        return self.many([item])

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return self._table.render([self._row(item) for item in items])

    def appended(self, item: Item) -> str:
        return self.one(item)

    def _row(self, item: Item) -> list[str]:
        data = to_dict(item[1])
        return [",".join(map(jsonpath.text_of, column.path.find([data]))) or NONE for column in self._columns]


def columns(text: str) -> list[Column]:
    """Parse NAME:.path,NAME:.path. A comma in brackets belongs to the path; a name can be empty. Raises Failure (usage)."""
    found = []
    for part in _split(text):
        header, colon, path = part.partition(":")
        if not colon or not path:
            hint = "such as -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName"
            raise usage(f'custom columns: "{part}": expected NAME:PATH', hint=hint)
        found.append(Column(header, jsonpath.parse_path(path)))
    return found


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


T = TypeVar("T", bound=Object)
Key = tuple[int, Decimal, tuple[tuple[int, str, str], ...]]

_NOTHING: Key = (0, Decimal(0), ())


def ordered(objs: Sequence[T], path: Path) -> list[T]:
    """Return the objects in the order of the path. Raises Failure: usage if the path has no result in any object, and errors of
    the path."""
    keys = [_key(path.find([to_dict(obj)])) for obj in objs]
    if objs and all(key == _NOTHING for key in keys):
        raise usage("--sort-by: the path has no result in any object", hint="`-o yaml` shows the fields")
    return [objs[at] for at in sorted(range(len(objs)), key=keys.__getitem__)]


def _key(found: Sequence[Any]) -> Key:
    if not found or found[0] is None:
        return _NOTHING
    text = text_of(found[0])
    try:
        return 1, quantity.parse(text), ()
    except quantity.QuantityError:
        return 2, Decimal(0), tuple(_part(number, word) for number, word in re.findall(r"([0-9]+)|([^0-9]+)", text))


def _part(number: str, word: str) -> tuple[int, str, str]:
    """Return a key that orders numbers by value without conversion: Python cannot parse integers of thousands of digits."""
    digits = number.lstrip("0")
    return len(digits), digits, word


_SERVERS_OWN = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


def written(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form without status, metadata of the server, and the annotation of `apply`."""
    metadata = {key: value for key, value in data["metadata"].items() if key not in _SERVERS_OWN}
    if annotations := {key: value for key, value in metadata.pop("annotations", {}).items() if key != LAST_APPLIED}:
        metadata["annotations"] = annotations
    return {key: metadata if key == "metadata" else value for key, value in data.items() if key != "status"}


def completed(data: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """Add the fields that `written` removes, with their values in `live`."""
    own = {key: value for key, value in live["metadata"].items() if key in _SERVERS_OWN}
    metadata = {**written(data)["metadata"], **own}
    if last := live["metadata"].get("annotations", {}).get(LAST_APPLIED):
        metadata["annotations"] = {**metadata.get("annotations", {}), LAST_APPLIED: last}
    status = {"status": live["status"]} if "status" in live else {}
    return {**data, "metadata": metadata, **status}
