"""Showing objects in tables, or as machines read them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pinnace.api.resources import Object
from pinnace.cli.objects.query import Query, fetch_list, fetch_table, of_each, tell_none
from pinnace.cli.objects.targets import Item, Target, reference
from pinnace.cli.output.formats import Format
from pinnace.cli.output.object_table import ObjectTable, printed
from pinnace.cli.session import Session
from pinnace.cli.terminal.console import out
from pinnace.client.resource import Listing
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

Order: TypeAlias = Callable[[Sequence[Object]], list[Object]]


@dataclass(frozen=True, slots=True)
class Style:
    """How to show objects."""

    format: Format | None
    """None is a table."""
    view: View
    headers: bool
    order: Order | None = None
    """Sorts the objects of each kind; None leaves the order that they have."""

    def table(self, target: Target) -> ObjectTable[Any]:
        return ObjectTable(target.resource, self.view, headers=self.headers)


async def show(session: Session, query: Query, style: Style) -> None:
    """The present state, once; what could not be had is told after it."""
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
    """Empty when there are no objects. A list is printed by the server, unless its rows have another order than it gives."""
    view = style.view
    if target.names or style.order or COLUMNS[target.resource.plural].order is not None:
        objs = (await _fetch(session, query, target, style)).items
        return style.table(target).render(objs, time.time(), as_given=style.order is not None) if objs else ""
    table = await fetch_table(session, query, target, metadata=view.with_metadata)
    return printed(table, view, headers=style.headers) if table.rows else ""


def framed(style: Style, query: Query, target: Target) -> Style:
    """The style with what tells the objects of a table from others."""
    several = len({each.resource for each in query.targets}) > 1
    view = replace(
        style.view,
        namespace=query.all_namespaces and target.resource.namespaced,
        prefix=reference(target.resource, "") if several else "",
    )
    return replace(style, view=view)
