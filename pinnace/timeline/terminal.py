"""The timeline in a terminal: lanes of terms, nodes, pods, the queue and events, from the stream of a gateway (site.py).

    stream(link)     items of the gateway; resumes after a lost connection (Last-Event-ID)
    Snapshot         the state that items add up to; pure
    TerminalTimeline the screen; space pauses, q quits

Tables are capped at MAX_ROWS rows and name how many more there are. Text of objects is shown without control characters and is
never interpreted as markup. Needs Textual (the extra `ui`).
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Static

from pinnace.timeline.items import PHASES, TimelineItem

MAX_ROWS = 200
MAX_EVENTS = 500
SPAN = 60.0
"""Seconds that the lanes show."""
REFRESH_INTERVAL = 0.25
RETRY_INTERVAL = 1.0
SILENCE_TIMEOUT = 5.0
LINE_LIMIT = 256 << 20
"""Bytes of one server-sent event."""
COLOURS = ("green", "blue", "magenta", "cyan", "yellow")


class StreamError(Exception):
    """The gateway refuses the stream. The message names the reason."""


class TimelineFrame(NamedTuple):
    """`reset`: the items replace all earlier ones."""

    reset: bool
    items: Sequence[TimelineItem]
    now: float


async def stream_frames(link: str) -> AsyncIterator[TimelineFrame | None]:
    """Frames of the gateway, for a one-time link; None when the connection is lost. Raises StreamError."""
    parts, last = urlsplit(link), ""
    site = f"{parts.scheme}://{parts.netloc}"
    timeout = ClientTimeout(total=None, sock_connect=SILENCE_TIMEOUT, sock_read=SILENCE_TIMEOUT)
    async with ClientSession(timeout=timeout, read_bufsize=LINE_LIMIT) as http:
        try:
            async with http.post(f"{site}/api/login", json={"token": parts.fragment.removeprefix("token=")}) as response:
                if response.status != 200:
                    raise StreamError((await response.text()).strip())
                session = {"Authorization": f"Bearer {(await response.json())['session']}"}
        except (ClientError, TimeoutError) as error:
            raise StreamError(f"the gateway does not answer: {error or 'timed out'}") from None
        while True:
            try:
                headers = session | ({"Last-Event-ID": last} if last else {})
                async with http.get(f"{site}/api/stream", headers=headers) as response:
                    if response.status in (401, 403, 503):
                        raise StreamError((await response.text()).strip())
                    fields: dict[str, str] = {}
                    async for line in response.content:
                        name, result, value = line.decode().rstrip("\n").partition(": ")
                        if result:
                            fields[name] = value
                        elif fields:
                            data = json.loads(fields["data"])
                            if fields["event"] == "end":
                                raise StreamError(data["reason"])
                            last = fields["id"]
                            yield TimelineFrame(
                                fields["event"] == "reset", [*data.get("base", ()), *data["items"]], data["now"]
                            )
                            fields = {}
            except (ClientError, TimeoutError, ValueError, KeyError):
                pass
            yield None
            await asyncio.sleep(RETRY_INTERVAL)


class TimelineSnapshot:
    """The latest state of every subject."""

    def __init__(self) -> None:
        self.terms: dict[tuple[str, int], TimelineItem] = {}
        self.nodes: dict[int, TimelineItem] = {}
        self.pods: dict[int, TimelineItem] = {}
        self.lanes: set[str] = set()
        self.candidates: dict[tuple[str, str], str] = {}
        """Holders of candidates by election and session."""
        self.processes: dict[str, str] = {}
        self.queue: TimelineItem | None = None
        self._events: dict[Hashable, tuple[float, str]] = {}

    @property
    def events(self) -> list[tuple[float, str]]:
        """Times and texts, oldest first."""
        return sorted(self._events.values())

    def apply(self, items: Sequence[TimelineItem]) -> None:
        for item in items:
            kind = item[0]
            if kind == "t":
                self._apply_term(item)
            elif kind == "n":
                self._replace(self.nodes, item, "gone")
            elif kind == "p":
                self._replace(self.pods, item, "deleted")
            elif kind == "c":
                self._apply_candidate(item)
            elif kind == "m":
                self._add_event(("mark", item[3]), item[1], f"{item[4]}: {item[6]}")
            elif kind == "s":
                self.lanes.add(item[3])
                if self.processes.get(item[3], "up") != item[4]:
                    self._add_event(("process", item[3], item[1]), item[1], f"{item[3]} is {item[4]}")
                self.processes[item[3]] = item[4]
            elif kind == "q":
                self.queue = item

    def describe_leaders(self, now: float) -> list[str]:
        """One line for each election: its holder and token, or the seconds without one."""
        result = []
        for election in sorted({election for election, _ in self.terms}):
            term = self._last_term(election)
            held = f"{term[5]}  token {term[4]}" if term[6] is None else f"no leader for {max(0.0, now - term[6]):.1f} s"
            result.append(f"{election}: {held}" + (f"  outage {_format_short(term[9])}" if term[9] is not None else ""))
        return result

    def render_lane(self, name: str, start: float, end: float, width: int) -> str:
        """A bar of `width` characters: "█" where the lane held an election, "·" elsewhere. Terms without an end last."""
        cells = ["·"] * width
        for term in self.terms.values():
            if term[5] == name and term[1] < end and (term[6] is None or term[6] > start):
                first = int(max(0.0, term[1] - start) / (end - start) * width)
                last = int((min(end, end if term[6] is None else term[6]) - start) / (end - start) * width)
                for cell in range(first, max(first + 1, min(width, last))):
                    cells[min(cell, width - 1)] = "█"
        return "".join(cells)

    def is_waiting_candidate(self, name: str) -> bool:
        """Whether a process is a candidate and leads no election."""
        leads = any(term[5] == name and term[6] is None for term in self.terms.values())
        return name in self.candidates.values() and not leads

    def _apply_candidate(self, item: TimelineItem) -> None:
        if item[5]:
            self.lanes.add(item[5])
            self.candidates[item[3], item[4]] = item[5]
        else:
            self.candidates.pop((item[3], item[4]), None)

    def _apply_term(self, item: TimelineItem) -> None:
        _, began, _, election, token, holder, ended, reason, gap, outage = item
        self.terms[election, token] = item
        self.lanes.add(holder)
        times = (
            f", {_format_short(gap)} after the last leader, {_format_short(outage)} after its last heartbeat"
            if outage is not None
            else ""
        )
        self._add_event(("begun", election, token), began, f'{holder} was elected in "{election}" with token {token}{times}')
        if ended is not None:
            why = f": {reason}" if reason else ""
            self._add_event(("ended", election, token), ended, f"the term {token} of {holder} ended{why}")

    def _add_event(self, subject: Hashable, at: float, text: str) -> None:
        """Add an event. It replaces an earlier event about the same subject."""
        self._events[subject] = at, text
        if len(self._events) > MAX_EVENTS:
            del self._events[next(iter(self._events))]

    def _last_term(self, election: str) -> TimelineItem:
        """The last term of an election."""
        return self.terms[election, max(token for name, token in self.terms if name == election)]

    @staticmethod
    def _replace(subjects: dict[int, TimelineItem], item: TimelineItem, over: str) -> None:
        if item[5] == over:
            subjects.pop(item[3], None)
        else:
            subjects[item[3]] = item


def _format_short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def strip_markup(text: str) -> Text:
    """Text without markup and control characters."""
    return Text("".join(item if item.isprintable() else "?" for item in text))


class TerminalTimeline(App[str]):
    """Returns the reason if the stream ended."""

    CSS = """
    #leaders, #lanes, #counts { height: auto; padding: 0 1; }
    #leaders { text-style: bold; }
    #lanes { max-height: 50%; }
    DataTable { width: 1fr; height: 1fr; }
    """
    BINDINGS: ClassVar[Any] = [("space", "pause", "Pause"), ("q", "quit", "Quit")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, frames: AsyncIterator[TimelineFrame | None]) -> None:
        super().__init__()
        self.snapshot = TimelineSnapshot()
        self.paused = False
        self.connected = False
        self._frames = frames
        self._offset = 0.0
        self._waiting: list[TimelineFrame] = []

    def compose(self) -> ComposeResult:
        yield Static(id="leaders", markup=False)
        yield Static(id="lanes", markup=False)
        yield Static(id="counts", markup=False)
        with Horizontal():
            yield DataTable(id="pods", cursor_type="none")
            yield DataTable(id="events", cursor_type="none")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#pods", DataTable).add_columns("POD", "PHASE", "NODE")
        self.query_one("#events", DataTable).add_columns("TIME", "EVENT")
        self.set_interval(REFRESH_INTERVAL, self.draw)
        self.run_worker(self._follow(), exit_on_error=True)

    def action_pause(self) -> None:
        self.paused = not self.paused
        if not self.paused:
            for frame in self._waiting:
                self._apply(frame)
            self._waiting.clear()
        self.draw(force=True)

    async def _follow(self) -> None:
        try:
            async for frame in self._frames:
                self.connected = frame is not None
                if frame is None:
                    continue
                if not self.paused:
                    self._apply(frame)
                    continue
                if frame.reset:
                    self._waiting.clear()
                if frame.items:
                    self._waiting.append(frame)
        except StreamError as error:
            self.exit(str(error))

    def _apply(self, frame: TimelineFrame) -> None:
        if frame.reset:
            self.snapshot = TimelineSnapshot()
        self._offset = time.time() - frame.now
        self.snapshot.apply(frame.items)

    def draw(self, force: bool = False) -> None:
        if self.paused and not force:
            return
        snapshot, now = self.snapshot, time.time() - self._offset
        status = "paused" if self.paused else "live" if self.connected else "disconnected"
        self.query_one("#leaders", Static).update(strip_markup(f"{status}   " + "   ".join(snapshot.describe_leaders(now))))
        self.query_one("#lanes", Static).update(self._render_lanes(now))
        self.query_one("#counts", Static).update(Text("\n").join(map(strip_markup, _format_counts(snapshot))))
        pods = list(snapshot.pods.values())
        rows = [(pod[4], pod[5], _node_text(snapshot.nodes, pod[6])) for pod in pods[-MAX_ROWS:][::-1]]
        _fill_table(self.query_one("#pods", DataTable), rows, len(pods))
        events = [(time.strftime("%H:%M:%S", time.localtime(at)), text) for at, text in reversed(snapshot.events)]
        _fill_table(self.query_one("#events", DataTable), events[:MAX_ROWS], len(events))

    def _render_lanes(self, now: float) -> Text:
        snapshot, text = self.snapshot, Text()
        names = sorted(snapshot.lanes)
        gutter = max((len(name) for name in names), default=0) + 2
        width = max(10, self.size.width - gutter - 12)
        for number, name in enumerate(names):
            state = snapshot.processes.get(name, "up")
            text.append_text(strip_markup(f"{name:<{gutter}}"))
            text.append(snapshot.render_lane(name, now - SPAN, now, width), COLOURS[number % len(COLOURS)])
            text.append(f" {state}" if state != "up" else "", "bold red")
            text.append(" waiting\n" if state == "up" and snapshot.is_waiting_candidate(name) else "\n", "dim")
        return text


def _format_counts(found: TimelineSnapshot) -> list[str]:
    nodes = Counter(str(node[5]) for node in found.nodes.values())
    phases = Counter(str(pod[5]) for pod in found.pods.values())
    lines = [f"{len(found.nodes):,} nodes: " + ", ".join(f"{count:,} {state}" for state, count in sorted(nodes.items()))]
    lines.append(f"{len(found.pods):,} pods: " + ", ".join(f"{phases[phase]:,} {phase}" for phase in PHASES if phases[phase]))
    if found.queue is not None:
        names = ("active", "backoff", "unschedulable", "gated")
        lines.append("queue: " + ", ".join(f"{count} {name}" for name, count in zip(names, found.queue[3:], strict=True)))
    return lines


def _node_text(nodes: Mapping[int, TimelineItem], number: int) -> str:
    return str(nodes[number][4]) if number in nodes else ""


def _fill_table(table: DataTable[Any], rows: Sequence[Sequence[str]], total: int) -> None:
    table.clear()
    for row in rows:
        table.add_row(*(strip_markup(cell) for cell in row))
    if total > len(rows):
        table.add_row(strip_markup(f"... and {total - len(rows):,} more"), *("" for _ in table.ordered_columns[1:]))
