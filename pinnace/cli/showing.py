"""Showing objects: once, or for as long as they change; in tables, or as machines read them."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli import formats
from pinnace.cli.console import err, is_live, note, out
from pinnace.cli.picture import Picture
from pinnace.cli.printers import COLUMNS
from pinnace.cli.printers.columns import View
from pinnace.cli.printers.sheet import Sheet
from pinnace.cli.query import Query, fetch
from pinnace.cli.session import Session
from pinnace.cli.targets import Target, reference
from pinnace.cli.watching import Follower


@dataclass(frozen=True, slots=True)
class Style:
    """How to show objects."""

    form: str | None
    """yaml, json or name; None is a table."""
    view: View
    headers: bool

    def sheet(self, target: Target) -> Sheet[Any]:
        return Sheet(target.resource, self.view, headers=self.headers)


async def show(session: Session, query: Query, style: Style) -> None:
    """The present state, once."""
    found = [(target, await fetch(session, query, target)) for target in query.targets]
    if style.form is None:
        _tables(session, query, found, style)
        return
    items = [(target.resource, obj) for target, objs in found for obj in objs]
    asked_for_one = len(found) == 1 and len(found[0][0].names) == 1
    if not asked_for_one:
        out(formats.many(style.form, items))
    elif items:
        out(formats.one(style.form, items[0]))


def _tables(session: Session, query: Query, found: Sequence[tuple[Target, Sequence[Object]]], style: Style) -> None:
    several = len({target.resource for target, _ in found}) > 1
    now = time.time()
    tables = []
    for target, objs in found:
        if objs:
            view = replace(
                style.view,
                namespace=query.all_namespaces and target.resource.namespaced,
                prefix=reference(target.resource, "") if several else "",
            )
            tables.append(replace(style, view=view).sheet(target).render(objs, now))
    out("\n".join(tables))
    if not tables and not any(target.names for target, _ in found):
        one_namespace = any(query.namespace(target.resource, session) for target, _ in found)
        err(f"No resources found{f' in {session.namespace} namespace' if one_namespace else ''}.")


async def follow(session: Session, query: Query, style: Style) -> None:
    """The present state, and then every change: drawn in place on a terminal, appended otherwise.

    What is a log by nature (events, ordered by time) is always appended, and its objects end without a word.
    """
    (target,) = query.targets
    if target.names:
        await fetch(session, query, target)  # for its errors: what is not there is not waited for
        session.finish()
    style = replace(style, view=replace(style.view, namespace=query.all_namespaces and target.resource.namespaced))
    follower = Follower(session.client.of(target.resource), query.selection(target, session), note=note)
    await follower.start()
    is_log = COLUMNS[target.resource.plural].order is not None
    if style.form is None and is_live() and not is_log:
        picture = Picture(lambda: style.sheet(target).render(follower.store.values(), time.time()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(picture.run())
            tasks.create_task(follower.follow(lambda deltas: picture.changed()))
    else:
        append = _Appender(target, style)
        append(list(follower.store.values()))
        await follower.follow(
            lambda deltas: append([d.obj for d in deltas if not (is_log and d.kind == WatchEventType.DELETED)])
        )


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
            out(("---\n" if self._form == "yaml" else "") + formats.one(self._form, (self._target.resource, obj)))
