"""Translate the records of a history (pinnace.check.history) into the items that the timeline page shows. Pure.

An item is a JSON array: its kind, its time (Unix seconds), its etcd revision (0: none) and the fields of its kind. Each item
has the whole state of its subject, so the last item of a subject replaces the earlier ones:

    ["n", t, r, id, name, state, cpu, memory, zone]              node; state: ready, not-ready, cordoned, gone
    ["p", t, r, id, key, phase, node id, cpu, memory]            pod; phase: see PHASES; node id -1: not bound
    ["t", t, r, election, token, holder, ended, reason]          term; ended: Unix seconds, or null while it lasts
    ["c", t, r, election, session, holder]                       candidate; holder "": it has left
    ["k", t, r, key, op, lease]                                  another key of etcd; op: put, delete
    ["m", t, r, id, lane, kind, text, ended]                     mark on a lane; kind: fault, fenced, event, phase, action
    ["s", t, 0, lane, state]                                     process; state: up, down, frozen
    ["q", t, 0, active, backoff, unschedulable, gated]           queue of the leading scheduler
    ["v", t, 0, name, status, statement, violations]             verdict of an invariant

Units: cpu in millicores, memory in bytes. Ids of nodes and pods are numbers from 0, unique within one timeline.

Records of unknown kinds become marks on a lane of their own, so that no event of a history is left out.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pinnace.api.resources import CANDIDATES_PREFIX, ELECTIONS_PREFIX, NODES, PODS, TERMS_PREFIX
from pinnace.check.history import (
    Call,
    CandidateFacts,
    Compaction,
    ElectionFacts,
    Fault,
    FencedFacts,
    NodeFacts,
    Observed,
    Phase,
    PodFacts,
    ProcessState,
    Ran,
    Record,
    Run,
    Stored,
    TermFacts,
    Told,
)
from pinnace.check.verdict import Verdict

Item = Sequence[Any]
PHASES = ("pending", "bound", "running", "succeeded", "failed", "terminating", "deleted")
MAX_ITEMS = 200_000
"""Items that a log keeps. Older ones are folded into its base."""
MAX_ENDED = 1_000
"""Terms whose observed times are kept for later versions of their records."""


class ItemLog:
    """The latest items in order, and below them the base: the last item of each subject of older ones.

    The sequence number of an item counts from 1 and is its position in all items ever appended.
    """

    def __init__(self, limit: int = MAX_ITEMS, last: int = 0) -> None:
        """`last`: the sequence number before the first item, for a log that follows another one."""
        self._limit = limit
        self._base: dict[tuple[Any, ...], Item] = {}
        self._items: deque[Item] = deque()
        self.last = last
        """The sequence number of the last item."""
        self.last_term = last
        """The sequence number of the last term."""

    def extend(self, items: Iterable[Item]) -> None:
        for item in items:
            self._items.append(item)
            self.last += 1
            if item[0] == "t":
                self.last_term = self.last
        while len(self._items) > self._limit:
            self._fold(self._items.popleft())

    def base(self) -> list[Item]:
        return list(self._base.values())

    def after(self, sequence: int) -> list[Item] | None:
        """The items after this sequence number; None if some of them are in the base."""
        count = self.last - sequence
        if count < 0 or count > len(self._items):
            return None
        return [self._items[index] for index in range(len(self._items) - count, len(self._items))]

    def all(self) -> list[Item]:
        return list(self._items)

    def _fold(self, item: Item) -> None:
        key = subject(item)
        self._base.pop(key, None)
        if not _is_over(item):
            self._base[key] = item


def subject(item: Item) -> tuple[Any, ...]:
    """What the item describes: items with equal subjects replace each other."""
    kind = item[0]
    if kind in ("n", "p", "m"):
        return (kind, item[3])
    if kind in ("t", "c"):
        return (kind, item[3], item[4])
    if kind in ("k", "s", "v"):
        return (kind, item[3])
    return (kind,)


def known_at(item: Item) -> float:
    """The time from which on the item holds. The time of a term that has ended is that of its begin."""
    return float(item[6] if item[0] == "t" and item[6] is not None else item[1])


def _is_over(item: Item) -> bool:
    kind = item[0]
    return (
        (kind == "p" and item[5] == "deleted")
        or (kind == "n" and item[5] == "gone")
        or (kind == "c" and not item[5])
        or (kind == "k" and item[4] == "delete")
    )


class _Term(NamedTuple):
    holder: str
    began: float


class Translator:
    """Translates records in their order. `offset`: Unix seconds minus the monotonic seconds of the records."""

    def __init__(self, offset: float = 0.0) -> None:
        self._offset = offset
        self._nodes: dict[str, int] = {}
        self._pods: dict[str, int] = {}
        self._pod_nodes: dict[str, tuple[int, int, int]] = {}
        self._ids = {"n": 0, "p": 0, "m": 0}
        self._terms: dict[str, tuple[int, _Term]] = {}
        self._ended: dict[tuple[str, int], tuple[float, float]] = {}
        self._marks: dict[str, int] = {}
        self._start = 0.0
        """The time of the first change."""

    def of(self, record: Record) -> Iterator[Item]:
        """The items of one record."""
        if isinstance(record, Stored):
            yield from self._stored(record)
        elif isinstance(record, Fault):
            if record.fired:
                yield self._fault(record)
        elif isinstance(record, Phase):
            yield self.mark(f"phase/{record.name}", record.at + self._offset, "run", "phase", record.name)
        elif isinstance(record, ProcessState):
            yield process_item(record.at + self._offset, record.name, record.state)
        elif isinstance(record, Compaction):
            t = record.at + self._offset
            yield self.mark(f"compaction/{record.revision}", t, "etcd", "event", f"compacted up to revision {record.revision}")
        elif not isinstance(record, Run | Call | Told | Ran | Observed):  # of a later version
            yield self.mark(f"other/{self._ids['m']}", 0.0, "other", "event", repr(record)[:200])

    def mark(self, name: str, t: float, lane: str, kind: str, text: str, ended: float | None = None, revision: int = 0) -> Item:
        """A mark. Marks with equal names replace each other."""
        number = self._marks.get(name)
        if number is None:
            number = self._marks[name] = self._number("m")
        return ["m", t, revision, number, lane, kind, text, ended]

    def leader(self, election: str) -> str:
        """The holder of an election; "" without one."""
        found = self._terms.get(election)
        return found[1].holder if found else ""

    def verdicts(self, t: float, verdicts: Iterable[Verdict]) -> Iterator[Item]:
        for each in verdicts:
            yield ["v", t, 0, each.name, each.status, each.statement, each.count]

    def _stored(self, record: Stored) -> Iterator[Item]:
        key, t = record.key, record.at + self._offset
        self._start = self._start or t
        if key.startswith(PODS.prefix):
            yield self._pod(record, t)
        elif key.startswith(NODES.prefix):
            yield self._node(record, t)
        elif key.startswith(TERMS_PREFIX):
            yield from self._term(record)
        else:
            if key.startswith(ELECTIONS_PREFIX):
                yield from self._election(record, t)
            elif key.startswith(CANDIDATES_PREFIX):
                yield self._candidate(record, t)
            elif isinstance(record.facts, FencedFacts):
                facts = record.facts
                yield self.mark(key, t, facts.reporter, "fenced", facts.message, revision=record.revision)
            yield ["k", t, record.revision, key, "put" if record.create_revision else "delete", record.lease]

    def _pod(self, record: Stored, t: float) -> Item:
        key = record.key.removeprefix(PODS.prefix)
        number = self._pods.get(key)
        if number is None:
            number = self._pods[key] = self._number("p")
        facts = record.facts
        if not isinstance(facts, PodFacts):
            del self._pods[key]
            return ["p", t, record.revision, number, key, "deleted", *self._pod_nodes.pop(key, (-1, 0, 0))]
        amounts = dict(facts.requests)
        node = self._node_id(facts.node) if facts.node else -1
        self._pod_nodes[key] = node, amounts.get("cpu", 0), amounts.get("memory", 0)
        return ["p", t, record.revision, number, key, _phase(facts), *self._pod_nodes[key]]

    def _node(self, record: Stored, t: float) -> Item:
        name = record.key.removeprefix(NODES.prefix)
        number, facts = self._node_id(name), record.facts
        if not isinstance(facts, NodeFacts):
            return ["n", t, record.revision, number, name, "gone", 0, 0, ""]
        state = "not-ready" if not facts.ready else "ready" if facts.open else "cordoned"
        amounts = dict(facts.allocatable)
        return ["n", t, record.revision, number, name, state, amounts.get("cpu", 0), amounts.get("memory", 0), facts.zone]

    def _election(self, record: Stored, t: float) -> Iterator[Item]:
        election = record.key.removeprefix(ELECTIONS_PREFIX)
        current = self._terms.get(election)
        facts = record.facts
        if isinstance(facts, ElectionFacts):
            token = record.create_revision
            if current is None or current[0] != token:
                if current is not None:
                    yield self._end(election, record)
                # the timeline begins with the present terms
                began = facts.began if 0 < facts.began < self._start else t
                self._terms[election] = token, _Term(facts.holder, began)
                yield ["t", began, record.revision, election, token, facts.holder, None, ""]
        elif current is not None:
            yield self._end(election, record)

    def _end(self, election: str, record: Stored) -> Item:
        t = record.at + self._offset
        token, term = self._terms.pop(election)
        self._ended[election, token] = term.began, t
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return ["t", term.began, record.revision, election, token, term.holder, t, ""]

    def _term(self, record: Stored) -> Iterator[Item]:
        """The term as the API server recorded it after its end: it adds the reason."""
        facts = record.facts
        election, _, token = record.key.removeprefix(TERMS_PREFIX).partition("/")
        if isinstance(facts, TermFacts) and token.isdecimal():
            known = self._ended.get((election, int(token)))
            began, ended = known or (facts.began, facts.ended)
            yield ["t", began, record.revision, election, int(token), facts.holder, ended, facts.reason]

    def _candidate(self, record: Stored, t: float) -> Item:
        election, _, session = record.key.removeprefix(CANDIDATES_PREFIX).partition("/")
        holder = record.facts.holder if isinstance(record.facts, CandidateFacts) else ""
        return ["c", t, record.revision, election, session, holder]

    def _fault(self, record: Fault) -> Item:
        ended = record.ended + self._offset if record.ended is not None else None
        first = record.details.split(" ", 1)[0].rstrip(",;:")
        lane = first if "-" in first and first.rpartition("-")[2].isdigit() else record.target or "faults"
        text = f"{record.name} {record.details}".strip()
        return self.mark(f"fault/{record.id}", record.began + self._offset, lane, "fault", text, ended)

    def _node_id(self, name: str) -> int:
        number = self._nodes.get(name)
        if number is None:
            number = self._nodes[name] = self._number("n")
        return number

    def _number(self, kind: str) -> int:
        number = self._ids[kind]
        self._ids[kind] = number + 1
        return number


def _phase(facts: PodFacts) -> str:
    if facts.phase in ("Succeeded", "Failed"):
        return facts.phase.lower()
    if facts.terminating:
        return "terminating"
    if facts.phase == "Running":
        return "running"
    return "bound" if facts.node else "pending"


def process_item(t: float, name: str, state: str) -> Item:
    return ["s", t, 0, name, state]


def queue_item(t: float, sizes: Mapping[str, int]) -> Item:
    """`sizes`: pods by the name of the queue, as in the metric scheduler_pending_pods."""
    return ["q", t, 0, *(sizes.get(name, 0) for name in ("active", "backoff", "unschedulable", "gated"))]
