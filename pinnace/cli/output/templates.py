"""`-o jsonpath|custom-columns`: what paths find in objects."""

from collections.abc import Sequence
from dataclasses import dataclass

from pinnace.api.codec import to_dict
from pinnace.cli import jsonpath
from pinnace.cli.objects.targets import Item
from pinnace.cli.outcomes import usage
from pinnace.cli.output import documents
from pinnace.cli.terminal.table import Table
from pinnace.printers.columns import NONE


@dataclass(frozen=True, slots=True)
class Templated:
    """What a template makes of an object, or of the List of several. It brings its own newlines, as with kubectl."""

    template: jsonpath.Template

    def one(self, item: Item) -> str:
        return self.template.render(to_dict(item[1]))

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        return self.template.render(documents.listed(items, revision))

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
