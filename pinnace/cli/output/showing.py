"""The values of `-o`, and the output of objects as tables or documents.

The modules of the other formats are imported when they are used, because most output is a table.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pinnace.api import tables_pb2
from pinnace.api.resources import Object, Resource
from pinnace.cli.objects.query import Item, Query, Target, fetch_list, fetch_table, of_each, reference, tell_none
from pinnace.cli.outcomes import usage
from pinnace.cli.session import Session
from pinnace.cli.terminal import Table, out
from pinnace.client.resource import Listing
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

DOCUMENTS = ("yaml", "json", "name")
JSONPATH = "jsonpath"
CUSTOM_COLUMNS = "custom-columns"
OUTPUTS = f"wide|{'|'.join(DOCUMENTS)}|{JSONPATH}=TEMPLATE|{CUSTOM_COLUMNS}=NAME:PATH,..."


class Format(Protocol):
    def one(self, item: Item) -> str:
        """Format an object that was requested by name."""

    def many(self, items: Sequence[Item], revision: int = 0) -> str:
        """Format the objects of a list. `revision` is the resourceVersion of the list; 0 if it has none."""

    def appended(self, item: Item) -> str:
        """Format an object that follows other output, as in a watch."""


def format_of(output: str | None, *, headers: bool = True, managed_fields: bool = False) -> Format | None:
    """Return the format for a value of OUTPUTS; None for tables (no value, or wide). Raises Failure (usage)."""
    if output is None or output == "wide":
        return None
    name, equals, argument = output.partition("=")
    if not equals and name in DOCUMENTS:
        from pinnace.cli.output.documents import Document

        return Document(name, managed_fields)
    if name == JSONPATH:
        if not argument:
            raise usage(
                "template format specified but no template given", hint=f"such as -o {JSONPATH}='{{.items[*].metadata.name}}'"
            )
        from pinnace.cli import jsonpath
        from pinnace.cli.output import documents

        return documents.Templated(jsonpath.parse(argument))
    if name == CUSTOM_COLUMNS:
        from pinnace.cli.output import documents

        return documents.Columned(documents.columns(argument), headers)
    raise usage(f'unable to match a printer for the output format "{output}"', hint=f"allowed formats are {OUTPUTS}")


T = TypeVar("T", bound=Object)


class ObjectTable(Generic[T]):
    """Renders objects in several calls, with the headers before the first rows."""

    def __init__(self, resource: Resource[T], view: View, *, headers: bool = True) -> None:
        self._columns = COLUMNS[resource.plural]
        self._view = view
        self._table = Table(view.headers(self._columns), show_headers=headers)

    def render(self, objs: Iterable[T], now: float, *, as_given: bool = False) -> str:
        """Return the rows as lines, in the default order of the kind unless `as_given`. `now` is in Unix seconds."""
        ordered = sorted(objs, key=self._columns.order) if self._columns.order and not as_given else objs
        return self._table.render([self._view.row(self._columns, obj, now) for obj in ordered])


@dataclass(frozen=True, slots=True)
class Head:
    """The column names of a table of the server."""

    headers: tuple[str, ...]
    wide: tuple[str, ...]


def printed(table: tables_pb2.Table, view: View, *, headers: bool = True) -> str:
    """Return the lines of a table of the server."""
    names = [tuple(each.name for each in table.columnDefinitions if (each.priority > 0) is wide) for wide in (False, True)]
    head = Head(*names)
    rows = [view.frame(head, row.cells, row.object) for row in table.rows]
    return Table(view.headers(head), show_headers=headers).render(rows)


Order: TypeAlias = Callable[[Sequence[Object]], list[Object]]


@dataclass(frozen=True, slots=True)
class Style:
    """The output options of objects."""

    format: Format | None
    """None means a table."""
    view: View
    headers: bool
    order: Order | None = None
    """Sorts the objects of each kind; None keeps their order."""

    def table(self, target: Target) -> ObjectTable[Any]:
        return ObjectTable(target.resource, self.view, headers=self.headers)


async def show(session: Session, query: Query, style: Style) -> None:
    """Print the current objects, followed by the errors."""
    session.tell_failures_last()
    if style.format is None:
        await _show_tables(session, query, style)
        return

    async def items_of(target: Target) -> tuple[list[Item], int]:
        found = await _fetch(session, query, target, style)
        return [(target.resource, obj) for obj in found.items], found.resource_version

    found = await of_each(session, query, items_of)
    items = [item for part, _ in found for item in part]
    revision = found[0][1] if len(query.targets) == len(found) == 1 else 0
    asked_for_one = len(query.targets) == 1 and len(query.targets[0].names) == 1
    if not asked_for_one:
        out(style.format.many(items, revision))
    elif items:
        out(style.format.one(items[0]))


async def _fetch(session: Session, query: Query, target: Target, style: Style) -> Listing[Object]:
    found = await fetch_list(session, query, target)
    return Listing(style.order(found.items), found.resource_version) if style.order else found


async def _show_tables(session: Session, query: Query, style: Style) -> None:
    tables = await of_each(session, query, lambda target: _table(session, query, target, framed(style, query, target)))
    out("\n".join(filter(None, tables)))
    if not any(tables) and query.selects:
        tell_none(session, query)


async def _table(session: Session, query: Query, target: Target, style: Style) -> str:
    """Return the table, empty without objects. The server prints a list, unless the rows have another order than the
    server's."""
    view = style.view
    if target.names or style.order or COLUMNS[target.resource.plural].order is not None:
        objs = (await _fetch(session, query, target, style)).items
        return style.table(target).render(objs, time.time(), as_given=style.order is not None) if objs else ""
    table = await fetch_table(session, query, target, metadata=view.with_metadata)
    return printed(table, view, headers=style.headers) if table.rows else ""


def framed(style: Style, query: Query, target: Target) -> Style:
    """Add the columns that distinguish objects of several namespaces or kinds."""
    several = len({each.resource for each in query.targets}) > 1
    view = replace(
        style.view,
        namespace=query.all_namespaces and target.resource.namespaced,
        prefix=reference(target.resource, "") if several else "",
    )
    return replace(style, view=view)
