"""L1: when faults stop, every feasible pod is bound and Running within a bound. L2: a leader within the bound, and leadership
does not move without a fault.

Both need the phases of a run. L1 judges the pods that are there when the run ends, `settle` seconds after the last fault ended
(or after their creation, if that was later). A pod counts as feasible when it is bound, or when some open node has room for it
at the end: pods that ask for more than room are not judged. What is still within its time when the run ends is not judged
either, and makes the run void: it ended too early to prove anything.

L2 counts the time without a leader that no fault covers, in each gap of each election; a fault covers what it lasts. The
elections that the run names must have a leader from the load on; the others, from when somebody led first, but for those that
it calls unsteady. A leader
that is replaced must have been hit: some fault lasted until at most `aftermath` seconds before, and not only one that the run
calls bearable. Faults that the run calls harmless count for nothing in all of this: they are no cause, and cover no time. A
leader that stands still for longer than `leaderless` seconds, and there is no other fault, leads no more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from pinnace.api.resources import NODES
from pinnace.check.facts import ElectionFacts, NodeFacts, PodFacts
from pinnace.check.faults import end_of, uncovered
from pinnace.check.history import Fault, Run, Stored
from pinnace.check.index import History
from pinnace.check.verdict import Findings

SETTLED, SETTLED_STATEMENT = "L1", "when faults stop, every feasible pod is bound and Running within a bound"
LED, LED_STATEMENT = "L2", "a leader within the bound; leadership does not move without a fault"


def examine_pods(history: History, found: Findings) -> None:
    quiet, end = history.phases.get("quiet"), history.phases.get("end")
    if quiet is None or end is None:
        return
    settle = _run(history).settle
    room = _Room(history)
    unjudged = 0
    for versions in history.keys.values():
        pod = versions[-1].facts
        if not isinstance(pod, PodFacts) or pod.terminating:
            continue
        deadline = max(quiet, _created(versions)) + settle
        running = next((stored.at for stored in versions if _runs(stored, pod.uid)), None)
        if running is None and deadline > end:
            unjudged += bool(pod.node or room.for_pod(pod))
            continue
        found.examined += 1
        key, at = versions[-1].key, versions[-1].at
        if running is not None:
            if running > deadline:
                found.violated(
                    f"pod {key} was Running {running - quiet:.1f} s after the last fault, bound {settle:g} s", at=running
                )
        elif pod.node:
            found.violated(f"pod {key} is {pod.phase} on {pod.node}, {end - quiet:.1f} s after the last fault", at=at)
        elif node := room.for_pod(pod):
            found.violated(f"pod {key} is not bound {end - quiet:.1f} s after the last fault; node {node} has room", at=at)
    if unjudged:
        found.void.append(f"it ended {end - quiet:.1f} s after the last fault, when pods were still to run: {unjudged}")


def examine_leaders(history: History, found: Findings) -> None:
    load, end = history.phases.get("load"), history.phases.get("end")
    if load is None or end is None:
        return
    limit = _run(history).leaderless
    harmless = _run(history).harmless
    faults = [fault for fault in history.faults.values() if fault.fired and fault.name not in harmless]
    wanted = _run(history).elections
    for name in dict.fromkeys((*wanted, *history.elections)):
        if name in _run(history).unsteady:
            continue
        versions = history.elections.get(name, [])
        vacant = load if name in wanted else None  # since when nobody leads
        token = 0
        for stored in versions:
            if not stored.digest:
                vacant = stored.at
                continue
            if token and stored.create_revision != token and load <= stored.at <= end:
                found.examined += 1
                _check_cause(name, token, stored, stored.at if vacant is None else vacant, faults, _run(history), found)
            if vacant is not None:
                _check_gap(name, max(vacant, load), min(stored.at, end), faults, limit, found)
            vacant, token = None, stored.create_revision
        _check_frozen(name, versions, history, limit, found)
        if vacant is not None and vacant < end:
            _check_gap(name, max(vacant, load), end, faults, limit, found)
        found.examined += 1


def _check_cause(name: str, token: int, stored: Stored, at: float, faults: Iterable[Fault], run: Run, found: Findings) -> None:
    """`at`: when the leader before lost its place."""
    near = [fault for fault in faults if fault.began <= at <= end_of(fault) + run.aftermath]
    if len(near) > 1 or any(fault.name not in run.bearable for fault in near):
        return
    cause = f"the only fault near was {near[0].name} {near[0].target}, which is bearable" if near else "no fault was near"
    text = f'election "{name}": leadership moved from token {token} to {stored.create_revision}, and {cause}'
    found.violated(text, revision=stored.revision, at=stored.at)


def _check_frozen(name: str, versions: list[Stored], history: History, limit: float, found: Findings) -> None:
    """A leader that stands still is replaced, or leaves its place."""
    freezing = _run(history).freezing
    faults = [fault for fault in history.faults.values() if fault.fired]
    for fault in faults:
        due = fault.began + limit
        alone = not any(each is not fault and each.began <= due and end_of(each) + limit >= fault.began for each in faults)
        if fault.name not in freezing or due > end_of(fault) or not alone:
            continue
        leader, later = _leader(versions, fault.began), _leader(versions, due)
        if leader is None or leader[1] != fault.target:
            continue
        found.examined += 1
        if leader == later:
            text = f"{fault.target} stands still, and leads with token {leader[0]} after {limit:g} s"
            found.violated(f'election "{name}": {text}', at=due)


def _leader(versions: list[Stored], at: float) -> tuple[int, str] | None:
    """Token and holder."""
    last = next((stored for stored in reversed(versions) if stored.at <= at), None)
    facts = last.facts if last is not None else None
    return (last.create_revision, facts.holder) if last is not None and isinstance(facts, ElectionFacts) else None


def _check_gap(name: str, since: float, until: float, faults: Iterable[Fault], limit: float, found: Findings) -> None:
    alone = uncovered(since, until, faults)
    if alone > limit:
        text = f"nobody led for {until - since:.1f} s, {alone:.1f} s of it without a fault; bound {limit:g} s"
        found.violated(f'election "{name}": {text}', at=until)


def _run(history: History) -> Run:
    return history.run or Run(0.0)


def _created(versions: list[Stored]) -> float:
    """When the pod that is there now was created."""
    return next((stored.at for stored in reversed(versions) if stored.create_revision == stored.revision), versions[0].at)


def _runs(stored: Stored, uid: str) -> bool:
    facts = stored.facts
    return isinstance(facts, PodFacts) and facts.uid == uid and (facts.phase == "Running" or facts.finished)


class _Room:
    """What is free on each open node at the end of the history."""

    def __init__(self, history: History) -> None:
        self._free: dict[str, Counter[str]] = defaultdict(Counter)
        for key, versions in history.keys.items():
            facts = versions[-1].facts
            if isinstance(facts, NodeFacts) and facts.open:
                self._free[key.removeprefix(NODES.prefix)].update(dict(facts.allocatable))
        for versions in history.keys.values():
            facts = versions[-1].facts
            if isinstance(facts, PodFacts) and facts.node in self._free and not facts.finished:
                self._free[facts.node].subtract(dict(facts.requests))

    def for_pod(self, pod: PodFacts) -> str:
        """A node with room for it; "": none, or it asks for more than room."""
        if pod.picky:
            return ""
        return next(
            (name for name, free in self._free.items() if all(free[resource] >= amount for resource, amount in pod.requests)),
            "",
        )
