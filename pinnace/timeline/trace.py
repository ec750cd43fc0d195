"""A timeline as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing. Pure.

    lane                 a process of the trace
    term                 a complete event on the lane of its holder, one thread for each election
    outage               a complete event of the process "elections": the time without a working leader, with the gap in it
    down, frozen         a complete event on the lane
    fault                an async event, which may overlap with others; without an end, an instant event
    refused writes       an instant event on the lane of the deposed leader, as are actions and other marks
    decision             an instant event on the lane of the leading scheduler, for each pod that was bound
    pods, queue          counters

Times are microseconds since the first item; `otherData.started` is its time.

Source: the Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pinnace.timeline.items import PHASES, TimelineItem, item_time

Event = dict[str, Any]
SCHEDULER = "scheduler"
"""The election whose leader binds pods."""
ELECTIONS, CLUSTER = "elections", "cluster"
"""Processes of the trace that are no lanes."""
COUNTER_INTERVAL = 0.1
"""Seconds between two values of a counter."""
QUEUES = ("active", "backoff", "unschedulable", "gated")


def build_trace(title: str, base: Sequence[TimelineItem], items: Sequence[TimelineItem]) -> Mapping[str, Any]:
    """The trace of a log's base and items, as a JSON object. All items must be in order of time."""
    builder = _TraceBuilder(item_time(items[0]) if items else 0.0, max(map(item_time, items), default=0.0))
    for item in base:
        builder.add(item, quiet=True)
    for item in items:
        builder.add(item)
    return {"traceEvents": builder.events(), "displayTimeUnit": "ms", "otherData": {"title": title, "started": builder.first}}


class _TraceBuilder:
    def __init__(self, first: float, last: float) -> None:
        self.first = first
        self._last = last
        self._lanes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._terms: dict[tuple[str, int], TimelineItem] = {}
        self._marks: dict[int, TimelineItem] = {}
        self._states: dict[str, tuple[float, str]] = {}
        self._leader = ""
        self._nodes: dict[int, str] = {}
        self._pods: dict[int, tuple[str, int]] = {}
        self._counts = dict.fromkeys(PHASES[:-1], 0)
        self._counted = float("-inf")
        self._events: list[Event] = []

    def add(self, item: TimelineItem, *, quiet: bool = False) -> None:
        """`quiet`: the item is from before the trace."""
        kind, t = item[0], float(item[1])
        if kind == "n":
            self._nodes[item[3]] = item[4]
        elif kind == "p":
            self._add_pod(item, quiet)
        elif kind == "t":
            self._terms[item[3], item[4]] = item
            if item[3] == SCHEDULER and item[6] is None:
                self._leader = item[5]
        elif kind == "m":
            self._marks[item[3]] = item
        elif kind == "s":
            self._set_state(t, item[3], item[4])
        elif kind == "q" and not quiet:
            self._emit_event("C", "queue", t, CLUSTER, args=dict(zip(QUEUES, item[3:7], strict=True)))

    def events(self) -> list[Event]:
        self._count(self._last)
        for name, (began, state) in self._states.items():
            self._emit_interval(state, "state", began, self._last, name, "process", {})
        for term in self._terms.values():
            self._add_term(term)
        for term in self._terms.values():
            self._add_outage(term)
        for mark in self._marks.values():
            self._mark(mark)
        return [*self._metadata_events(), *sorted(self._events, key=lambda event: (event["ts"], -event.get("dur", 0.0)))]

    def _add_pod(self, item: TimelineItem, quiet: bool) -> None:
        t, revision, number, key, phase, node = float(item[1]), *item[2:7]
        before, bound = self._pods.get(number, ("", -1))
        if before:
            self._counts[before] -= 1
        if phase == "deleted":
            self._pods.pop(number, None)
        else:
            self._pods[number] = phase, node
            self._counts[phase] += 1
        if quiet:
            return
        if node >= 0 > bound and before and self._leader:
            args = {"pod": key, "node": self._nodes.get(node, ""), "revision": revision}
            self._emit_event("i", f"{key} to {args['node']}", t, self._leader, "decisions", cat="decision", args=args)
        if t - self._counted >= COUNTER_INTERVAL:
            self._count(t)

    def _count(self, t: float) -> None:
        self._counted = t
        self._emit_event("C", "pods", t, CLUSTER, args=dict(self._counts))

    def _set_state(self, t: float, name: str, state: str) -> None:
        began, before = self._states.pop(name, (t, "up"))
        self._emit_interval(before, "state", began, t, name, "process", {})
        self._states[name] = t, state

    def _add_term(self, term: TimelineItem) -> None:
        _, began, revision, election, token, holder, ended, reason, *_ = term
        args = {"election": election, "token": token, "revision": revision, "ended": reason or ("ended" if ended else "")}
        end = self._last if ended is None else ended
        self._emit_interval(f"{election} · token {token}", "term", began, end, holder, f"terms of {election}", args)

    def _add_outage(self, term: TimelineItem) -> None:
        _, began, _, election, _, _, _, _, gap, outage = term
        if outage:
            args = {"election": election, "milliseconds": round(outage * 1000, 3), "gapMilliseconds": round(gap * 1000, 3)}
            self._emit_interval("no working leader", "gap", began - outage, began, ELECTIONS, election, args)

    def _mark(self, mark: TimelineItem) -> None:
        _, t, revision, number, lane, kind, text, ended, count = mark
        if (t if ended is None else ended) < self.first:
            return
        args = {"text": text, "revision": revision, "count": count}
        name = text.split(" ", 1)[0] if kind == "fault" else f"fence refused {count}" if kind == "fenced" else text
        if ended is None or ended <= t:
            self._emit_event("i", name, t, lane, f"{kind}s", cat=kind, args=args)
            return
        for phase, at in (("b", t), ("e", ended)):
            self._emit_event(phase, name, at, lane, f"{kind}s", cat=kind, id=str(number), args=args if phase == "b" else {})

    def _emit_interval(self, name: str, cat: str, began: float, ended: float, lane: str, thread: str, args: Event) -> None:
        if name == "up":
            return
        began = max(began, self.first)
        if ended >= began:
            self._emit_event("X", name, began, lane, thread, cat=cat, dur=round((ended - began) * 1e6, 1), args=args)

    def _emit_event(self, phase: str, name: str, t: float, lane: str, thread: str = "", **fields: Any) -> None:
        pid = self._lanes.setdefault(lane, len(self._lanes) + 1)
        tid = self._threads.setdefault((pid, thread), len(self._threads) + 1) if thread else 0
        event = {"ph": phase, "name": name, "ts": round(max(0.0, t - self.first) * 1e6, 1), "pid": pid, "tid": tid, **fields}
        self._events.append(event | ({"s": "t"} if phase == "i" else {}))

    def _metadata_events(self) -> Iterator[Event]:
        for position, lane in enumerate(_sort_lanes(self._lanes)):
            pid = self._lanes[lane]
            yield _name_event("process_name", pid, 0, {"name": lane})
            yield _name_event("process_sort_index", pid, 0, {"sort_index": position})
        for (pid, thread), tid in self._threads.items():
            yield _name_event("thread_name", pid, tid, {"name": thread})


def _name_event(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "ts": 0, "pid": pid, "tid": tid, "args": args}


def _sort_lanes(lanes: Iterable[str]) -> list[str]:
    """First what concerns the whole cluster."""
    return sorted(lanes, key=lambda lane: (lane not in (ELECTIONS, CLUSTER), lane))
