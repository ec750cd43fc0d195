"""Translate the records of a history (pinnace.history.records) into the items that the timeline page shows. Pure.

An item is a JSON array: its kind, its time (Unix seconds), its etcd revision (0: none) and the fields of its kind. Each item
has the whole state of its subject, so the last item of a subject replaces the earlier ones:

    ["n", t, r, id, name, state, cpu, memory, zone, taints]      node; state: ready, not-ready, cordoned, tainted, gone
    ["p", t, r, id, key, phase, node id, cpu, memory, changed]   pod; phase: see PHASES; node id -1: not bound
    ["t", t, r, election, token, holder, ended, reason, gap, outage]   term; ended: Unix seconds, or null while it lasts
    ["c", t, r, election, session, holder]                       candidate; holder "": it has left
    ["k", t, r, key, op, lease]                                  another key of etcd; op: put, delete
    ["m", t, r, id, lane, kind, text, ended, count]              mark on a lane; kind: fault, fenced, action, ...
    ["s", t, 0, lane, state]                                     process; state: up, down, frozen
    ["q", t, 0, active, backoff, unschedulable, gated]           queue of the leading scheduler
    ["v", t, 0, name, status, statement, violations]             verdict of an invariant

Units: cpu in millicores, memory in bytes. Ids of nodes and pods are numbers from 0, unique within one timeline. `changed`: the
last change of a pod's state in Unix seconds. `count`: what a mark stands for, for example refused writes.

`gap` and `outage` are the seconds without a leader and without a working leader before a term (pinnace.api.terms), by the times
in the key and in the records of terms, or null. They are known when the record of the previous term is. The times of a term are
those of the API servers, too, unless their clocks differ from that of the recorder by more than CLOCK_TOLERANCE.

Records of unknown kinds become marks on a lane of their own, so that no event of a history is left out.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnace.api.resources import CANDIDATES_PREFIX, ELECTIONS_PREFIX, NODES, PODS, TERMS_PREFIX
from pinnace.api.terms import TermEnd
from pinnace.api.wellknown import SCHEDULER_ELECTION
from pinnace.history.records import (
    UNSCHEDULABLE,
    CallRecord,
    CandidateFacts,
    Compaction,
    ContainerRun,
    ElectionFacts,
    FaultRecord,
    FencedFacts,
    NodeFacts,
    Observation,
    PodFacts,
    ProcessState,
    Record,
    RunInfo,
    RunPhase,
    StoredChange,
    TermFacts,
    WatchMessage,
)
from pinnace.history.verdict import Verdict

TimelineItem = Sequence[Any]
PHASES = ("pending", "bound", "running", "succeeded", "failed", "terminating", "deleted")
MAX_ITEMS = 200_000
"""Items that a log keeps. Older ones are folded into its base."""
MAX_TERMS = 100
"""Terms of an election that are kept for later records."""
CLOCK_TOLERANCE = 2.0
"""Seconds by which clocks of the API servers and the recorder may differ. Otherwise terms are drawn at the recorder's times."""
BURST = 1.0
"""Seconds within which equal changes of several nodes or pods are one mark."""
NAMED = 3
"""Names in the text of a mark."""
MAX_OWED = 10_000
"""Evicted pods whose replacements are awaited."""
NODES_LANE, FAULTS_LANE = "nodes", "faults"
SYSTEM_TAINTS = "node.kubernetes.io/"
DISRUPTIONS = {
    "DeletionByTaintManager": "NoExecute taint",
    "EvictionByEvictionAPI": "eviction",
    "PreemptionByScheduler": "preemption",
    "TerminationByKubelet": "terminated by the kubelet",
    "DeletionByPodGC": "node is gone",
}
"""Texts for the reasons of the condition DisruptionTarget."""
ROLES = ("leader", "standby", "etcd-leader", "etcd-follower")
"""Targets of faults that are no processes."""
_PROCESS = re.compile(r"\b[a-z][a-z-]*-\d+\b")


class ItemLog:
    """The latest items in order, and below them the base: the last item of each subject of older ones.

    The sequence number of an item counts from 1 and is its position in all items ever appended.
    """

    def __init__(self, limit: int = MAX_ITEMS, last: int = 0) -> None:
        """`last`: the sequence number before the first item, for a log that follows another one."""
        self._limit = limit
        self._base: dict[tuple[Any, ...], TimelineItem] = {}
        self._items: deque[TimelineItem] = deque()
        self.last = last
        """The sequence number of the last item."""
        self.last_term = last
        """The sequence number of the last term."""

    def extend(self, items: Iterable[TimelineItem]) -> None:
        for item in items:
            self._items.append(item)
            self.last += 1
            if item[0] == "t":
                self.last_term = self.last
        while len(self._items) > self._limit:
            self._fold_into_base(self._items.popleft())

    def base(self) -> list[TimelineItem]:
        return list(self._base.values())

    def items_after(self, sequence: int) -> list[TimelineItem] | None:
        """The items after this sequence number; None if some of them are in the base."""
        count = self.last - sequence
        if count < 0 or count > len(self._items):
            return None
        return [self._items[index] for index in range(len(self._items) - count, len(self._items))]

    def all_items(self) -> list[TimelineItem]:
        return list(self._items)

    def _fold_into_base(self, item: TimelineItem) -> None:
        key = item_subject(item)
        self._base.pop(key, None)
        if not _is_over(item):
            self._base[key] = item


def item_subject(item: TimelineItem) -> tuple[Any, ...]:
    """What the item describes: items with equal subjects replace each other."""
    kind = item[0]
    if kind in ("n", "p", "m"):
        return (kind, item[3])
    if kind in ("t", "c"):
        return (kind, item[3], item[4])
    if kind in ("k", "s", "v"):
        return (kind, item[3])
    return (kind,)


def item_time(item: TimelineItem) -> float:
    """The time from which on the item holds. The time of a term that has ended is that of its begin."""
    return float(item[6] if item[0] == "t" and item[6] is not None else item[1])


def _is_over(item: TimelineItem) -> bool:
    kind = item[0]
    return (
        (kind == "p" and item[5] == "deleted")
        or (kind == "n" and item[5] == "gone")
        or (kind == "c" and not item[5])
        or (kind == "k" and item[4] == "delete")
    )


@dataclass(slots=True)
class _TimelineTerm:
    """`began` and `ended`: where the term is drawn. `elected` and `end`: the recorded times, from which gaps are computed."""

    holder: str
    began: float
    elected: float
    ended: float | None = None
    reason: str = ""
    end: TermEnd | None = None


@dataclass(slots=True)
class _NodeBurst:
    """Equal changes of several nodes."""

    name: str
    began: float
    nodes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Eviction:
    """Pods that were evicted from one node for one reason within BURST seconds."""

    name: str
    began: float
    head: str
    pods: list[str] = field(default_factory=list)
    gone: int = 0
    replacements: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        count = len(self.pods)
        what = "pod is" if count == 1 else "pods are"
        state = f"{count} {what} terminating" if not self.gone else f"{self.gone} of {count} terminated"
        replaced = f"; replaced by {_join_names(self.replacements)}" if self.replacements else ""
        return f"{self.head}: {state}: {_join_names(self.pods)}{replaced}"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


class RecordTranslator:
    """Translates records in their order. `offset`: Unix seconds minus the monotonic seconds of the records."""

    def __init__(self, offset: float = 0.0) -> None:
        self._offset = offset
        self._nodes: dict[str, int] = {}
        self._taints: dict[str, tuple[str, ...]] = {}
        self._pods: dict[str, int] = {}
        self._pod_nodes: dict[str, tuple[int, int, int]] = {}
        self._ids = {"n": 0, "p": 0, "m": 0}
        self._terms: defaultdict[str, dict[int, _TimelineTerm]] = defaultdict(dict)
        """By election and token, in order of the tokens."""
        self._marks: dict[str, int] = {}
        self._bursts: dict[str, _NodeBurst] = {}
        self._evictions: dict[str, _Eviction] = {}
        """By node and reason."""
        self._evicted: dict[str, _Eviction] = {}
        """By the key of an evicted pod that still exists."""
        self._owed: defaultdict[str, deque[_Eviction]] = defaultdict(deque)
        """Evictions by the owner whose replacement has not appeared."""
        self._fenced: dict[str, float] = {}
        self._start = 0.0
        """The time of the first change."""

    def translate_record(self, record: Record) -> Iterator[TimelineItem]:
        """The items of one record."""
        if isinstance(record, StoredChange):
            yield from self._translate_change(record)
        elif isinstance(record, FaultRecord):
            if record.fired:
                yield self._translate_fault(record)
        elif isinstance(record, RunPhase):
            yield self.create_mark(f"phase/{record.name}", record.at + self._offset, "run", "phase", record.name)
        elif isinstance(record, ProcessState):
            yield process_item(record.at + self._offset, record.name, record.state)
        elif isinstance(record, Compaction):
            t = record.at + self._offset
            yield self.create_mark(
                f"compaction/{record.revision}", t, "etcd", "event", f"compacted up to revision {record.revision}"
            )
        elif not isinstance(record, RunInfo | CallRecord | WatchMessage | ContainerRun | Observation):  # of a later version
            yield self.create_mark(f"other/{self._ids['m']}", 0.0, "other", "event", repr(record)[:200])

    def create_mark(
        self,
        name: str,
        t: float,
        lane: str,
        kind: str,
        text: str,
        ended: float | None = None,
        revision: int = 0,
        count: int = 1,
    ) -> TimelineItem:
        """A mark. Marks with equal names replace each other."""
        number = self._marks.get(name)
        if number is None:
            number = self._marks[name] = self._next_number("m")
        return ["m", t, revision, number, lane, kind, text, ended, count]

    def leader(self, election: str) -> str:
        """The holder of an election; "" without one."""
        current = self._current_token(election)
        return self._terms[election][current].holder if current else ""

    def translate_verdicts(self, t: float, verdicts: Iterable[Verdict]) -> Iterator[TimelineItem]:
        for verdict in verdicts:
            yield ["v", t, 0, verdict.name, verdict.status, verdict.statement, verdict.count]

    def _translate_change(self, record: StoredChange) -> Iterator[TimelineItem]:
        key, t = record.key, record.at + self._offset
        self._start = self._start or t
        if key.startswith(PODS.prefix):
            yield from self._translate_pod(record, t)
        elif key.startswith(NODES.prefix):
            yield from self._translate_node(record, t)
        elif key.startswith(TERMS_PREFIX):
            yield from self._translate_term(record)
        else:
            if key.startswith(ELECTIONS_PREFIX):
                yield from self._translate_election(record, t)
            elif key.startswith(CANDIDATES_PREFIX):
                yield self._candidate_item(record, t)
            elif isinstance(record.facts, FencedFacts):
                yield self._refused_mark(record, record.facts, t)
            yield ["k", t, record.revision, key, "put" if record.create_revision else "delete", record.lease]

    def _refused_mark(self, record: StoredChange, facts: FencedFacts, t: float) -> TimelineItem:
        began = self._fenced.setdefault(record.key, t)
        text = facts.message
        if facts.count and facts.token:
            writes = "1 write" if facts.count == 1 else f"{facts.count} writes"
            current = self._current_token(SCHEDULER_ELECTION)
            now = f"the current token is {current}" if current else "no candidate leads"
            verb = "was" if facts.count == 1 else "were"
            text = f"{writes} with the old token {facts.token} {verb} refused by the fence; {now}"
        revision, count = record.revision, max(1, facts.count)
        return self.create_mark(record.key, began, facts.reporter, "fenced", text, revision=revision, count=count)

    def _translate_pod(self, record: StoredChange, t: float) -> Iterator[TimelineItem]:
        key = record.key.removeprefix(PODS.prefix)
        number, facts = self._pods.get(key), record.facts
        is_first = number is None
        if number is None:
            number = self._pods[key] = self._next_number("p")
        if not isinstance(facts, PodFacts):
            del self._pods[key]
            yield ["p", t, record.revision, number, key, "deleted", *self._pod_nodes.pop(key, (-1, 0, 0)), t]
            if (eviction := self._evicted.pop(key, None)) is not None:
                eviction.gone += 1
                yield self._eviction_mark(eviction)
            return
        amounts = dict(facts.requests)
        node = self._node_id(facts.node) if facts.node else -1
        self._pod_nodes[key] = node, amounts.get("cpu", 0), amounts.get("memory", 0)
        # a pod that is older than the timeline changed before
        changed = float(facts.changed) if is_first and facts.changed < t - CLOCK_TOLERANCE else t
        yield ["p", t, record.revision, number, key, _pod_phase(facts), *self._pod_nodes[key], changed]
        if is_first and facts.owner and not facts.terminating:
            yield from self._replacement_item(f"{key.partition('/')[0]}/{facts.owner}", key)
        elif not is_first and facts.disruption and key not in self._evicted:
            yield self._evict(key, facts, t)

    def _evict(self, key: str, facts: PodFacts, t: float) -> TimelineItem:
        place = f"{facts.node}/{facts.disruption}"
        eviction = self._evictions.get(place)
        if eviction is None or t - eviction.began > BURST:
            head = f"{facts.node or 'unbound'} ({DISRUPTIONS.get(facts.disruption, facts.disruption)})"
            eviction = self._evictions[place] = _Eviction(f"evicted/{place}/{t}", t, head)
        eviction.pods.append(key)
        self._evicted[key] = eviction
        if facts.owner and len(self._owed) < MAX_OWED:
            self._owed[f"{key.partition('/')[0]}/{facts.owner}"].append(eviction)
        return self._eviction_mark(eviction)

    def _replacement_item(self, owner: str, key: str) -> Iterator[TimelineItem]:
        """`owner`: with its namespace."""
        if (owed := self._owed.get(owner)) is None:
            return
        eviction = owed.popleft()
        if not owed:
            del self._owed[owner]
        eviction.replacements.append(key)
        yield self._eviction_mark(eviction)

    def _eviction_mark(self, eviction: _Eviction) -> TimelineItem:
        return self.create_mark(eviction.name, eviction.began, NODES_LANE, "evicted", eviction.text, count=len(eviction.pods))

    def _translate_node(self, record: StoredChange, t: float) -> Iterator[TimelineItem]:
        name = record.key.removeprefix(NODES.prefix)
        number, facts = self._node_id(name), record.facts
        if not isinstance(facts, NodeFacts):
            self._taints.pop(name, None)
            yield ["n", t, record.revision, number, name, "gone", 0, 0, "", []]
            return
        amounts = dict(facts.allocatable)
        sizes = amounts.get("cpu", 0), amounts.get("memory", 0)
        taints = list(facts.taints)
        yield ["n", t, record.revision, number, name, _node_state(facts), *sizes, facts.zone, taints]
        before, self._taints[name] = self._taints.get(name), facts.taints
        for what in _taint_changes(before, facts.taints) if before is not None else ():
            yield self._burst_mark(name, what, t)

    def _burst_mark(self, node: str, what: str, t: float) -> TimelineItem:
        burst = self._bursts.get(what)
        if burst is None or t - burst.began > BURST:
            burst = self._bursts[what] = _NodeBurst(f"taint/{what}/{t}", t)
        burst.nodes.add(node)
        count = len(burst.nodes)
        text = f"{node if count == 1 else f'{count} nodes'} {what}"
        return self.create_mark(burst.name, burst.began, NODES_LANE, "taint", text, count=count)

    def _current_token(self, election: str) -> int:
        """The token of the current term; 0 without one."""
        token, term = next(reversed(self._terms[election].items()), (0, None))
        return token if term is not None and term.ended is None else 0

    def _translate_election(self, record: StoredChange, t: float) -> Iterator[TimelineItem]:
        election = record.key.removeprefix(ELECTIONS_PREFIX)
        terms, current, facts = self._terms[election], self._current_token(election), record.facts
        token = record.create_revision
        if current and current != token:
            terms[current].ended = t
            yield self._term_item(election, current, record.revision)
        if isinstance(facts, ElectionFacts) and token not in terms:
            # the timeline begins with the present terms
            is_older = not terms and 0 < facts.began < self._start
            began = facts.began if is_older or abs(facts.began - t) <= CLOCK_TOLERANCE else t
            terms[token] = _TimelineTerm(facts.holder, began, facts.began or t)
            yield self._term_item(election, token, record.revision)
        while len(terms) > MAX_TERMS:
            del terms[next(iter(terms))]

    def _translate_term(self, record: StoredChange) -> Iterator[TimelineItem]:
        """The term as the API server recorded it after its end, with the reason and times. The next term then has a gap."""
        facts = record.facts
        election, _, number = record.key.removeprefix(TERMS_PREFIX).partition("/")
        if not isinstance(facts, TermFacts) or not number.isdecimal():
            return
        token, terms = int(number), self._terms[election]
        term = terms.get(token)
        if term is None:
            term = terms[token] = _TimelineTerm(facts.holder, facts.began, facts.began)
            self._terms[election] = terms = dict(sorted(terms.items()))
        if term.ended is None or abs(facts.ended - term.ended) <= CLOCK_TOLERANCE:
            term.ended = facts.ended
        term.reason, term.elected = facts.reason, facts.began
        term.end = TermEnd(facts.ended, facts.presumed, facts.heartbeat or None)
        yield self._term_item(election, token, record.revision)
        if following := next((other for other in terms if other > token), 0):
            yield self._term_item(election, following, record.revision)

    def _term_item(self, election: str, token: int, revision: int) -> TimelineItem:
        terms = self._terms[election]
        term = terms[token]
        previous = max((other for other in terms if other < token), default=0)
        end = terms[previous].end if previous else None
        gap, outage = (end.gap(term.elected), end.outage(term.elected)) if end is not None else (None, None)
        return ["t", term.began, revision, election, token, term.holder, term.ended, term.reason, gap, outage]

    def _candidate_item(self, record: StoredChange, t: float) -> TimelineItem:
        election, _, session = record.key.removeprefix(CANDIDATES_PREFIX).partition("/")
        holder = record.facts.holder if isinstance(record.facts, CandidateFacts) else ""
        return ["c", t, record.revision, election, session, holder]

    def _translate_fault(self, record: FaultRecord) -> TimelineItem:
        began = record.began + self._offset
        ended = record.ended + self._offset if record.ended is not None else None
        text = f"{record.name} {record.details}".strip()
        return self.create_mark(f"fault/{record.id}", began, self._fault_lane(record, began), "fault", text, ended)

    def _fault_lane(self, record: FaultRecord, began: float) -> str:
        """The process of the fault. Its target can be a role, such as the leader, which is no process."""
        if (process := _PROCESS.search(record.details) or _PROCESS.search(record.target)) is not None:
            return process[0]
        if record.target == "leader":
            terms = self._terms[SCHEDULER_ELECTION].values()
            holders = [term.holder for term in terms if term.began <= began < (term.ended or float("inf"))]
            return holders[-1] if holders else FAULTS_LANE
        return record.target if record.target not in ROLES and record.target else FAULTS_LANE

    def _node_id(self, name: str) -> int:
        number = self._nodes.get(name)
        if number is None:
            number = self._nodes[name] = self._next_number("n")
        return number

    def _next_number(self, kind: str) -> int:
        number = self._ids[kind]
        self._ids[kind] = number + 1
        return number


def _node_state(facts: NodeFacts) -> str:
    if not facts.ready:
        return "not-ready"
    if UNSCHEDULABLE in facts.taints or (not facts.open and not facts.taints):  # earlier histories have no taints
        return "cordoned"
    return "ready" if facts.open else "tainted"


def _taint_changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """What was done to the taints. Those that controllers set for a node that is not ready are omitted."""
    for taints, others, verb in ((after, before, "tainted"), (before, after, "untainted")):
        for taint in taints:
            if taint not in others and taint == UNSCHEDULABLE:
                yield "cordoned" if verb == "tainted" else "uncordoned"
            elif taint not in others and not taint.startswith(SYSTEM_TAINTS):
                yield f"{verb} {taint}"


def _pod_phase(facts: PodFacts) -> str:
    if facts.phase in ("Succeeded", "Failed"):
        return facts.phase.lower()
    if facts.terminating:
        return "terminating"
    if facts.phase == "Running":
        return "running"
    return "bound" if facts.node else "pending"


def process_item(t: float, name: str, state: str) -> TimelineItem:
    return ["s", t, 0, name, state]


def queue_item(t: float, sizes: Mapping[str, int]) -> TimelineItem:
    """`sizes`: pods by the name of the queue, as in the metric scheduler_pending_pods."""
    return ["q", t, 0, *(sizes.get(name, 0) for name in ("active", "backoff", "unschedulable", "gated"))]
