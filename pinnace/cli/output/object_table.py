"""The table of one kind of object."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pinnace.api import tables_pb2
from pinnace.api.resources import Object, Resource
from pinnace.cli.terminal.table import Table
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

T = TypeVar("T", bound=Object)


class ObjectTable(Generic[T]):
    """Renders objects in one or several goes, with the headers before the first rows."""

    def __init__(self, resource: Resource[T], view: View, *, headers: bool = True) -> None:
        self._columns = COLUMNS[resource.plural]
        self._view = view
        self._table = Table(view.headers(self._columns), show_headers=headers)

    def render(self, objs: Iterable[T], now: float, *, as_given: bool = False) -> str:
        """Lines, each with its newline, in the kind's own order or as given. `now` in Unix time."""
        ordered = sorted(objs, key=self._columns.order) if self._columns.order and not as_given else objs
        return self._table.render([self._view.row(self._columns, obj, now) for obj in ordered])


@dataclass(frozen=True, slots=True)
class Head:
    """Names of the columns that a server has printed."""

    headers: tuple[str, ...]
    wide: tuple[str, ...]


def printed(table: tables_pb2.Table, view: View, *, headers: bool = True) -> str:
    """Lines of a table that the server has printed, each with its newline."""
    names = [tuple(each.name for each in table.columnDefinitions if (each.priority > 0) is wide) for wide in (False, True)]
    head = Head(*names)
    rows = [view.frame(head, row.cells, row.object) for row in table.rows]
    return Table(view.headers(head), show_headers=headers).render(rows)
