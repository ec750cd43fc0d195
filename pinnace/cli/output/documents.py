"""`-o yaml|json|name`: objects as machines read them. One object is itself, several are a `v1` List, as with kubectl.

`-o jsonpath|custom-columns`: what paths find in objects.

`--sort-by`: objects in the order of what a path finds in each. Pure.

Nothing goes before everything, numbers and quantities by their amount before other text, and text with its numbers as numbers:
web-2 before web-10. Objects that are alike stay in the server's order.

Objects as people write them: without status, the server's own metadata, and what `apply` notes for itself. Pure.
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
from pinnace.cli.objects.targets import Item, reference
from pinnace.cli.outcomes import usage
from pinnace.cli.terminal import Table
from pinnace.printers.columns import NONE

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ALSO_BOOLEANS = frozenset("yYnN")
"""In YAML 1.1 and for some tools, though neither PyYAML nor pinnace reads them so."""


class _Dumper(_Base):  # type: ignore[misc]  # its base is chosen when it is imported: the C one where there is one
    """Quotes each text that would be read as something else. PyYAML quotes what PyYAML would, to which `12e4567` and `08` are
    no numbers."""

    def text(self, text: str) -> yaml.ScalarNode:
        style = None if is_text(text) and text not in _ALSO_BOOLEANS else "'"
        node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Dumper.add_representer(str, _Dumper.text)


@dataclass(frozen=True, slots=True)
class Document:
    """yaml, json or name; several are a List."""

    form: str
    managed_fields: bool = False
    """Whether metadata.managedFields are shown."""

    def one(self, item: Item) -> str:
        return one(self.form, item, managed_fields=self.managed_fields)

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return many(self.form, items, revision, managed_fields=self.managed_fields)

    def appended(self, item: Item) -> str:
        return ("---\n" if self.form == "yaml" else "") + self.one(item)


def one(form: str, item: Item, *, managed_fields: bool = False) -> str:
    """One object, in a form that may follow another: `form` is yaml, json or name."""
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
    """Several objects as one document: a List. `revision`: its resourceVersion; 0: a list of several kinds has none."""
    metadata = {"resourceVersion": str(revision) if revision else ""}
    return {"apiVersion": "v1", "items": [_shown(item, managed_fields) for item in items], "kind": "List", "metadata": metadata}


def dump(form: str, value: Mapping[str, Any]) -> str:
    """`value` as indented JSON or as YAML, with a newline at the end."""
    if form == "json":
        return json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text


@dataclass(frozen=True, slots=True)
class Templated:
    """What a template makes of an object, or of the List of several. It brings its own newlines, as with kubectl."""

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
    """A table with columns of one's own: what the paths find in each object, <none> where that is nothing."""

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
    """NAME:.path,NAME:.path. A comma in brackets belongs to the path; a name may be empty. Raises Failure (usage)."""
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
    """Raises Failure: usage when the path finds nothing in any object, and what the path raises."""
    keys = [_key(path.find([to_dict(obj)])) for obj in objs]
    if objs and all(key == _NOTHING for key in keys):
        raise usage("--sort-by: the path finds nothing in any object", hint="`-o yaml` shows which fields there are")
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
    """A number with more digits is larger. (Of thousands of them, which anybody may write, Python reads none.)"""
    digits = number.lstrip("0")
    return len(digits), digits, word


_SERVERS_OWN = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


def written(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of the JSON form of an object."""
    metadata = {key: value for key, value in data["metadata"].items() if key not in _SERVERS_OWN}
    if annotations := {key: value for key, value in metadata.pop("annotations", {}).items() if key != LAST_APPLIED}:
        metadata["annotations"] = annotations
    return {key: metadata if key == "metadata" else value for key, value in data.items() if key != "status"}


def completed(data: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse: what somebody wrote, with what is left out as it is in `live`."""
    own = {key: value for key, value in live["metadata"].items() if key in _SERVERS_OWN}
    metadata = {**written(data)["metadata"], **own}
    if last := live["metadata"].get("annotations", {}).get(LAST_APPLIED):
        metadata["annotations"] = {**metadata.get("annotations", {}), LAST_APPLIED: last}
    status = {"status": live["status"]} if "status" in live else {}
    return {**data, "metadata": metadata, **status}
