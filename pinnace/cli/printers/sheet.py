"""The table of one kind of object."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from pinnace.api.resources import Object, Resource
from pinnace.cli.printers import COLUMNS
from pinnace.cli.printers.columns import View
from pinnace.cli.table import Table

T = TypeVar("T", bound=Object)


class Sheet(Generic[T]):
    """Renders objects in one or several goes, with the headers before the first rows."""

    def __init__(self, resource: Resource[T], view: View, *, headers: bool = True) -> None:
        self._columns = COLUMNS[resource.plural]
        self._view = view
        self._table = Table(view.headers(self._columns), show_headers=headers)

    def render(self, objs: Iterable[T], now: float) -> str:
        """Lines, each with its newline. `now` in Unix time."""
        ordered = sorted(objs, key=self._columns.order) if self._columns.order else objs
        return self._table.render([self._view.row(self._columns, obj, now) for obj in ordered])
