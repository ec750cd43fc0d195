"""What `-o` says, as values: the forms in which objects are shown that are no table of the server's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pinnace.api.codec import to_dict
from pinnace.cli import formats, jsonpath
from pinnace.cli.formats import Item
from pinnace.cli.outcomes import usage
from pinnace.cli.table import Table
from pinnace.printers.columns import NONE

DOCUMENTS = ("yaml", "json", "name")
TEMPLATE = "jsonpath"
COLUMNS = "custom-columns"
OUTPUTS = f"wide|{'|'.join(DOCUMENTS)}|{TEMPLATE}=TEMPLATE|{COLUMNS}=NAME:PATH,..."


class Form(Protocol):
    def one(self, item: Item) -> str:
        """An object that was asked for by itself."""

    def many(self, items: Sequence[Item]) -> str:
        """Objects of a list."""

    def appended(self, item: Item) -> str:
        """An object behind others that were shown before, as a watch brings them."""


def chosen(output: str | None, *, headers: bool = True) -> Form | None:
    """The form of one of OUTPUTS; None for the server's tables (nothing, or wide). Raises Failure (usage)."""
    if output is None or output == "wide":
        return None
    name, equals, argument = output.partition("=")
    if not equals and name in DOCUMENTS:
        return Document(name)
    if name == TEMPLATE:
        if not argument:
            raise usage("which template?", hint=f"such as -o {TEMPLATE}='{{.items[*].metadata.name}}'")
        return Templated(jsonpath.parse(argument))
    if name == COLUMNS:
        return Columned(columns(argument), headers)
    raise usage(f'there is no output format "{output}"', hint=f"there are {OUTPUTS}")


@dataclass(frozen=True, slots=True)
class Document:
    """yaml, json or name; several are a List."""

    form: str

    def one(self, item: Item) -> str:
        return formats.one(self.form, item)

    def many(self, items: Sequence[Item]) -> str:
        return formats.many(self.form, items)

    def appended(self, item: Item) -> str:
        return ("---\n" if self.form == "yaml" else "") + self.one(item)


@dataclass(frozen=True, slots=True)
class Templated:
    """What a template makes of an object, or of the List of several. It brings its own newlines, as with kubectl."""

    template: jsonpath.Template

    def one(self, item: Item) -> str:
        return self.template.render(to_dict(item[1]))

    def many(self, items: Sequence[Item]) -> str:
        return self.template.render(formats.listed(items))

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

    def many(self, items: Sequence[Item]) -> str:
        return self._table.render([self._row(item) for item in items])

    def appended(self, item: Item) -> str:
        return self.one(item)

    def _row(self, item: Item) -> list[str]:
        data = to_dict(item[1])
        return [",".join(map(jsonpath.text_of, column.path.find([data]))) or NONE for column in self._columns]


def columns(text: str) -> list[Column]:
    """NAME:.path,NAME:.path. A comma in brackets is the path's. Raises Failure (usage)."""
    found = []
    for part in _split(text):
        header, colon, path = part.partition(":")
        if not header or not colon or not path:
            hint = f"such as -o {COLUMNS}=NAME:.metadata.name,NODE:.spec.nodeName"
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
