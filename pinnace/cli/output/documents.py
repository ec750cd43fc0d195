"""`-o yaml|json|name`: objects as machines read them. One object is itself, several are a `v1` List, as with kubectl."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pinnace.api.codec import to_dict
from pinnace.api.documents import is_text
from pinnace.cli.objects.targets import Item, reference

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

    def one(self, item: Item) -> str:
        return one(self.form, item)

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return many(self.form, items, revision)

    def appended(self, item: Item) -> str:
        return ("---\n" if self.form == "yaml" else "") + self.one(item)


def one(form: str, item: Item) -> str:
    """One object, in a form that may follow another: `form` is yaml, json or name."""
    if form == "name":
        return reference(item[0], item[1].metadata.name) + "\n"
    return dump(form, to_dict(item[1]))


def many(form: str, items: Sequence[Item], revision: int = 0) -> str:
    if form == "name":
        return "".join(one(form, item) for item in items)
    return dump(form, listed(items, revision))


def listed(items: Sequence[Item], revision: int = 0) -> dict[str, Any]:
    """Several objects as one document: a List. `revision`: its resourceVersion; 0: a list of several kinds has none."""
    metadata = {"resourceVersion": str(revision) if revision else ""}
    return {"apiVersion": "v1", "items": [to_dict(item[1]) for item in items], "kind": "List", "metadata": metadata}


def dump(form: str, value: Mapping[str, Any]) -> str:
    """`value` as indented JSON or as YAML, with a newline at the end."""
    if form == "json":
        return json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text
