"""Output of a watch: a table that is redrawn in place on a terminal, or appended lines."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from pinnace.api.resources import Object
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli.objects.query import Query, Target, fetch
from pinnace.cli.output.showing import Style, framed
from pinnace.cli.session import Session
from pinnace.cli.terminal import is_live, note, out
from pinnace.cli.waiting import Follower
from pinnace.client.informer import Delta
from pinnace.printers import COLUMNS


class LiveText:
    """Text that is redrawn in place after each change and every second, because it contains ages."""

    INTERVAL = 0.1
    """Minimum seconds between two drawings."""
    REFRESH = 1.0

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Draw until cancelled; the last drawing remains. Return, and remove the drawing, when the text has more lines than the
        screen, because lines that have scrolled off cannot be redrawn."""
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        console = Console(highlight=False)

        def fitting() -> Text | None:
            text = self._text().rstrip("\n")
            return Text(text, no_wrap=True) if text.count("\n") < console.height else None

        if fitting() is None:
            return
        with Live(console=console, auto_refresh=False) as live:
            while True:
                self._changed.clear()
                text = fitting()
                if text is None:
                    live.transient = True  # removes the drawing
                    return
                live.update(text, refresh=True)
                await asyncio.sleep(self.INTERVAL)
                try:
                    async with asyncio.timeout(self.REFRESH):
                        await self._changed.wait()
                except TimeoutError:
                    continue


OnChange = Callable[[Sequence[Delta[Any]]], None]


async def follow(session: Session, query: Query, style: Style) -> None:
    """Print the current objects and then every change. On a terminal the table is redrawn in place while it fits on the screen;
    otherwise rows are appended.
    Each kind has its own watch, so the order of changes is preserved within a kind only. Kinds with a chronological order
    (events) are always appended, and their deletions are not printed.
    """
    for target in query.targets:
        if target.names:
            await fetch(session, query, target)  # reports named objects that do not exist
    session.finish()
    followed = [_Followed(session, query, target, style) for target in query.targets]
    await asyncio.gather(*(each.follower.start() for each in followed))
    in_place = style.format is None and is_live() and not any(each.is_log for each in followed)
    live = LiveText(lambda: "\n".join(filter(None, (each.table() for each in followed))))
    async with asyncio.TaskGroup() as tasks:
        for each in followed:
            each.told = each.redrawn(live) if in_place else each.appended()
            tasks.create_task(each.follow())
        if in_place:
            await live.run()
            for each in followed:
                each.told = each.appended()


class _Followed:
    """The objects of one target, and the output of their changes."""

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
        self._style = framed(style, query, target)
        self._several = several
        self.told: OnChange = lambda deltas: None
        """Receives the changes. It can be replaced between two calls."""

    async def follow(self) -> None:
        await self.follower.follow(lambda deltas: self.told(deltas))

    def table(self) -> str:
        """Return the table. Without objects, it is empty if other kinds have tables."""
        objs = self.follower.store.values()
        return self._style.table(self._target).render(objs, time.time()) if objs or not self._several else ""

    def redrawn(self, live: LiveText) -> OnChange:
        return lambda deltas: live.changed()

    def appended(self) -> OnChange:
        """Print the current objects, and return the function that prints changes."""
        append = _Appender(self._target, self._style)
        if self.follower.store or not self._several:
            append(list(self.follower.store.values()))
        return lambda deltas: append([d.obj for d in deltas if not (self.is_log and d.kind == WatchEventType.DELETED)])


class _Appender:
    """Appends objects to the output."""

    def __init__(self, target: Target, style: Style) -> None:
        self._target = target
        self._format = style.format
        self._table = style.table(target)

    def __call__(self, objs: Sequence[Object]) -> None:
        if self._format is None:
            out(self._table.render(objs, time.time()))
            return
        for obj in objs:
            out(self._format.appended((self._target.resource, obj)))
