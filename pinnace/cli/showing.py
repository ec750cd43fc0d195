"""Showing objects in tables, or as machines read them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pinnace.api.resources import Object
from pinnace.cli.console import out
from pinnace.cli.forms import Form
from pinnace.cli.query import Query, fetch, fetch_table, tell_none
from pinnace.cli.session import Session
from pinnace.cli.sheet import Sheet, printed
from pinnace.cli.targets import Target, reference
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

Order: TypeAlias = Callable[[Sequence[Object]], list[Object]]


@dataclass(frozen=True, slots=True)
class Style:
    """How to show objects."""

    form: Form | None
    """None is a table."""
    view: View
    headers: bool
    order: Order | None = None
    """Sorts the objects of each kind; None leaves the order that they have."""

    def sheet(self, target: Target) -> Sheet[Any]:
        return Sheet(target.resource, self.view, headers=self.headers)


async def show(session: Session, query: Query, style: Style) -> None:
    """The present state, once."""
    if style.form is None:
        await _show_tables(session, query, style)
        return
    found = [(target, await _fetch(session, query, target, style)) for target in query.targets]
    items = [(target.resource, obj) for target, objs in found for obj in objs]
    asked_for_one = len(found) == 1 and len(found[0][0].names) == 1
    if not asked_for_one:
        out(style.form.many(items))
    elif items:
        out(style.form.one(items[0]))


async def _fetch(session: Session, query: Query, target: Target, style: Style) -> list[Object]:
    objs = await fetch(session, query, target)
    return style.order(objs) if style.order else objs


async def _show_tables(session: Session, query: Query, style: Style) -> None:
    tables = [await _table(session, query, target, framed(style, query, target)) for target in query.targets]
    out("\n".join(filter(None, tables)))
    if not any(tables) and query.selects:
        tell_none(session, query)


async def _table(session: Session, query: Query, target: Target, style: Style) -> str:
    """Empty when there are no objects. A list is printed by the server, unless its rows have another order than it gives."""
    view = style.view
    if target.names or style.order or COLUMNS[target.resource.plural].order is not None:
        objs = await _fetch(session, query, target, style)
        return style.sheet(target).render(objs, time.time(), as_given=style.order is not None) if objs else ""
    table = await fetch_table(session, query, target, metadata=view.namespace or view.labels)
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
