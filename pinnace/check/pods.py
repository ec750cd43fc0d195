"""Checkers of pods. I1 to I4 check binds, the capacity of nodes, fences, and election tokens in etcd's history. I10: a pod's
phase follows the phase graph and has one writer. I11: a pod runs on at most one node. I13: a pod runs in one process at a time,
and only while it exists.

I1: a pod's `nodeName` changes from empty to a node once and is constant afterwards. A pod that is created with a `nodeName`
counts as bound.

I2: at each revision, the requests of the unfinished pods that a scheduler bound to a node do not exceed its allocatable.
Requests are computed as in pinnace.fit. Pods without a fence are excluded, because no scheduler bound them. A node can reduce
its allocatable, so the largest allocatable of each node uid is used. A bind does not check that its node exists
(apiserver.registry.binding), and a scheduler receives a deletion with a delay. A bind to a deleted node is therefore allowed if
the pod fits into the last known allocatable of the node.

I3: each fenced bind stores its election and token in the pod. The transaction compares the election's key in the state *before*
the bind. At the revision before the bind, the key must therefore exist and have the token as its create_revision. The key's
value must contain the scheduler of the pod: a token of another election, such as that of the controllers, does not allow binds.
Histories of version 1 do not contain these names. Binds without a fence are only checked for pods that the run declares as
fenced.

I4: the token is the create_revision of the election's key. It belongs to one holder and one session from the creation of the
key to its deletion. The key is only rewritten with the same content (when a leader resumes on another API server), and is
always attached to the session's lease.

I10:  Pending --> Running --> Succeeded | Failed          Pending --> Succeeded | Failed

`Unknown` is not a valid phase: Kubernetes has not set it since 2015, and no component sets it here. A pod is created Pending.
Only a bound pod can be Running or Succeeded. The kubelet that accepts a pod writes `startTime`, and later writes keep it. A
changed startTime means that two kubelets manage the pod. Each transition is written once: no write stores an unchanged object.
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase

I11 and I13 use the run logs of the kubelets. Each process records when it starts and stops a pod, and writes a line every
second. Two processes of one fleet can run the same pod for at most LINGER seconds, until the older process receives the news of
its replacement. Time covered by a fault is excluded, except for faults that start a second process. At the end of the run, no
live process runs a pod that was deleted from etcd more than STOP_TIMEOUT seconds earlier. A pod that is Running in etcd has
been started by a process. A killed process writes no more lines, so its pods end with its last line. Logs without process names
are not checked for duplicate processes.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations, groupby

from pinnace.api.resources import NODES, election_key
from pinnace.check.history import ElectionFacts, NodeFacts, PodFacts, Stored
from pinnace.check.index import History, PodChange, uncovered
from pinnace.check.verdict import Findings

BIND_ONCE = ("I1", "a pod UID is bound at most once, ever")


def examine_bind_once(history: History, found: Findings) -> None:
    bound: dict[str, tuple[str, int, int]] = {}  # uid -> node, token, revision
    for stored, now, before in history.pods:
        if now is None:
            continue
        if not now.node:
            if before is not None and before.node:
                text = f"pod {stored.key} (uid {now.uid}) was unbound from node {before.node}"
                found.violated(text, revision=stored.revision, at=stored.at)
            continue
        if before is not None and (before.node, before.token) == (now.node, now.token):
            continue
        found.examined += 1
        if earlier := bound.get(now.uid):
            node, token, revision = earlier
            text = (
                f"pod {stored.key} (uid {now.uid}) was bound to {node} with token {token} at revision {revision}, "
                f"and again to {now.node} with token {now.token}"
            )
            found.violated(text, revision=stored.revision, at=stored.at)
        bound[now.uid] = (now.node, now.token, stored.revision)


CAPACITY = ("I2", "no node is over its allocatable at any revision")


class _Node:
    """The capacity and usage of a node name. `uid` is "" if no node with this name has existed."""

    __slots__ = ("allocatable", "uid", "used")

    def __init__(self) -> None:
        self.uid = ""
        self.allocatable: dict[str, int] = {}
        self.used: Counter[str] = Counter()

    def learn(self, facts: NodeFacts) -> None:
        if facts.uid != self.uid:
            self.uid, self.allocatable = facts.uid, {}
        for name, amount in facts.allocatable:
            self.allocatable[name] = max(amount, self.allocatable.get(name, 0))


def examine_capacity(history: History, found: Findings) -> None:
    nodes: dict[str, _Node] = {}
    learned = iter(history.nodes)
    learning = next(learned, None)
    for revision, changes in groupby(history.pods, key=lambda change: change.stored.revision):
        while learning is not None and learning.revision <= revision:
            if isinstance(learning.facts, NodeFacts):
                nodes.setdefault(learning.key.removeprefix(NODES.prefix), _Node()).learn(learning.facts)
            learning = next(learned, None)
        added: dict[str, Stored] = {}
        for stored, now, before in changes:
            was, is_now = _uses(before), _uses(now)
            if was == is_now:
                continue
            if was is not None:
                nodes[was.node].used.subtract(dict(was.requests))
            if is_now is not None:
                nodes.setdefault(is_now.node, _Node()).used.update(dict(is_now.requests))
                if was is None or was.node != is_now.node:
                    added[is_now.node] = stored
        for name, stored in added.items():
            found.examined += 1
            _compare(name, nodes[name], stored, found)


def _uses(pod: PodFacts | None) -> PodFacts | None:
    """Return the pod if a scheduler bound it and it uses resources of its node, otherwise None."""
    return pod if pod is not None and pod.node and pod.by_scheduler and not pod.finished else None


def _compare(name: str, node: _Node, stored: Stored, found: Findings) -> None:
    if not node.uid:
        text = f"pod {stored.key} was bound to node {name}, which has not existed"
        found.violated(text, revision=stored.revision, at=stored.at)
        return
    for resource, used in node.used.items():
        capacity = node.allocatable.get(resource, 0)
        if used > capacity:
            text = f"node {name} exceeds its allocatable {resource} after the bind of {stored.key}: {used} of {capacity} used"
            found.violated(text, revision=stored.revision, at=stored.at)


FENCED_BINDS = ("I3", "only the current leader of the pod's scheduler binds it")


def examine_fencing(history: History, found: Findings) -> None:
    fenced = history.run.fenced if history.run else ()
    named = history.run is None or history.run.version >= 2
    for stored, now, before in history.pods:
        if now is not None and now.node and not now.by_scheduler and stored.key.startswith(fenced):
            if before is None or before.node != now.node or before.by_scheduler:
                found.examined += 1
                found.violated(
                    f"pod {stored.key} was bound to {now.node} without a fence", revision=stored.revision, at=stored.at
                )
            continue
        if now is None or not now.by_scheduler or (before is not None and before.token == now.token):
            continue
        found.examined += 1
        leader = history.state(election_key(now.election), stored.revision - 1)
        if leader is None or leader.create_revision != now.token:
            valid = f"the token was {leader.create_revision}" if leader else "there was no leader"
            text = f'pod {stored.key} was bound to {now.node} with token {now.token} of election "{now.election}", when {valid}'
            found.violated(text, revision=stored.revision, at=stored.at)
        elif named and isinstance(leader.facts, ElectionFacts) and now.scheduler not in leader.facts.scheduler_names:
            scope = ", ".join(leader.facts.scheduler_names) or "no scheduler"
            by = f'the leader of election "{now.election}", which binds for {scope}'
            text = f'pod {stored.key} of scheduler "{now.scheduler}" was bound to {now.node} by {by}'
            found.violated(text, revision=stored.revision, at=stored.at)


ONE_HOLDER = ("I4", "one holder per token; tokens strictly grow")


def examine_elections(history: History, found: Findings) -> None:
    for name, versions in history.elections.items():
        held: Stored | None = None
        for stored in versions:
            if not stored.digest:
                continue
            found.examined += 1
            for problem in _problems(held, stored):
                found.violated(f'election "{name}": {problem}', revision=stored.revision, at=stored.at)
            held = stored


def _problems(held: Stored | None, stored: Stored) -> list[str]:
    """Return the problems of a version of the key. `held`: the previous version, by the same or an earlier leader."""
    token, facts = stored.create_revision, stored.facts
    if not isinstance(facts, ElectionFacts):
        return ["the key does not contain an election"]
    problems = []
    if stored.lease != facts.session:
        problems.append(f"token {token}: the key is attached to lease {stored.lease:x}, but the session is {facts.session:x}")
    if held is None or not isinstance(held.facts, ElectionFacts):
        return problems
    if token < held.create_revision:
        problems.append(f"token {token} of {facts.holder} comes after the later token {held.create_revision}")
    elif token == held.create_revision and facts != held.facts:
        problems.append(
            f"token {token} belonged to {held.facts.holder} (session {held.facts.session:x}), "
            f"and now belongs to {facts.holder} (session {facts.session:x})"
        )
    return problems


PHASES = ("I10", "a pod's status follows the phase graph, has one writer, and each transition is written once")
TRANSITIONS = {
    "Pending": ("Pending", "Running", "Succeeded", "Failed"),
    "Running": ("Running", "Succeeded", "Failed"),
    "Succeeded": ("Succeeded",),
    "Failed": ("Failed",),
}
ON_A_NODE = ("Running", "Succeeded")


def examine_phases(history: History, found: Findings) -> None:
    for change in history.pods:
        stored, now, before = change
        if now is None:
            continue
        if before is None or now.phase != before.phase:
            found.examined += 1
        if problem := _problem(now, before) or _repeated(history, change):
            found.violated(f"pod {stored.key} (uid {now.uid}) {problem}", revision=stored.revision, at=stored.at)


def _problem(now: PodFacts, before: PodFacts | None) -> str:
    if now.phase in ON_A_NODE and not now.node:
        return f"is {now.phase}, but not bound to a node"
    if before is None:
        return "" if now.phase in ("", "Pending") else f"was created {now.phase}, expected Pending"
    was = before.phase or "Pending"
    if now.phase not in TRANSITIONS.get(was, ()) and now.phase != before.phase:
        return f"went from {was} to {now.phase or 'no phase'}, expected one of {', '.join(TRANSITIONS.get(was, ()))}"
    if before.started and now.started != before.started:
        return f"was accepted at {before.started} (startTime) and again at {now.started}: two kubelets write its status"
    return ""


def _repeated(history: History, change: PodChange) -> str:
    if change.before is None:
        return ""
    before = history.before(change.stored)
    if before is not None and before.digest == change.stored.digest:
        return f"was written without a change since revision {before.revision}"
    return ""


ONE_PROCESS = ("I13", "a pod runs in one process at a time, and only while it exists")
LINGER = 3.0
"""Seconds. The observed maximum is 1.8 s, on a machine with eight processes per core."""
STOP_TIMEOUT = 15.0
"""Seconds. A client closes a watch that has been silent for this time."""
LIVING = 3.0
"""Seconds. A live process writes a line within this time."""


@dataclass(slots=True)
class _Run:
    process: str
    key: str
    began: float
    ended: float | None = None
    """None if the pod was not stopped."""


def examine_processes(history: History, found: Findings) -> None:
    if not history.ran:
        return
    runs = _runs(history)
    last = _last_words(history)
    for uid, of_pod in runs.items():
        found.examined += len(of_pod)
        _check_twins(history, uid, of_pod, last, found)
    _check_left(history, runs, last, found)
    _check_started(history, runs, found)


def _runs(history: History) -> dict[str, list[_Run]]:
    """Return the runs by pod uid. Runs of one process do not overlap."""
    runs: defaultdict[str, list[_Run]] = defaultdict(list)
    on: dict[tuple[str, str], _Run] = {}
    for ran in history.ran:
        if ran.what == "started":
            run = on[ran.process, ran.uid] = _Run(ran.process, ran.key, ran.at)
            runs[ran.uid].append(run)
        elif (ran.process, ran.uid) in on:
            on.pop((ran.process, ran.uid)).ended = ran.at
    return runs


def _last_words(history: History) -> dict[str, float]:
    """Return the time of the last line of each process."""
    last: dict[str, float] = {}
    for ran in history.ran:
        if ran.process:
            last[ran.process] = max(last.get(ran.process, 0.0), ran.at)
    return last


def _check_twins(history: History, uid: str, runs: list[_Run], last: dict[str, float], found: Findings) -> None:
    if len({run.process for run in runs}) == 1:
        return
    for one, other in combinations(runs, 2):
        if one.process == other.process or not (one.process and other.process):
            continue
        since = max(one.began, other.began)
        until = min(last[run.process] if run.ended is None else run.ended for run in (one, other))
        if until - since <= LINGER:
            continue
        doubling = history.run.doubling if history.run else ()
        faults = [fault for fault in history.faults.values() if fault.fired and fault.name not in doubling]
        if (both := uncovered(since, until, faults)) > LINGER:
            text = f"ran in {one.process} and {other.process} concurrently for {both:.1f} s without a fault; limit {LINGER:g} s"
            found.violated(f"pod {one.key} (uid {uid}) {text}", at=since)


def _check_left(history: History, runs: dict[str, list[_Run]], last: dict[str, float], found: Findings) -> None:
    """Check that deleted pods do not run at the end."""
    end = history.phases.get("end")
    if end is None:
        return
    gone = {change.before.uid: change.stored.at for change in history.pods if change.now is None and change.before}
    for uid, at in gone.items():
        if at > end - STOP_TIMEOUT:
            continue
        for run in runs.get(uid, ()):
            lives = last.get(run.process, 0.0) > end - LIVING
            if lives and run.began <= end and (run.ended is None or run.ended > end):
                text = f"still ran in {run.process} at the end, {end - at:.1f} s after it was deleted"
                found.violated(f"pod {run.key} (uid {uid}) {text}", at=end)


def _check_started(history: History, runs: dict[str, list[_Run]], found: Findings) -> None:
    for stored, now, before in history.pods:
        if now is not None and now.phase == "Running" and (before is None or before.phase != "Running") and now.uid not in runs:
            found.violated(
                f"pod {stored.key} (uid {now.uid}) is Running, but no kubelet started it",
                revision=stored.revision,
                at=stored.at,
            )


ONE_NODE = ("I11", "a pod runs on at most one node")


def examine_nodes(history: History, found: Findings) -> None:
    bound: dict[str, str] = {}
    for _, now, _ in history.pods:
        if now is not None and now.node:
            bound.setdefault(now.uid, now.node)
    first: dict[str, tuple[str, float]] = {}
    for ran in history.ran:
        if ran.what != "started":
            continue
        found.examined += 1
        node, since = first.setdefault(ran.uid, (ran.node, ran.at))
        if ran.node != node:
            found.violated(f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, but ran on {node} since {since:.3f}", at=ran.at)
        elif ran.node != (wanted := bound.get(ran.uid, "")):
            found.violated(
                f"pod {ran.key} (uid {ran.uid}) runs on {ran.node}, but is bound to {wanted or 'no node'}", at=ran.at
            )
