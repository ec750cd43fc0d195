"""The timeline in a terminal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.widgets import DataTable, Static

from pinnace.timeline.items import ItemLog, TimelineItem
from pinnace.timeline.site import TimelineSite, Viewer, ViewerSessions, serve_site
from pinnace.timeline.terminal import MAX_ROWS, StreamError, TerminalTimeline, TimelineFrame, TimelineSnapshot, stream_frames
from tests.unit.timeline.test_site import FakeSource

ENDED: TimelineItem = ["t", 10.0, 1, "scheduler", 7, "scheduler-0", 20.0, "stream closed", None, None]
HELD: TimelineItem = ["t", 20.05, 2, "scheduler", 9, "scheduler-1", None, "", 0.05, 1.25]
NODE: TimelineItem = ["n", 1.0, 3, 0, "node-0", "not-ready", 4000, 1 << 30, "", []]


def pods(count: int) -> list[TimelineItem]:
    return [["p", 1.0, 5, number, f"default/pod-{number}", "pending", -1, 0, 0] for number in range(count)]


def test_leaders_have_tokens_and_gaps() -> None:
    snapshot = TimelineSnapshot()
    snapshot.apply([["t", 10.0, 1, "scheduler", 7, "scheduler-0", None, "", None, None], ENDED])
    assert snapshot.describe_leaders(21.0) == ["scheduler: no leader for 1.0 s"]
    snapshot.apply([HELD])
    assert snapshot.describe_leaders(21.0) == ["scheduler: scheduler-1  token 9  outage 1.25 s"]
    assert [text for _, text in snapshot.events][1:] == [
        "the term 7 of scheduler-0 ended: stream closed",
        'scheduler-1 was elected in "scheduler" with token 9, 50 ms after the last leader, 1.25 s after its last heartbeat',
    ]


def test_lanes_show_terms_and_gaps() -> None:
    snapshot = TimelineSnapshot()
    snapshot.apply([ENDED, ["t", 25.0, 2, "scheduler", 9, "scheduler-1", None, "", None, None]])
    assert snapshot.render_lane("scheduler-0", 0.0, 40.0, 8) == "··██····"
    assert snapshot.render_lane("scheduler-1", 0.0, 40.0, 8) == "·····███"
    assert snapshot.render_lane("scheduler-0", 30.0, 40.0, 8) == "········"


def test_deleted_objects_are_not_counted() -> None:
    snapshot = TimelineSnapshot()
    snapshot.apply([*pods(2), NODE, ["p", 2.0, 6, 0, "default/pod-0", "deleted", -1, 0, 0]])
    assert list(snapshot.pods) == [1] and list(snapshot.nodes) == [0]


class Frames:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[TimelineFrame | Exception | None] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[TimelineFrame | None]:
        return self

    async def __anext__(self) -> TimelineFrame | None:
        result = await self.queue.get()
        if isinstance(result, Exception):
            raise result
        return result


async def eventually(app: Any, pilot: Any, text: str, name: str = "#leaders") -> str:
    async with asyncio.timeout(20):
        while text not in (shown := str(app.query_one(name, Static).render())):
            await pilot.pause(0.05)
    return shown


async def test_screen_shows_leaders_nodes_and_capped_tables() -> None:
    frames = Frames()
    app = TerminalTimeline(frames)
    async with app.run_test(size=(120, 40)) as pilot:
        await frames.queue.put(TimelineFrame(True, [ENDED, HELD, NODE, *pods(MAX_ROWS + 50)], 21.0))
        await eventually(app, pilot, "scheduler-1  token 9")
        assert "1 nodes: 1 not-ready\n250 pods: 250 pending" in str(app.query_one("#counts", Static).render())
        table = app.query_one("#pods", DataTable)
        assert table.row_count == MAX_ROWS + 1 and "50 more" in str(table.get_row_at(MAX_ROWS)[0])
        await frames.queue.put(None)
        await eventually(app, pilot, "disconnected")


async def test_pause_freezes_the_screen_without_loss() -> None:
    frames = Frames()
    app = TerminalTimeline(frames)
    async with app.run_test(size=(120, 40)) as pilot:
        await frames.queue.put(TimelineFrame(True, [ENDED], 21.0))
        await eventually(app, pilot, "no leader")
        await pilot.press("space")
        await eventually(app, pilot, "paused")
        await frames.queue.put(TimelineFrame(False, [HELD], 22.0))
        await pilot.pause(0.6)
        assert "no leader" in str(app.query_one("#leaders", Static).render())
        await pilot.press("space")
        await eventually(app, pilot, "scheduler-1  token 9")
        await pilot.press("q")
    assert app.return_value is None


async def test_markup_and_control_characters_are_text() -> None:
    frames = Frames()
    app = TerminalTimeline(frames)
    async with app.run_test(size=(120, 40)) as pilot:
        mark: TimelineItem = ["m", 1.0, 0, 0, "etcd", "event", "[red]a[/red]\x1b[2J[/", None]
        await frames.queue.put(TimelineFrame(True, [mark, HELD], 21.0))
        await eventually(app, pilot, "token 9")
        row = app.query_one("#events", DataTable).get_row_at(1)
        assert str(row[1]) == "etcd: [red]a[/red]?[2J[/"


async def test_refused_stream_ends_the_screen_with_the_reason() -> None:
    frames = Frames()
    app = TerminalTimeline(frames)
    async with app.run_test() as pilot:
        await frames.queue.put(StreamError("no permission"))
        async with asyncio.timeout(20):
            while app.return_value is None:
                await pilot.pause(0.05)
    assert app.return_value == "no permission"


async def test_stream_of_a_site_is_read_and_its_link_works_once() -> None:
    source, sessions = FakeSource(), ViewerSessions()
    site = TimelineSite(source, sessions)
    runner, url = await serve_site(site, "127.0.0.1", 0)
    running = asyncio.ensure_future(site.run())
    try:
        source.log = ItemLog()
        source.add("default/a")
        link = sessions.create_link(url, Viewer("someone"))
        frames = stream_frames(link)
        async with asyncio.timeout(20):
            first = await anext(frames)
            assert first is not None and first.reset and first.items[0][4] == "default/a"
            source.add("default/b")
            while not (frame := await anext(frames)) or not frame.items:
                pass
            assert not frame.reset and frame.items[0][4] == "default/b"
        await frames.aclose()
        with pytest.raises(StreamError, match="was used before"):
            await anext(stream_frames(link))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.cleanup()
