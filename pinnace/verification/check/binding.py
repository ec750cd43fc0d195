"""Checkers I1 to I4 for etcd's history: binds, the capacity of nodes, fences, and election tokens.

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
"""

from collections import Counter
from itertools import groupby

from pinnace.api.resources import NODES, election_key
from pinnace.history.records import ElectionFacts, NodeFacts, PodFacts, StoredChange
from pinnace.history.verdict import Findings
from pinnace.verification.check.index import History

BIND_ONCE = ("I1", "a pod UID is bound at most once, ever")
CAPACITY = ("I2", "no node is over its allocatable at any revision")
FENCED_BINDS = ("I3", "only the current leader of the pod's scheduler binds it")
ONE_HOLDER = ("I4", "one holder per token; tokens strictly grow")


def examine_bind_once(history: History, findings: Findings) -> None:
    bound: dict[str, tuple[str, int, int]] = {}  # uid -> node, token, revision
    for stored, now, before in history.pods:
        if now is None:
            continue
        if not now.node:
            if before is not None and before.node:
                text = f"pod {stored.key} (uid {now.uid}) was unbound from node {before.node}"
                findings.add_violation(text, revision=stored.revision, at=stored.at)
            continue
        if before is not None and (before.node, before.token) == (now.node, now.token):
            continue
        findings.examined += 1
        if earlier := bound.get(now.uid):
            node, token, revision = earlier
            text = (
                f"pod {stored.key} (uid {now.uid}) was bound to {node} with token {token} at revision {revision}, "
                f"and again to {now.node} with token {now.token}"
            )
            findings.add_violation(text, revision=stored.revision, at=stored.at)
        bound[now.uid] = (now.node, now.token, stored.revision)


class _NodeUsage:
    """The capacity and usage of a node name. `uid` is "" if no node with this name has existed."""

    __slots__ = ("allocatable", "uid", "used")

    def __init__(self) -> None:
        self.uid = ""
        self.allocatable: dict[str, int] = {}
        self.used: Counter[str] = Counter()

    def update_facts(self, facts: NodeFacts) -> None:
        if facts.uid != self.uid:
            self.uid, self.allocatable = facts.uid, {}
        for name, amount in facts.allocatable:
            self.allocatable[name] = max(amount, self.allocatable.get(name, 0))


def examine_capacity(history: History, findings: Findings) -> None:
    nodes: dict[str, _NodeUsage] = {}
    learned = iter(history.nodes)
    learning = next(learned, None)
    for revision, changes in groupby(history.pods, key=lambda change: change.stored.revision):
        while learning is not None and learning.revision <= revision:
            if isinstance(learning.facts, NodeFacts):
                nodes.setdefault(learning.key.removeprefix(NODES.prefix), _NodeUsage()).update_facts(learning.facts)
            learning = next(learned, None)
        added: dict[str, StoredChange] = {}
        for stored, now, before in changes:
            was, is_now = _bound_pod_with_requests(before), _bound_pod_with_requests(now)
            if was == is_now:
                continue
            if was is not None:
                nodes[was.node].used.subtract(dict(was.requests))
            if is_now is not None:
                nodes.setdefault(is_now.node, _NodeUsage()).used.update(dict(is_now.requests))
                if was is None or was.node != is_now.node:
                    added[is_now.node] = stored
        for name, stored in added.items():
            findings.examined += 1
            _compare_usage(name, nodes[name], stored, findings)


def _bound_pod_with_requests(pod: PodFacts | None) -> PodFacts | None:
    """Return the pod if a scheduler bound it and it uses resources of its node, otherwise None."""
    return pod if pod is not None and pod.node and pod.bound_by_scheduler and not pod.finished else None


def _compare_usage(name: str, node: _NodeUsage, stored: StoredChange, findings: Findings) -> None:
    if not node.uid:
        text = f"pod {stored.key} was bound to node {name}, which has not existed"
        findings.add_violation(text, revision=stored.revision, at=stored.at)
        return
    for resource, used in node.used.items():
        capacity = node.allocatable.get(resource, 0)
        if used > capacity:
            text = f"node {name} exceeds its allocatable {resource} after the bind of {stored.key}: {used} of {capacity} used"
            findings.add_violation(text, revision=stored.revision, at=stored.at)


def examine_fencing(history: History, findings: Findings) -> None:
    fenced = history.run.fenced if history.run else ()
    named = history.run is None or history.run.version >= 2
    for stored, now, before in history.pods:
        if now is not None and now.node and not now.bound_by_scheduler and stored.key.startswith(fenced):
            if before is None or before.node != now.node or before.bound_by_scheduler:
                findings.examined += 1
                findings.add_violation(
                    f"pod {stored.key} was bound to {now.node} without a fence", revision=stored.revision, at=stored.at
                )
            continue
        if now is None or not now.bound_by_scheduler or (before is not None and before.token == now.token):
            continue
        findings.examined += 1
        leader = history.find_current_version(election_key(now.election), stored.revision - 1)
        if leader is None or leader.create_revision != now.token:
            valid = f"the token was {leader.create_revision}" if leader else "there was no leader"
            text = f'pod {stored.key} was bound to {now.node} with token {now.token} of election "{now.election}", when {valid}'
            findings.add_violation(text, revision=stored.revision, at=stored.at)
        elif named and isinstance(leader.facts, ElectionFacts) and now.scheduler not in leader.facts.scheduler_names:
            scope = ", ".join(leader.facts.scheduler_names) or "no scheduler"
            by = f'the leader of election "{now.election}", which binds for {scope}'
            text = f'pod {stored.key} of scheduler "{now.scheduler}" was bound to {now.node} by {by}'
            findings.add_violation(text, revision=stored.revision, at=stored.at)


def examine_elections(history: History, findings: Findings) -> None:
    for name, versions in history.elections.items():
        held: StoredChange | None = None
        for stored in versions:
            if not stored.digest:
                continue
            findings.examined += 1
            for problem in _lock_problems(held, stored):
                findings.add_violation(f'election "{name}": {problem}', revision=stored.revision, at=stored.at)
            held = stored


def _lock_problems(held: StoredChange | None, stored: StoredChange) -> list[str]:
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
