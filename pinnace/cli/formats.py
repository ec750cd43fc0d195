"""`-o yaml|json|name`: objects as machines read them. One object is itself, several are a `v1` List, as with kubectl."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pinnace.api.codec import to_dict
from pinnace.cli.targets import Item, reference

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Document:
    """yaml, json or name; several are a List."""

    form: str

    def one(self, item: Item) -> str:
        return one(self.form, item)

    def many(self, items: Sequence[Item]) -> str:
        return many(self.form, items)

    def appended(self, item: Item) -> str:
        return ("---\n" if self.form == "yaml" else "") + self.one(item)


def one(form: str, item: Item) -> str:
    """One object, in a form that may follow another: `form` is yaml, json or name."""
    if form == "name":
        return reference(item[0], item[1].metadata.name) + "\n"
    return dump(form, to_dict(item[1]))


def many(form: str, items: Sequence[Item]) -> str:
    if form == "name":
        return "".join(one(form, item) for item in items)
    return dump(form, listed(items))


def listed(items: Sequence[Item]) -> dict[str, Any]:
    """Several objects as one document: a List."""
    return {"apiVersion": "v1", "items": [to_dict(item[1]) for item in items], "kind": "List", "metadata": {}}


def dump(form: str, value: Mapping[str, Any]) -> str:
    """`value` as indented JSON or as YAML, with a newline at the end."""
    if form == "json":
        return json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text
