"""Showing objects: once, or for as long as they change; in tables, or as machines read them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli.console import err, is_live, note, out
from pinnace.cli.forms import Form
from pinnace.cli.jsonpath import Path
from pinnace.cli.picture import Picture
from pinnace.cli.query import Query, fetch, fetch_table
from pinnace.cli.session import Session
from pinnace.cli.sheet import Sheet, printed
from pinnace.cli.sorting import ordered
from pinnace.cli.targets import Target, reference
from pinnace.cli.watching import Follower
from pinnace.client.informer import Delta
from pinnace.printers import COLUMNS
from pinnace.printers.columns import View

Told = Callable[[Sequence[Delta[Any]]], None]


@dataclass(frozen=True, slots=True)
class Style:
    """How to show objects."""

    form: Form | None
    """None is a table."""
    view: View
    headers: bool
    order: Path | None = None
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
    return ordered(objs, style.order) if style.order else objs


async def _show_tables(session: Session, query: Query, style: Style) -> None:
    tables = [await _table(session, query, target, _framed(style, query, target)) for target in query.targets]
    out("\n".join(filter(None, tables)))
    if not any(tables) and not any(target.names for target in query.targets):
        one_namespace = any(query.namespace(target.resource, session) for target in query.targets)
        err(f"No resources found{f' in {session.namespace} namespace' if one_namespace else ''}.")


async def _table(session: Session, query: Query, target: Target, style: Style) -> str:
    """Empty when there are no objects. A list is printed by the server, unless its rows have another order than it gives."""
    view = style.view
    if target.names or style.order or COLUMNS[target.resource.plural].order is not None:
        objs = await _fetch(session, query, target, style)
        return style.sheet(target).render(objs, time.time(), as_given=style.order is not None) if objs else ""
    table = await fetch_table(session, query, target, metadata=view.namespace or view.labels)
    return printed(table, view, headers=style.headers) if table.rows else ""


def _framed(style: Style, query: Query, target: Target) -> Style:
    """The style with what tells the objects of a table from others."""
    several = len({each.resource for each in query.targets}) > 1
    view = replace(
        style.view,
        namespace=query.all_namespaces and target.resource.namespaced,
        prefix=reference(target.resource, "") if several else "",
    )
    return replace(style, view=view)


async def follow(session: Session, query: Query, style: Style) -> None:
    """The present state, and then every change: drawn in place on a terminal, appended otherwise.

    Each kind is a watch of its own: changes of one are told in order, those of two as they come. What is a log by nature
    (events, ordered by time) is always appended, and its objects end without a word.
    """
    for target in query.targets:
        if target.names:
            await fetch(session, query, target)  # for its errors: what is not there is not waited for
    session.finish()
    followed = [_Followed(session, query, target, style) for target in query.targets]
    await asyncio.gather(*(each.follower.start() for each in followed))
    in_place = style.form is None and is_live() and not any(each.is_log for each in followed)
    picture = Picture(lambda: "\n".join(filter(None, (each.table() for each in followed))))
    async with asyncio.TaskGroup() as tasks:
        if in_place:
            tasks.create_task(picture.run())
        for each in followed:
            changed = each.redrawn(picture) if in_place else each.appended()
            tasks.create_task(each.follower.follow(changed))


class _Followed:
    """The objects of one target, and how their changes are shown."""

    def __init__(self, session: Session, query: Query, target: Target, style: Style) -> None:
        plural = target.resource.plural
        several = len(query.targets) > 1
        self.is_log = COLUMNS[plural].order is not None
        self.follower: Follower[Any] = Follower(
            session.client.of(target.resource),
            query.selection(target, session),
            note=lambda text: note(f"{plural}: {text}" if several else text),
        )
        self._target = target
        self._style = _framed(style, query, target)
        self._several = several

    def table(self) -> str:
        """Of all of them; empty where there are tables of others and there is nothing."""
        objs = self.follower.store.values()
        return self._style.sheet(self._target).render(objs, time.time()) if objs or not self._several else ""

    def redrawn(self, picture: Picture) -> Told:
        return lambda deltas: picture.changed()

    def appended(self) -> Told:
        """Prints what there is, and what is told from then on."""
        append = _Appender(self._target, self._style)
        if self.follower.store or not self._several:
            append(list(self.follower.store.values()))
        return lambda deltas: append([d.obj for d in deltas if not (self.is_log and d.kind == WatchEventType.DELETED)])


class _Appender:
    """Prints objects below one another."""

    def __init__(self, target: Target, style: Style) -> None:
        self._target = target
        self._form = style.form
        self._sheet = style.sheet(target)

    def __call__(self, objs: Sequence[Object]) -> None:
        if self._form is None:
            out(self._sheet.render(objs, time.time()))
            return
        for obj in objs:
            out(self._form.appended((self._target.resource, obj)))
